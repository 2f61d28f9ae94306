"""Rules about what a build cannot read, and about ids, each taken out of the code.

As in `cluster_mutations`, beside each stands the seed from which the search for it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.broker.cluster import level_keeper, levels
from dray.broker.cluster.membership import AUTOMATIC, Membership
from dray.broker.groups.coordinator import sweep
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.topics.cache import TopicCache
from dray.broker.topics.live import LiveTopics, StoredTopics
from dray.daemons.broker.broker_parts import BrokerParts
from dray.metadata import keys

Patch = Callable[[pytest.MonkeyPatch], None]


def unreadable_topics_are_absent_to_brokers(patch: pytest.MonkeyPatch) -> None:
    kept = TopicCache._apply

    def apply(self: TopicCache, name: str, *found: Any) -> None:
        kept(self, name, *found)
        self.unreadable.pop(name, None)

    patch.setattr(TopicCache, "_apply", apply)


def unreadable_topics_are_absent_to_compactors(patch: pytest.MonkeyPatch) -> None:
    kept = StoredTopics.live

    async def live(self: StoredTopics) -> LiveTopics:
        return LiveTopics((await kept(self)).known)

    patch.setattr(StoredTopics, "live", live)


def a_group_with_offsets_is_deleted_by_the_sweep(patch: pytest.MonkeyPatch) -> None:
    kept = sweep._delete_if_useless

    async def delete(group: ActiveGroup) -> None:
        with patch.context() as during:
            during.setattr(group.ledger, "is_empty", lambda: True)
            await kept(group)

    patch.setattr(sweep, "_delete_if_useless", delete)


MUTATIONS: dict[str, tuple[Patch, int]] = {
    "unreadable topics are absent to brokers": (unreadable_topics_are_absent_to_brokers, 24),
    "unreadable topics are absent to compactors": (unreadable_topics_are_absent_to_compactors, 0),
    "a group with offsets is deleted by the sweep": (a_group_with_offsets_is_deleted_by_the_sweep, 0),
}


def an_automatic_id_is_claimed_for_ever(patch: pytest.MonkeyPatch) -> None:
    kept = Membership._register

    async def register(self: Membership) -> Any:
        self._is_automatic = self._me.broker_id == AUTOMATIC
        return await kept(self)

    patch.setattr(Membership, "_register", register)


# --- the gates of the cluster's level


def nobody_registered_is_asked(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, keys.BROKERS)


def nobody_who_beats_is_asked(patch: pytest.MonkeyPatch) -> None:
    _leave_out(patch, keys.CLOCKS)


def _leave_out(patch: pytest.MonkeyPatch, prefix: str) -> None:
    kept = level_keeper._scan

    async def scan(store: Any, wanted: str) -> Any:
        return [] if wanted == prefix else await kept(store, wanted)

    patch.setattr(level_keeper, "_scan", scan)


def silence_is_taken_for_consent(patch: pytest.MonkeyPatch) -> None:
    def read_by_all(readers: Any) -> int:
        return min((each.reads for each in readers if each.reads is not None), default=levels.NEWEST)

    patch.setattr(level_keeper, "read_by_all", read_by_all)


def formats_are_written_at_any_level(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerParts, "writes", property(lambda _: levels.NEWEST))


def no_level_is_raised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(level_keeper, "looked_at", lambda level, *_: level)


LEVEL_MUTATIONS: dict[str, tuple[Patch, int]] = {
    "nobody registered is asked": (nobody_registered_is_asked, 7),
    "nobody who beats is asked": (nobody_who_beats_is_asked, 2),
    "silence is taken for consent": (silence_is_taken_for_consent, 0),
    "formats are written at any level": (formats_are_written_at_any_level, 0),
    "no level is raised": (no_level_is_raised, 0),
}
