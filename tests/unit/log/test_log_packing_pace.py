"""Packs give way to small appends, as far as the backlog allows it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services.room_settings import EMBEDDED
from tests.unit.log.packing_harness import carrying, check, fill, pack, packing_world

from dray.log.append.carry import CarriedBacklog
from dray.log.jobs.packing import BUSY_SECONDS, PackingPace, share_of_time
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

BOUND = 1000
WORK = 0.01


def rest_after_work(carried: int, idle: float = 0.0, work: float = WORK) -> float:
    """How long a pack rests that has worked for a while, with so much carried."""

    async def measure() -> float:
        runtime = SimulatedRuntime(1)
        backlog = CarriedBacklog(replace(EMBEDDED, backlog=BOUND, entry_bytes=0))
        pace = PackingPace(runtime, backlog)
        pace.begin()
        await runtime.sleep(work)
        backlog.add(1, carried, runtime.monotonic() - idle)
        began = runtime.monotonic()
        await pace.give_way()
        rested = runtime.monotonic() - began
        again = runtime.monotonic()
        await pace.give_way()
        assert runtime.monotonic() == pytest.approx(again), "nothing was done in between"
        return rested

    return run(measure())


@pytest.mark.parametrize(
    ("carried", "share"), [(0, 0.1), (50, 0.1), (125, 0.25), (250, 0.5), (500, 1.0), (1000, 1.0)]
)
def test_the_fuller_the_backlog_the_more_time_packing_takes(carried: int, share: float) -> None:
    assert share_of_time(carried, BOUND) == share
    assert rest_after_work(carried) == pytest.approx(WORK / share - WORK)


def test_where_nothing_may_be_carried_nothing_is_waited_for() -> None:
    assert share_of_time(0, 0) == 1.0


def test_without_appends_there_is_nobody_to_give_way_to() -> None:
    assert rest_after_work(0, idle=BUSY_SECONDS) == 0.0


def test_no_rest_is_long() -> None:
    assert rest_after_work(0, work=60.0) == 0.5


def test_a_pack_gives_way_between_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    given = 0

    async def count(_: PackingPace) -> None:
        nonlocal given
        given += 1

    async def play() -> None:
        world = packing_world()
        log = carrying(world)
        streams = await fill(log, 5)
        monkeypatch.setattr(PackingPace, "give_way", count)
        await pack(log)
        await check(world, streams, 1)

    run(play())
    assert given >= 2 * 5, "when each is planned, and before each is finished"
