"""A coordinator that was away and does not know it, step by step: real groups, real sessions, and its clocks.

It is stopped for a minute, and another takes its group over. What it then says first is what counts: no task
of its own has had time to find anything out.
"""

from __future__ import annotations

from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import GROUP, BrokerUnderTest, World, passing

from dray.broker.groups.coordinator.contract import GroupUnavailable
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import true_time

AWAY = 60.0

LATE = "a commit came late"
WAYS = ("it was suspended", "the host paused it", "all clocks stood still", LATE)


async def _away(broker: BrokerUnderTest, way: str) -> None:
    clock = broker.runtime.clock
    if way == "it was suspended":
        clock.suspend(true_time(), AWAY)
    else:
        clock.stand_still(true_time(), AWAY, wall_too=way == "all clocks stood still")
    broker.store.down = True  # no sign of life leaves it
    # It stands still: its own timers do not come either.
    for group in broker.groups.active():
        group.storage.lease._session._watchdog.cancel()  # type: ignore[attr-defined]
        group.storage.lease._session._task.cancel()  # type: ignore[attr-defined]
    await passing(AWAY)
    broker.store.down = False


async def _scenario(way: str) -> None:
    world = World()
    world.topics.make("a", 4)
    first, heir = await world.broker(1), await world.broker(2)
    for broker in (first, heir):
        broker.store._clock = true_time  # the server's
    for partition in range(2):
        await _commit(first, 10, partition)
    await _away(first, way)
    for partition in range(3):
        if await heir.committed(partition=partition) != (10 if partition < 2 else None):
            raise Violation("the heir does not know what was committed")
    await _commit(heir, 15, 0)
    if way != "all clocks stood still":
        # Where no clock tells it, it may answer from memory until its next sign of life: see 0062.
        await _check_fetch(first, 0, 15)
    for partition in range(1, 3):  # one that has an offset, and one that has none
        await _check_commit(first, heir, partition)
    if not world.records(keys.GROUP_FENCES):
        raise Violation("there is no fence")


async def _commit(broker: BrokerUnderTest, offset: int, partition: int) -> None:
    if await broker.commit(offset, partition=partition) is not ErrorCode.NONE:
        raise Violation(f"{offset} was not committed")


async def _check_fetch(broker: BrokerUnderTest, partition: int, newest: int) -> None:
    try:
        found = await broker.committed(partition=partition)
    except GroupUnavailable:
        return
    if found != newest:
        raise Violation(f"{GROUP}: {found} is fetched, though {newest} was acknowledged before")


async def _check_commit(broker: BrokerUnderTest, heir: BrokerUnderTest, partition: int) -> None:
    try:
        answer = await broker.commit(20, partition=partition)
    except GroupUnavailable:
        return
    if answer is ErrorCode.NONE and await heir.committed(partition=partition) != 20:
        raise Violation("a commit was acknowledged, and the coordinator in charge does not know it")


async def _late_commit() -> None:
    """A commit whose reply was lost arrives after newer ones were acknowledged; then another takes over."""
    world = World()
    world.topics.make("a", 4)
    first, heir = await world.broker(1), await world.broker(2)
    await _commit(first, 10, 0)
    first.store.trap(Fate.LATE, "write", keys.group_offsets(GROUP))
    try:
        await first.commit(11)
    except GroupUnavailable:
        await _commit(first, 12, 0)
    first.store.land()
    await first.stop()
    await _check_fetch(heir, 0, 12)


def run_schedule(way: str) -> None:
    run(_late_commit() if way == LATE else _scenario(way))
