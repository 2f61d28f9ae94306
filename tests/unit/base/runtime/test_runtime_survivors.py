"""Tasks and timers of every room, each struck by what nobody foresaw: they go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from typing import Any

import pytest
from tests.services import room_settings

from dray.base.telemetry import Metrics
from dray.broker.groups.classic import ScheduleTimer, TimerKind
from dray.broker.groups.coordinator.active import GroupTimers, Timer
from dray.broker.server.server import Server
from dray.metadata.contract import Change
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.sessions import KeptSession, SendTime
from dray.metadata.watching import Follower
from dray_simulation.kernel.runtime import SimulatedRuntime


@pytest.fixture
async def runtime() -> SimulatedRuntime:
    return SimulatedRuntime(1)


async def test_a_follower_outlives_what_its_reader_raises(runtime: SimulatedRuntime) -> None:
    reads: list[float] = []

    async def read_all() -> None:
        reads.append(runtime.monotonic())
        if len(reads) < 4:
            raise ValueError("not foreseen")

    async def read_key(_: str) -> None:
        raise AssertionError("there is no key")

    store = MemoryStore(runtime, MemoryState())
    follower = Follower(store, runtime, 0, "/a/", read_all=read_all, read_key=read_key, interval=5.0)
    follower.start()
    await asyncio.sleep(120)
    assert len(reads) > 20
    assert runtime.background.ended() == {}
    await follower.stop()


async def test_a_watch_that_breaks_in_an_unforeseen_way_is_begun_again(runtime: SimulatedRuntime) -> None:
    class Breaking(MemoryStore):
        async def watch(  # type: ignore[override]
            self, domain: int, endings: tuple[str, ...] = ()
        ) -> AsyncIterator[Change]:
            yield Change(None)
            raise KeyError(domain)

    reads: list[float] = []

    async def read_all() -> None:
        reads.append(runtime.monotonic())

    async def read_key(_: str) -> None:
        return

    follower = Follower(
        Breaking(runtime, MemoryState()),
        runtime,
        0,
        "/a/",
        read_all=read_all,
        read_key=read_key,
        interval=1e9,
    )
    follower.start()
    await asyncio.sleep(600)
    assert len(reads) > 10
    await follower.stop()


async def test_a_session_outlives_signs_of_life_that_fail(runtime: SimulatedRuntime) -> None:
    renewals: list[float] = []

    async def renew() -> bool:
        renewals.append(runtime.monotonic())
        if len(renewals) in (2, 3, 5):
            raise RuntimeError("not foreseen")
        return True

    async def remove() -> None:
        return

    session = KeptSession(
        runtime, domain=0, identity=1, ttl=12.0, sent=SendTime.now(runtime), renew=renew, remove=remove
    )
    await asyncio.sleep(120)
    assert not session.ended
    assert len(renewals) > 20
    await session.close()
    assert runtime.background.ended() == {}


async def test_a_timer_that_fails_takes_no_other_along(runtime: SimulatedRuntime) -> None:
    effect = ScheduleTimer(TimerKind.SESSION, "member", 0)
    heard: list[Hashable] = []

    def due(key: Hashable, timer: Timer) -> None:
        timers.take(key, timer)
        if key == "bad":
            raise ValueError("not foreseen")
        heard.append(key)

    timers = GroupTimers(runtime, due)
    for key in ("bad", "second", "third"):
        timers.schedule(key, 1.0, effect)
    timers.schedule("later", 2.0, effect)
    await asyncio.sleep(5)
    assert heard == ["second", "third", "later"]
    assert runtime.background.failures == {"group timers": 1}


async def test_the_sweep_of_connections_goes_on(runtime: SimulatedRuntime) -> None:
    swept: list[str] = []

    class Member:
        def __init__(self, name: str) -> None:
            self.name = name

        def sweep(self, _now: float) -> None:
            swept.append(self.name)
            if self.name == "bad":
                raise ValueError("not foreseen")

    async def dispatch(*_: Any) -> Any:
        raise AssertionError("nobody asks")

    server = Server(dispatch, runtime, room_settings.server(), Metrics(process=False))
    server._shared.members.update({Member("bad"): None, Member("good"): None})  # type: ignore[dict-item]
    server._sweep()
    await asyncio.sleep(600)
    assert swept.count("good") == swept.count("bad") > 2
    assert server._sweeping is not None
    server._sweeping.cancel()
