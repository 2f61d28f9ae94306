"""A topic moves while its writers work. A migrator may die after any step, and another goes on or back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import pytest
from structlog.testing import capture_logs
from tests.unit.migration.live_harness import World

from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.migration import FAILPOINTS, LiveMigration
from dray.migration.live.steps import go_back, request_switch
from dray.migration.record import ASSIGNING, TRANSACTIONS, MigrationRecord, MigrationState
from dray.migration.source.fences import FenceRefused
from dray_simulation.kernel.loop import run

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


async def becomes(world: World, wanted: Callable[[MigrationRecord], bool]) -> None:
    """By what migrators do that run."""
    for _ in range(600):
        if wanted(await world.record()):
            return
        await world.runtime.sleep(0.1)
    raise AssertionError(f"never: {await world.record()}, after {world.seen}")


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
        world.refuses_fence = FenceRefused("the source refuses what we write")
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.work(world.process(), is_back)
        assert (await world.record()).why == "the source refuses what we write"
        return world

    world = played(play)
    assert world.seen == ["back"]
    assert not world.lifted_with


def test_producers_of_transactions_are_looked_for_right_before_the_fence() -> None:
    """Whoever asked for the switch: `diskless.enable` looks for none, and one may have begun since."""

    async def play() -> World:
        world = World(1)
        world.writes_transactions = True
        await world.link()
        process = world.process()
        await request_switch(world.migrations, "orders")
        await world.work(process, is_back)
        assert (await world.record()).why == "payments write transactions to orders"
        assert world.seen == ["back"], "no fence was noted, none put up"
        await request_switch(world.migrations, "orders", allows=[TRANSACTIONS])
        await world.work(process, lambda found: found.state is MigrationState.SWITCHED)
        assert (await world.record()).allows == (TRANSACTIONS,)
        return world

    assert played(play).faults() == []


def test_what_a_switch_goes_over_is_of_that_switch_alone() -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders", allows=[ASSIGNING, TRANSACTIONS])
        asked = await world.record()
        assert asked.allows == (ASSIGNING, TRANSACTIONS)
        await go_back(world.migrations, "orders", asked, "not now")
        await request_switch(world.migrations, "orders")
        assert (await world.record()).allows is None
        return world

    played(play)


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


# --- a fence that comes up late


async def until_a_fence_is_sent(world: World, seconds: float) -> asyncio.Task[None]:
    """A process whose call is on its way to the source."""
    world.fence_seconds = seconds
    await world.link()
    await request_switch(world.migrations, "orders")
    process = world.process()
    task = world.runtime.spawn(process.run(), "migrator")
    while "fence noted" not in world.seen:
        await world.runtime.sleep(0.01)
    await world.runtime.sleep(0.3)
    assert not world.source.is_up
    return task


def test_a_fence_that_comes_up_after_its_switch_was_withdrawn_is_taken_back() -> None:
    """By the process that sent it, which hears when it is up."""

    async def play() -> World:
        world = World(1)
        migrator = await until_a_fence_is_sent(world, 1.0)
        world.processes[0]._fence_at = float("inf")  # it is not found by looking for it
        await world.process().withdraw()
        record = await world.record()
        assert (record.state, record.undo) == (MigrationState.MIRRORING, None)
        await world.runtime.sleep(3)
        migrator.cancel()
        return world

    world = played(play)
    assert world.faults() == []
    assert len(world.lifted_with) == 2


def test_a_fence_that_comes_up_after_its_migration_is_gone_is_taken_back() -> None:
    async def play() -> World:
        world = World(1)
        migrator = await until_a_fence_is_sent(world, 1.0)
        await world.process().withdraw()
        await world.migrations.forget("orders", await world.record())
        await world.runtime.sleep(3)
        migrator.cancel()
        return world

    world = played(play)
    assert world.last is None
    assert world.faults() == []
    assert len(world.lifted_with) == 2


@pytest.mark.parametrize("by", ["a migrator", "an abort"])
def test_a_fence_whose_process_was_killed_comes_up_late_and_is_found(by: str) -> None:
    async def play() -> World:
        world = World(1)
        migrator = await until_a_fence_is_sent(world, 1.0)
        kill(migrator)
        await world.process().withdraw()
        await world.runtime.sleep(2)
        assert world.source.is_up
        record = await world.record()
        assert (record.state, record.undo) == (MigrationState.MIRRORING, None)
        if by == "a migrator":
            await world.work(world.process(), lambda _: not world.source.is_up)
        else:
            await world.process().withdraw()
        await world.work(world.process(), lambda record: record.undo is None)
        return world

    assert played(play).faults() == []


def kill(migrator: asyncio.Task[None]) -> None:
    """At once, with whatever it waits for."""
    for task in [migrator, *asyncio.all_tasks()]:
        if task is migrator or task.get_name() in ("switch a topic", "watch a switch", "put a fence up"):
            task.cancel()


def test_a_fence_is_not_taken_back_when_another_switch_is_on() -> None:
    async def play() -> World:
        world = World(1)
        migrator = await until_a_fence_is_sent(world, 1.0)
        await world.process().withdraw()
        await request_switch(world.migrations, "orders")
        await world.runtime.sleep(0.5)
        world.fence_seconds = 0.0
        await becomes(world, moved)
        migrator.cancel()
        return world

    world = played(play)
    assert world.faults() == []
    assert len(world.lifted_with) == 1


# --- several migrators


def late_look(world: World, process: LiveMigration, until: Callable[[], bool]) -> None:
    """It stands still before it sees what was there before the fence."""
    genuine = process._live.before_fence

    async def late(kind: str) -> Mapping[str, str]:
        while not until():
            await world.runtime.sleep(0.01)
        return await genuine(kind)

    process._live.before_fence = late  # type: ignore[method-assign]


def test_what_was_before_the_fence_is_noted_by_the_first() -> None:
    """Who looks later may see the fence itself, and would leave it for good."""

    async def play() -> World:
        world = World(1, forgets=True)
        await world.link()
        await request_switch(world.migrations, "orders")
        slow, fast = world.process(), world.process()
        late_look(world, slow, lambda: world.source.is_up)
        tasks = [world.runtime.spawn(each.run(), "migrator") for each in (slow, fast)]
        await becomes(world, is_back)
        for task in tasks:
            task.cancel()
        return world

    assert played(play).faults() == []


def test_one_that_comes_late_does_not_send_back_who_has_the_fence_up() -> None:
    """It is refused by the very fence of the other."""

    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        slow, fast = world.process(), world.process()

        async def refused(kind: str) -> Mapping[str, str]:
            while not world.source.is_up:
                await world.runtime.sleep(0.01)
            raise FenceRefused(f"the source refuses what we write before there is a fence {kind}")

        slow._live.before_fence = refused  # type: ignore[method-assign]
        tasks = [world.runtime.spawn(each.run(), "migrator") for each in (slow, fast)]
        await becomes(world, moved)
        for task in tasks:
            task.cancel()
        return world

    world = played(play)
    assert world.faults() == []
    assert not world.lifted_with


def test_what_was_seen_for_one_switch_is_not_noted_for_the_next() -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        slow = world.process()
        go_on = asyncio.Event()
        late_look(world, slow, go_on.is_set)
        turn = world.runtime.spawn(slow.turn(), "a turn")
        await world.runtime.sleep(0.1)
        await world.process().withdraw()
        await request_switch(world.migrations, "orders")
        go_on.set()
        await turn
        assert not world.source.is_up
        assert (await world.record()).undo is None
        assert "fence noted" not in world.seen
        await world.work(world.process(), moved)
        return world

    assert played(play).faults() == []


# --- a switch that does not begin, or does not end


@pytest.mark.parametrize(
    "refusal",
    [
        RequestFailed("topic orders has 3 partitions at the source", ErrorCode.INVALID_PARTITIONS),
        RequestFailed("cannot list ACLs", ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        RequestFailed("cannot look at topic orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        AuthenticationFailed("the password is wrong"),
    ],
    ids=["another topic", "a right is missing", "no topic", "no login"],
)
def test_a_switch_that_cannot_begin_goes_back_and_says_why(refusal: Exception) -> None:
    async def play() -> World:
        world = World(1)
        world.refuses_fence = refusal
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.process().turn()
        record = await world.record()
        assert is_back(record)
        assert record.why == str(refusal)
        return world

    assert played(play).faults() == []


@pytest.mark.parametrize(
    "trouble",
    [RequestFailed("orders-0 has no leader", ErrorCode.LEADER_NOT_AVAILABLE), ClientError("out of reach")],
    ids=["no leader", "no source"],
)
def test_a_switch_that_does_not_begin_gives_up(trouble: Exception) -> None:
    async def play() -> World:
        world = World(1)
        world.refuses_fence = trouble
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.runtime.sleep(20)  # no migrator: that does not count
        for _ in range(40):
            with suppress(RequestFailed, ClientError):
                await world.process().turn()
            record = await world.record()
            if is_back(record):
                break
            await world.runtime.sleep(1)
        assert is_back(record)
        assert record.why == str(trouble)
        assert record.began_ms is not None
        assert 4_000 < world.runtime.wall_ms() - record.began_ms < 8_000
        return world

    assert played(play).faults() == []


def test_a_switch_gives_up_in_time_whoever_goes_on_with_it() -> None:
    """One partition has no leader, so that no successor comes to where a switch counts its time."""

    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process("fence up"), lambda _: False)

        async def learn() -> None:
            raise RequestFailed("orders-0 has no leader", ErrorCode.LEADER_NOT_AVAILABLE)

        world.source.learn = learn  # type: ignore[method-assign]
        for _ in range(40):
            with suppress(RequestFailed):
                await world.process().turn()
            record = await world.record()
            if is_back(record):
                break
            await world.runtime.sleep(1)
        assert is_back(record)
        assert record.why == "orders-0 has no leader"
        return world

    world = played(play)
    assert world.faults() == []
    assert world.lifted_with


def test_a_successor_has_no_more_time_than_is_left() -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process("fence up"), lambda _: False)

        async def nowhere(partition: int) -> int:
            return 0

        world.target.end = nowhere  # type: ignore[method-assign]
        await world.runtime.sleep(4)
        began = world.runtime.monotonic()
        await world.work(world.process(), is_back)
        assert world.runtime.monotonic() - began < 3
        assert "was not ready within 5 s" in ((await world.record()).why or "")
        return world

    assert played(play).faults() == []


def test_a_switch_without_a_way_back_has_all_the_time_it_needs() -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process("decided"), lambda _: False)
        await world.runtime.sleep(60)
        await world.work(world.process(), moved)
        return world

    assert played(play).faults() == []


@pytest.mark.parametrize("by", ["a migrator", "an abort"])
def test_a_topic_that_is_deleted_here_while_it_is_switched(by: str) -> None:
    async def play() -> World:
        world = World(1)
        await world.link()
        await request_switch(world.migrations, "orders")
        await world.die(world.process("fence up"), lambda _: False)
        world.target.is_deleted = True
        if by == "a migrator":
            await world.work(world.process(), is_back)
            assert (await world.record()).why == "the topic was deleted here"
        else:
            await world.process().withdraw()
        (await world.record()).to(MigrationState.ABORTING)
        return world

    world = played(play)
    assert world.faults() == []
    assert not world.source.is_up
