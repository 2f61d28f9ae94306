"""Rules about what a build cannot read, and about ids, each taken out of the code.

As in `cluster_mutations`, beside each stands the seed from which the search for it starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.broker.cluster.membership import AUTOMATIC, Membership
from dray.broker.groups.coordinator import sweep
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.topics.cache import TopicCache
from dray.broker.topics.live import LiveTopics, StoredTopics

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
