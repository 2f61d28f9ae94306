"""The groups of a source: one round for all topics, and what is said of groups that are not followed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dray.client.errors import ClientError
from dray.daemon import followed_upstreams
from dray.daemon.followed_upstreams import FollowedUpstream
from dray.metadata.memory import MemoryStore
from dray.simulation.kernel.loop import run
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.upstream.group_follower import FollowReport

SECONDS = 5.0


class Followed:
    """With a follower whose rounds find what is next in `found`; nothing where the source is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *found: FollowReport | None) -> None:
        self.found = list(found)
        self.runtime = SimulatedRuntime(1)
        monkeypatch.setattr(followed_upstreams, "group_follower", lambda *_: self)
        rooms = SimpleNamespace(
            stores=SimpleNamespace(metadata=MemoryStore(self.runtime)),
            cluster=SimpleNamespace(domains=4),
            streams=None,
        )
        self.upstream = FollowedUpstream("old", cast(Any, None), cast(Any, rooms), self.runtime, SECONDS)

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
                await followed.upstream.follow("orders", at_once=True)
        return [each["groups"] for each in logs if each["event"] == "groups are not followed"]

    assert run(play()) == [share, denied, denied]


def test_a_long_list_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(left={f"g{each}": "why" for each in range(1000)}))
        with capture_logs() as logs:
            await followed.upstream.follow("orders")
        assert [(len(each["groups"]), each["number"]) for each in logs] == [(20, 1000)]

    run(play())


def test_groups_that_have_moved_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(handed_over=["billing"]))
        with capture_logs() as logs:
            await followed.upstream.follow("orders")
        assert [(each["event"], each["groups"]) for each in logs] == [("groups have moved", ["billing"])]

    run(play())


def test_it_is_known_for_how_long_groups_were_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        followed = Followed(monkeypatch, FollowReport(), None, None, FollowReport())
        upstream, runtime = followed.upstream, followed.runtime
        await upstream.follow("orders")
        await upstream.follow("parcels")
        assert len(followed.found) == 3, "one round is enough for all topics"
        for waited in (100, 200):
            await runtime.sleep(100)
            with pytest.raises(ClientError):
                await upstream.follow("orders")
            assert upstream.unfollowed_seconds == pytest.approx(waited)
        await upstream.follow("orders")
        assert upstream.unfollowed_seconds == 0

    run(play())
