"""The groups of a source: one round for all topics, and what is said of groups that are not followed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dray.kafka.client.errors import ClientError
from dray.metadata.memory import MemoryStore
from dray.migration.groups import rounds
from dray.migration.groups.follower import FollowReport
from dray.migration.groups.rounds import GroupRounds
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

SECONDS = 5.0


class Followed:
    """With a follower whose rounds find what is next in `found`; nothing where the source is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: FollowReport | None) -> None:
        self.found = list(found)
        self.runtime = SimulatedRuntime(1)
        monkeypatch.setattr(rounds, "group_follower", lambda *_: self)
        metadata, nothing = MemoryStore(self.runtime), cast(Any, None)
        self.rounds = GroupRounds("old", nothing, metadata, self.runtime, nothing, 4, SECONDS)

    async def run_once(self) -> FollowReport:
        report = self.found.pop(0)
        if report is None:
            raise ClientError("no answer")
        return report


def test_what_is_not_followed_is_said_when_it_begins_or_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    share, denied = {"s": "a share group"}, {"g": "denied"}
    reports = [FollowReport(left=each) for each in (share, share, share | denied, share, share | denied)]

    async def play() -> list[object]:
        followed = Followed(monkeypatch, *reports)
        with capture_logs() as logs:
            for _ in reports:
                await followed.rounds.follow("orders", at_once=True)
        return [each["groups"] for each in logs if each["event"] == "groups are not followed"]

    assert run(play()) == [share, denied, denied]


def test_a_long_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(left={f"g{each}": "why" for each in range(1000)}))
        with capture_logs() as logs:
            await followed.rounds.follow("orders")
        assert [(len(each["groups"]), each["number"]) for each in logs] == [(20, 1000)]

    run(play())


def test_groups_that_have_moved_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(handed_over=["billing"]))
        with capture_logs() as logs:
            await followed.rounds.follow("orders")
        assert [(each["event"], each["groups"]) for each in logs] == [("groups have moved", ["billing"])]

    run(play())


def test_it_is_known_for_how_long_groups_were_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(), None, None, FollowReport())
        rounds, runtime = followed.rounds, followed.runtime
        await rounds.follow("orders")
        await rounds.follow("parcels")
        assert len(followed.found) == 3, "one round is enough for all topics"
        for waited in (100, 200):
            await runtime.sleep(100)
            with pytest.raises(ClientError):
                await rounds.follow("orders")
            assert rounds.unfollowed_seconds == pytest.approx(waited)
        await rounds.follow("orders")
        assert rounds.unfollowed_seconds == 0

    run(play())
