"""Parts of a source's log that are uploaded ahead of the commit before theirs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.services.attached_log import AttachedLog
from tests.simulation.scripted import Fate
from tests.unit.migration.mirror.mirror_harness import (
    MirrorWorld,
    Producer,
    SourceLog,
    collect,
    mirror,
    mirror_all,
    read_on,
    written,
)

from dray.log.types import LogUnavailable
from dray.migration.mirror.mirroring import (
    MirroredBatches,
    MirroredPlace,
    MirroredProducer,
    MirrorLost,
    MirrorPlan,
)


@pytest.fixture
def world() -> MirrorWorld:
    return MirrorWorld()


async def planned(
    log: AttachedLog,
    stream: int,
    source: SourceLog,
    start: int,
    most: int = 1,
    *,
    behind: MirrorPlan | None = None,
) -> MirrorPlan:
    data, aborted = source.answer(start, most)
    tail = None if behind is None else behind.tail(stream)
    return await log.mirror.plan(
        [MirroredBatches(stream, data, aborted, MirroredPlace(start, None, 0), tail)]
    )


async def test_objects_are_uploaded_ahead_and_committed_in_order(world: MirrorWorld) -> None:
    log, source = world.log(), written(3)
    stream = await world.classic(log)
    plans = [await planned(log, stream, source, 3 * number) for number in range(3)]
    for plan in reversed(plans):
        await log.mirror.upload(plan)
    assert len(world.bucket.objects) == 3
    assert all(path.endswith(".batches") for path in world.bucket.objects), "they are no WAL objects"
    assert (await log.bounds(stream)).end == 0
    for number, plan in enumerate(plans, 1):
        assert await log.mirror.commit_plan(plan) == {stream: MirroredPlace(3 * number, 0, 0)}
    assert await read_on(world.log(), stream, 0, 9) == source.served()
    await collect(world, log)
    assert world.keys("/dray/v1/wal/staging/") == []
    assert len(world.bucket.objects) == 3


async def test_nothing_is_committed_before_what_it_was_planned_behind(world: MirrorWorld) -> None:
    log, source = world.log(), written(2)
    stream = await world.classic(log)
    first, second = [await planned(log, stream, source, 3 * number) for number in range(2)]
    await log.mirror.upload(first)
    await log.mirror.upload(second)
    assert isinstance((await log.mirror.commit_plan(second))[stream], MirrorLost)
    assert (await log.bounds(stream)).end == 0
    assert isinstance((await log.mirror.commit_plan(first))[stream], MirrorLost), "all is read again"
    await mirror_all(log, stream, source)
    await collect(world, log)
    assert len(world.bucket.objects) == 1
    assert await read_on(world.log(), stream, 0, 6) == source.served()


async def test_what_was_planned_behind_a_part_that_failed_never_follows_another(world: MirrorWorld) -> None:
    """The source had an unclean election meanwhile: what is read again is another history."""
    log, source, other = world.log(), written(2), SourceLog()
    stream = await world.classic(log)
    first, second = [await planned(log, stream, source, 3 * number) for number in range(2)]
    world.objects.trap(Fate.REFUSE, kind="put")
    await log.mirror.upload(first)
    await log.mirror.upload(second)
    assert isinstance((await log.mirror.commit_plan(first))[stream], LogUnavailable)
    other.append([b"another"] * 3)
    await mirror(log, stream, other)
    assert isinstance((await log.mirror.commit_plan(second))[stream], MirrorLost)
    assert await read_on(world.log(), stream, 0, 3) == other.served()
    assert (await log.bounds(stream)).end == 3
    await collect(world, log)
    assert len(world.bucket.objects) == 1


@pytest.mark.parametrize("by_another_process", [True, False])
async def test_what_was_read_behind_a_part_that_failed_is_not_planned(
    world: MirrorWorld, by_another_process: bool
) -> None:
    """Though the log reaches to its first offset by then: with another history of the source."""
    log, source, other = world.log(), written(2), SourceLog()
    stream = await world.classic(log)
    first = await planned(log, stream, source, 0)
    world.objects.trap(Fate.REFUSE, kind="put")
    await log.mirror.upload(first)
    assert isinstance((await log.mirror.commit_plan(first))[stream], LogUnavailable)
    other.append([b"another"] * 3)
    await mirror(world.log() if by_another_process else log, stream, other)
    second = await planned(log, stream, source, 3, behind=first)
    assert isinstance(second.found[stream], MirrorLost)
    third = await planned(log, stream, source, 3, behind=second)
    assert isinstance(third.found[stream], MirrorLost)
    assert (await log.bounds(stream)).end == 3


async def test_what_was_read_behind_a_part_that_fails_meanwhile_is_not_planned(world: MirrorWorld) -> None:
    """While its batches are looked at, in a thread, the part before fails and another takes its place."""
    log, source, other = world.log(), written(1), SourceLog()
    source.append([b"x" * 100_000] * 3)
    other.append([b"another"] * 3)
    stream = await world.classic(log)
    first = await planned(log, stream, source, 0)
    looked_at, go_on = asyncio.Event(), asyncio.Event()
    in_thread = log.mirror._runtime.in_thread

    async def slowly(work: Callable[..., object], *arguments: object) -> object:
        looked_at.set()
        await go_on.wait()
        return await in_thread(work, *arguments)

    log.mirror._runtime.in_thread = slowly  # type: ignore[method-assign,assignment]
    second = asyncio.create_task(planned(log, stream, source, 3, behind=first))
    await looked_at.wait()
    world.objects.trap(Fate.REFUSE, kind="put")
    await log.mirror.upload(first)
    instead = await planned(log, stream, other, 0)
    go_on.set()
    assert isinstance((await second).found[stream], MirrorLost)
    assert isinstance(instead.found[stream], MirroredPlace)


async def test_what_was_read_behind_a_part_follows_it_also_once_that_is_committed(world: MirrorWorld) -> None:
    log, source = world.log(), written(3)
    stream = await world.classic(log)
    first = await planned(log, stream, source, 0)
    second = await planned(log, stream, source, 3, behind=first)
    for plan in (first, second):
        await log.mirror.upload(plan)
        assert isinstance((await log.mirror.commit_plan(plan))[stream], MirroredPlace)
    third = await planned(log, stream, source, 6, behind=second)
    await log.mirror.upload(third)
    assert await log.mirror.commit_plan(third) == {stream: MirroredPlace(9, 0, 0)}
    assert isinstance((await planned(log, stream, source, 6, behind=third)).found[stream], MirrorLost)


async def test_a_plan_that_is_read_again_leaves_the_first_one_behind(world: MirrorWorld) -> None:
    log, source = world.log(), written(2)
    stream = await world.classic(log)
    lost = await planned(log, stream, source, 0)
    again = await planned(log, stream, source, 0, 2)
    for plan in (lost, again):
        await log.mirror.upload(plan)
    assert isinstance((await log.mirror.commit_plan(lost))[stream], MirrorLost)
    await mirror_all(log, stream, source)
    assert await read_on(world.log(), stream, 0, 6) == source.served()


async def test_producers_are_folded_over_what_is_on_its_way(world: MirrorWorld) -> None:
    """And forks of forks do not become a chain without end."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    for number in range(40):
        source.append([b"x"], Producer(number % 3, 0, number // 3))
    waiting: list[MirrorPlan] = []
    for number in range(40):
        waiting.append(await planned(log, stream, source, number))
        await log.mirror.upload(waiting[-1])
        if len(waiting) > 2:
            await log.mirror.commit_plan(waiting.pop(0), more_follows=True)
        state = log.mirror._states.get(stream)
        assert state is not None
        depth, states = 0, state.planned_producers
        while states._base is not None:
            depth, states = depth + 1, states._base
        assert depth <= 3
    for plan in waiting:
        assert isinstance((await log.mirror.commit_plan(plan))[stream], MirroredPlace)
    expected = {MirroredProducer(0, 0, 13), MirroredProducer(1, 0, 12), MirroredProducer(2, 0, 12)}
    assert await log.mirror.producers(stream) == expected
    assert await world.log().mirror.producers(stream) == expected
    remembered = {
        each: entry.batches for each, entry in (await world.streams().snapshot(stream)).value.states.items()
    }
    assert [batch.base_offset for batch in remembered[0]] == [27, 30, 33, 36, 39]
