"""Raising a stream's start: a job that whoever finds it carries on, and that only ever goes forward."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes, read, soon, values_in

from dray.log import Log
from dray.log.jobs.machine import JobState
from dray.log.service import _DELETIONS_AT_ONCE
from dray.log.types import Bounds, LogUnavailable, OffsetOutOfRange, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Limits


async def filled(log: Log, count: int) -> int:
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, batch_bytes([b"%d" % number], producer=(1, 0, number)))
    return stream


@pytest.mark.parametrize("part", ["/job", "/producers", "/start", "/offset-index/"])
@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_REPLY, Fate.COPY])
async def test_every_step_can_be_unclear_and_every_copy_late(world: World, part: str, fate: Fate) -> None:
    log = world.log()
    stream = await filled(log, 6)
    trap = world.store.trap(fate, "write", part)
    assert await log.delete_records(stream, 3) == 3
    assert trap.sprung.is_set()
    if fate is Fate.COPY:
        assert await log.delete_records(stream, 5) == 5
        trap.land()
    start = 5 if fate is Fate.COPY else 3
    reader = world.log()
    assert await reader.bounds(stream) == Bounds(start, 6)
    assert [offset for offset, _ in values_in(await read(reader, stream, start))] == list(range(start, 6))
    assert (await append(reader, stream, batch_bytes([b"6"], producer=(1, 0, 6)))).base_offset == 6
    assert await reader.delete_records(stream, -1) == 7, "what a late copy brought back is swept"
    await asyncio.sleep(1)
    assert world.keys(keys.offset_index(stream)) == []
    assert world.keys(keys.REFERENCES) == []


@pytest.mark.parametrize("part", ["/producers", "/start", "/offset-index/"])
async def test_a_job_that_was_left_is_carried_on_by_another(world: World, part: str) -> None:
    log = world.log()
    stream = await filled(log, 6)
    world.store.hold("write", part)  # for ever: the broker stands still
    stuck = await soon(log.delete_records(stream, 3))
    assert stuck.done() == (part == "/offset-index/"), "what is deleted behind the answer is not waited for"
    other = world.log()
    assert await other.delete_records(stream, 1) == 3, "first what was begun, and that goes further"
    await asyncio.sleep(1)
    assert (await other._streams.job(stream)).value.state is JobState.DONE
    stuck.cancel()


async def test_a_broker_that_wakes_up_in_the_middle_of_its_job_does_no_harm(world: World) -> None:
    log = world.log()
    stream = await filled(log, 6)
    held = world.store.hold("write", "/offset-index/")
    assert await log.delete_records(stream, 2) == 2
    other = world.log()
    assert await other.delete_records(stream, 4) == 4
    held.release()
    await asyncio.sleep(1)
    assert await other.bounds(stream) == Bounds(4, 6)
    assert len(values_in(await read(world.log(), stream, 4))) == 2


async def test_however_many_requests_there_are_a_stream_is_deleted_from_once_at_a_time(world: World) -> None:
    log = world.log()
    streams = [await filled(log, 3) for _ in range(_DELETIONS_AT_ONCE + 4)]
    at_work: Counter[int] = Counter()
    let_go, most, delete = asyncio.Event(), 0, log._retention.delete_behind

    async def held(stream: int) -> None:
        nonlocal most
        at_work[stream] += 1
        most = max(most, at_work.total())
        assert at_work[stream] == 1
        await let_go.wait()
        await delete(stream)
        at_work[stream] -= 1

    log._retention.delete_behind = held  # type: ignore[method-assign]
    for _ in range(3):
        for stream in streams:
            assert await log.delete_records(stream, 2) == 2
    await asyncio.sleep(1)
    assert most == _DELETIONS_AT_ONCE
    let_go.set()
    await asyncio.sleep(5)
    assert not log._deleting
    assert {len(world.keys(keys.offset_index(stream))) for stream in streams} == {0}, "the head has the last"


async def test_the_snapshot_is_past_what_goes(world: World) -> None:
    log = world.log()
    stream = await filled(log, 6)
    await log.delete_records(stream, 4)
    assert (await log._streams.snapshot(stream)).value.upto == 4
    for broker in (log, world.log()):
        for sequence in (3, 5):  # one that is gone, one that is there
            data = batch_bytes([b"%d" % sequence], producer=(1, 0, sequence))
            assert (await append(broker, stream, data)).base_offset == sequence


async def test_an_entry_that_a_late_commit_brings_back_is_swept(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"0"]))
    filing = world.store.trap(Fate.COPY, "write", "/offset-index/")  # by the commit of the next one
    for number in range(1, 4):
        await append(log, stream, batch_bytes([b"%d" % number]))
    await log.delete_records(stream, 2)
    assert len(world.keys(keys.offset_index(stream))) == 1
    filing.land()
    assert len(world.keys(keys.offset_index(stream))) == 2
    await log.delete_records(stream, 2)
    assert len(world.keys(keys.offset_index(stream))) == 1
    assert await world.log().bounds(stream) == Bounds(2, 4)


async def test_a_start_within_an_entry_keeps_the_entry(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    await asyncio.gather(*[append(log, stream, batch_bytes([b"%d" % n] * 2)) for n in range(3)])
    assert await log.delete_records(stream, 3) == 3
    reader = world.log()
    assert [offset for offset, _ in values_in(await read(reader, stream, 3))] == [2, 3, 4, 5]
    assert isinstance((await read(reader, stream, 2)).error, OffsetOutOfRange)


async def test_much_is_deleted_in_several_writes() -> None:
    world = World(limits=Limits(operations=20, value_bytes=1 << 20))
    log = world.log()
    stream = await filled(log, 50)
    assert await log.delete_records(stream, 49) == 49
    await asyncio.sleep(1)
    assert len(world.keys(keys.offset_index(stream))) <= 1
    assert len(world.keys(keys.REFERENCES)) == 1


async def test_what_cannot_be_deleted(log: Log, world: World) -> None:
    stream = await filled(log, 2)
    for before in (3, -2):
        with pytest.raises(OffsetOutOfRange):
            await log.delete_records(stream, before)
    broker = world.log()
    world.store.trap(Fate.REFUSE, "barrier")
    with pytest.raises(LogUnavailable):
        await broker.delete_records(stream, 1)
    await log.close_streams([stream])
    with pytest.raises(StreamClosed):
        await broker.delete_records(stream, 1)


async def test_deleting_from_behind_goes_by_the_real_end(log: Log, world: World) -> None:
    stream = await filled(log, 1)
    broker = world.log()
    world.store.fall_behind(stream % 2)
    await append(log, stream, batch_bytes([b"1"], producer=(1, 0, 1)))
    assert await broker.delete_records(stream, -1) == 2
