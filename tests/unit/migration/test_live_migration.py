"""A topic moves while its writers work. A migrator may die after any step, and another goes on or back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from structlog.testing import capture_logs
from tests.unit.migration.live_harness import World

from dray.migration.found import MigrationRefused
from dray.migration.live import request_switch
from dray.migration.live_migration import FAILPOINTS
from dray.migration.record import MigrationRecord, MigrationState
from dray.simulation.kernel.loop import run

BACK = ("back", "forbidden", "lifted", "fence forgotten")
FORWARD = tuple(step for step in FAILPOINTS if step not in BACK)


def played(play: Callable[[], Awaitable[World]]) -> World:
    async def whole() -> World:
        world = await play()
        await world.close()
        return world

    return run(whole())


def moved(record: MigrationRecord) -> bool:
    return record.state is MigrationState.MOVED


def is_back(record: MigrationRecord) -> bool:
    return record.state is MigrationState.MIRRORING and record.undo is None and record.why is not None


@pytest.mark.parametrize("seed", range(3))
def test_a_topic_moves_while_its_writers_work(seed: int) -> None:
    async def play() -> World:
        world = World(seed)
        await world.link()
        process = world.process()
        await process.turn()
        assert (await world.record()).state is MigrationState.MIRRORING
        await request_switch(world.migrations, "orders")
        await world.work(process, moved)
        return world

    world = played(play)
    assert world.faults() == []
    assert sorted(world.target.boundaries) == [0, 1]
    assert min(world.target.boundaries.values()) > 0
    assert world.source.is_up, "the fence stays"
    assert not world.groups
    assert set(world.seen) == set(FORWARD)


@pytest.mark.parametrize("step", FORWARD)
@pytest.mark.parametrize("seed", range(2))
def test_another_migrator_goes_on_after_any_step(step: str, seed: int) -> None:
    async def play() -> World:
        world = World(seed)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process(step), lambda _: False)
        await world.runtime.sleep(world.random.uniform(0, 3))
        await world.work(world.process(), moved)
        return world

    world = played(play)
    assert world.faults() == []
    assert sorted(world.target.boundaries) == [0, 1]


@pytest.mark.parametrize("step", ["", "fence noted", "fence up", *BACK])
@pytest.mark.parametrize("seed", range(2))
def test_a_switch_that_cannot_be_goes_back_whatever_dies(step: str, seed: int) -> None:
    async def play() -> World:
        world = World(seed, forgets=True)
        await world.link()
        await request_switch(world.migrations, "orders")
        if step:
            await world.die(world.process(step), lambda _: False)
        await world.work(world.process(), is_back)
        record = await world.record()
        assert "producers differ" in (record.why or "")
        return world

    world = played(play)
    assert world.faults() == []
    assert world.target.boundaries == {}
    assert not world.source.is_up
    assert world.lifted_with


@pytest.mark.parametrize(
    "step", ["fence noted", "fence up", "back", "forbidden", "lifted", "fence forgotten"]
)
def test_a_switch_is_withdrawn_before_a_decision(step: str) -> None:
    async def play() -> World:
        world = World(1, forgets=True)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process(step), lambda _: False)
        await world.process().withdraw()
        record = await world.record()
        assert record.state is MigrationState.MIRRORING
        assert record.undo is None
        record.to(MigrationState.ABORTING)
        return world

    world = played(play)
    assert world.faults() == []
    assert not world.source.is_up


@pytest.mark.parametrize("step", ["decided", "switched"])
def test_nothing_is_withdrawn_after_a_decision(step: str) -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process(step), lambda _: False)
        if step == "decided":
            with pytest.raises(
                MigrationRefused, match="partitions 0 are Dray's already, and there is no way back"
            ):
                await world.process().withdraw()
        else:
            await world.process().withdraw()  # it is not for this state, and changes nothing
        assert world.source.is_up
        await world.work(world.process(), moved)
        return world

    assert played(play).faults() == []


async def until_one_decides(world: World) -> asyncio.Task[None]:
    """A process that has seen that it may decide, and whose write is on its way."""
    world.decision_seconds = 3.0
    await world.link()
    await request_switch(world.migrations, "orders")
    decider = world.runtime.spawn(world.process().run(), "the one that decides")
    while not world.deciding:
        await world.runtime.sleep(0.01)
    return decider


@pytest.mark.parametrize("seed", range(2))
def test_a_decision_on_its_way_does_not_apply_once_the_switch_is_withdrawn(seed: int) -> None:
    """Else the writers that were let in again would write behind the boundary, at the source alone."""

    async def play() -> World:
        world = World(seed)
        decider = await until_one_decides(world)
        decider.cancel()
        await world.processes[0].stop()
        await world.process().withdraw()
        assert not world.source.is_up
        await world.runtime.sleep(5)
        assert world.target.boundaries == {}
        assert (await world.record()).state is MigrationState.MIRRORING
        return world

    assert played(play).faults() == []


@pytest.mark.parametrize("seed", range(2))
def test_a_decision_that_came_first_closes_the_way_back(seed: int) -> None:
    """One gives up and dies before it has lifted anything; the other with its decision on the way."""

    async def play() -> World:
        world = World(seed)
        decider = await until_one_decides(world)
        decider.cancel()
        await world.processes[0].stop()
        await world.die(world.process("back", give_up_seconds=0), lambda _: False)
        assert (await world.record()).state is MigrationState.MIRRORING
        assert world.target.boundaries == {}
        await world.runtime.sleep(3.1)
        assert list(world.target.boundaries) == [0]
        world.decision_seconds = 0.0
        await world.work(world.process(), moved)
        assert sorted(world.target.boundaries) == [0, 1]
        return world

    assert played(play).faults() == []


@pytest.mark.parametrize("seed", range(8))
def test_two_migrators_at_once_and_an_abort(seed: int) -> None:
    async def play() -> World:
        world = World(seed)
        world.decision_seconds = world.random.choice((0.0, 0.3))
        await world.link()
        await request_switch(world.migrations, "orders")
        runtime = world.runtime
        tasks = [runtime.spawn(world.process().run(), "migrator") for _ in range(2)]
        await runtime.sleep(world.random.uniform(0.3, 2.5))
        with suppress(MigrationRefused):
            await world.process().withdraw()
        await runtime.sleep(4)
        for task in tasks:
            task.cancel()
        return world

    assert played(play).faults() == []


def test_a_fence_that_could_not_be_seen_is_not_put_up() -> None:
    async def play() -> World:
        world = World(1)
        world.refuses_fence = True
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.work(world.process(), is_back)
        assert (await world.record()).why == "the source refuses what we write"
        return world

    world = played(play)
    assert world.seen == ["back"]
    assert not world.lifted_with


def test_a_partition_that_is_not_mirrored_is_not_switched() -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        process = world.process()
        await request_switch(world.migrations, "orders")
        world.stopped = {1: "the source has lost records"}
        await world.work(process, is_back)
        record = await world.record()
        assert record.stopped == world.stopped
        assert record.why == "partition 1 is not mirrored any more: the source has lost records"
        world.stopped = {}
        await world.work(process, lambda current: current.stopped is None)
        return world

    world = played(play)
    assert world.faults() == []
    assert world.target.boundaries == {}
    assert not world.source.is_up


@pytest.mark.parametrize("works_on", [True, False])
def test_a_stopped_partition_is_tried_again_without_stopping_the_others(works_on: bool) -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await world.close()  # nobody writes: it takes some minutes
        world.stopped = {1: "the source has lost records"}
        world.is_mirror_running = works_on
        process = world.process()
        for _ in range(30):
            await process.turn()
            await world.runtime.sleep(10)
        return world

    world = played(play)
    assert 3 <= world.tried_again <= 5
    assert world.mirrors == (1 if works_on else 1 + world.tried_again)


def test_what_cannot_be_followed_is_said_now_and_then() -> None:
    async def play() -> World:
        world = World(2)
        world.groups_are_denied = True
        await world.link()
        process = world.process()
        with capture_logs() as logs:
            for _ in range(120):
                await process.turn()
                await world.runtime.sleep(0.5)
        assert len([each for each in logs if "not followed" in each["event"]]) == 2
        return world

    played(play)


def test_groups_that_cannot_be_followed_hold_up_no_switch_but_its_end() -> None:
    async def play() -> World:
        world = World(2)
        world.groups_are_denied = True
        await world.link()
        process = world.process()
        await process.turn()
        await request_switch(world.migrations, "orders")
        await world.work(process, lambda record: record.state is MigrationState.SWITCHED)
        for _ in range(60):
            await process.turn()
            await world.runtime.sleep(0.1)
        assert (await world.record()).state is MigrationState.SWITCHED, "groups may still be at the source"
        world.groups_are_denied = False
        await world.work(process, moved)
        return world

    assert played(play).faults() == []


def test_stragglers_are_named_and_go() -> None:
    async def play() -> World:
        world = World(3)
        await world.link()
        await request_switch(world.migrations, "orders")
        process = world.process()
        await world.work(process, lambda record: record.state is MigrationState.SWITCHED)
        world.stragglers = {1: 4}
        await world.work(process, lambda record: record.stragglers == {1: 4})
        assert process.seen.stragglers == 4
        await world.work(process, moved)
        assert (await world.record()).stragglers == {1: 4}
        return world

    assert played(play).faults() == []
