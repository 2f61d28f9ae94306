"""Rules of whose bucket it is, and of what is unknown, each taken out of the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dray.broker.cluster import bucket_owner
from dray.log.life import collector
from dray.log.life.deletions import Brake
from dray.tables.compaction.upkeep.bucket_survey import BucketSurvey

Patch = Callable[[pytest.MonkeyPatch], None]


def brokers_do_not_ask_whose_bucket_it_is(patch: pytest.MonkeyPatch) -> None:
    async def claim(*_: Any) -> None:
        return

    patch.setattr(bucket_owner, "claim_bucket", claim)


def collectors_do_not_ask_whose_bucket_it_is(patch: pytest.MonkeyPatch) -> None:
    async def allowed(_: bucket_owner.BucketGuard) -> str | None:
        return None

    patch.setattr(bucket_owner.BucketGuard, "__call__", allowed)


def any_bucket_without_an_owner_is_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BucketSurvey, "doubt", lambda _: None)


def no_brake(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Brake, "stops", lambda *_: False)


def the_audit_deletes_at_once(patch: pytest.MonkeyPatch) -> None:
    """What is unknown has waited since ever."""
    kept = collector.Collector._nominate

    async def nominate(self: collector.Collector, page: Any, nominated: Any) -> int:
        unknown = await kept(self, page, nominated)
        for each in nominated.values():
            each.since = -1e9
        return unknown

    patch.setattr(collector.Collector, "_nominate", nominate)


MUTATIONS: dict[str, tuple[Patch, int]] = {
    "brokers do not ask whose bucket it is": (brokers_do_not_ask_whose_bucket_it_is, 0),
    "collectors do not ask whose bucket it is": (collectors_do_not_ask_whose_bucket_it_is, 0),
    "any bucket without an owner is taken": (any_bucket_without_an_owner_is_taken, 0),
    "no brake": (no_brake, 0),
    "the audit deletes at once": (the_audit_deletes_at_once, 0),
}
