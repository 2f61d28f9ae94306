"""Appending and reading, one broker and two."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, read, values_in

from dray.log import Log
from dray.log.types import (
    Bounds,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    ReadRequest,
    StreamClosed,
    TimestampedOffset,
)
from dray.metadata import keys


async def test_what_is_appended_is_read_back_with_its_offsets(log: Log) -> None:
    [stream] = await log.create_streams(1)
    first = await append(log, stream, batch_bytes([b"a", b"b"]))
    second = await append(log, stream, batch_bytes([b"c"]))
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert await log.bounds(stream) == Bounds(0, 3)
    assert values_in(await read(log, stream, 0)) == [(0, b"a"), (1, b"b"), (2, b"c")]


async def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a", b"b"]))
    assert values_in(await read(log, stream, 1)) == [(0, b"a"), (1, b"b")]


async def test_another_broker_reads_it_from_the_objects(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    for number in range(10):
        await append(log, stream, batch_bytes([b"%d" % number] * 3))
    other = world.log()
    expected = [(number * 3 + place, b"%d" % number) for number in range(10) for place in range(3)]
    found: list[tuple[int, bytes]] = []
    while len(found) < 30:
        found += values_in(await read(other, stream, len(found)))
    assert found == expected


async def test_two_brokers_append_to_one_stream(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    other = world.log()
    brokers = [log, other]
    answers = await asyncio.gather(
        *[append(brokers[n % 2], stream, batch_bytes([b"%d" % n])) for n in range(40)]
    )
    assert sorted(answer.base_offset for answer in answers) == list(range(40))
    for broker in brokers:
        found: list[tuple[int, bytes]] = []
        while len(found) < 40:
            found += values_in(await read(broker, stream, len(found)))
        assert found == sorted((answer.base_offset, b"%d" % n) for n, answer in enumerate(answers))
    await other.stop()


async def test_offsets_outside_the_log_are_refused(log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    result = await read(log, stream, 2)
    assert isinstance(result.error, OffsetOutOfRange)
    assert (result.error.start, result.error.end) == (0, 1)
    assert (await read(log, stream, 1)).error is None


async def test_the_first_batch_is_returned_even_when_larger_than_the_limit(log: Log) -> None:
    streams = await log.create_streams(2)
    for stream in streams:
        await append(log, stream, batch_bytes([b"x" * 1000]))
        await append(log, stream, batch_bytes([b"y" * 1000]))
    requests = [ReadRequest(stream, 0, 10) for stream in streams]
    first, second = await log.fetch(requests, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=0)
    assert values_in(first) == [(0, b"x" * 1000)]
    assert values_in(second) == []


async def test_a_poll_wakes_on_an_append_of_this_broker_and_of_another(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    other = world.log()
    await append(other, stream, batch_bytes([b"a"]))
    for writer, offset in ((log, 1), (other, 2)):
        request = [ReadRequest(stream, offset, EVERYTHING)]
        polling = asyncio.ensure_future(
            log.fetch(request, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=60_000)
        )
        await asyncio.wait([polling], timeout=0.02)
        assert not polling.done()
        await append(writer, stream, batch_bytes([b"b"]))
        [result] = await asyncio.wait_for(polling, 10)
        assert values_in(result) == [(offset, b"b")]
    await other.stop()


async def test_a_poll_that_finds_nothing_answers_at_its_deadline(log: Log) -> None:
    [stream] = await log.create_streams(1)
    request = [ReadRequest(stream, 0, EVERYTHING)]
    [result] = await log.fetch(request, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=20)
    assert (result.buffers, result.high_watermark, result.error) == ([], 0, None)


async def test_idempotent_producers(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)

    async def send(broker: Log, sequence: int, count: int = 1, epoch: int = 0) -> int:
        data = batch_bytes([b"v"] * count, producer=(7, epoch, sequence))
        return (await append(broker, stream, data)).base_offset

    assert await send(log, 0, 3) == 0
    assert await send(log, 3) == 3
    assert await send(log, 0, 3) == 0  # a duplicate: its first answer again
    other = world.log()  # which has to fold the state from the index
    assert await send(other, 3) == 3
    assert await send(other, 4) == 4
    assert await send(log, 5) == 5  # whose cached state lags behind
    with pytest.raises(OutOfOrderSequence):
        await send(log, 9)
    for sequence in range(6, 12):
        await send(log, sequence)
    with pytest.raises(OutOfOrderSequence):
        await send(log, 3)  # too long ago to know what became of it
    with pytest.raises(OutOfOrderSequence):
        await send(log, 5, epoch=1)
    assert await send(log, 0, epoch=1) == 12
    with pytest.raises(ProducerFenced):
        await send(log, 12, epoch=0)
    assert await log.bounds(stream) == Bounds(0, 13)
    await other.stop()


async def test_time_lookup_with_times_out_of_order(log: Log) -> None:
    [stream] = await log.create_streams(1)
    for times in ([100, 300], [200, 250], [400], [150]):
        await append(log, stream, batch_bytes([b"v"] * len(times), timestamps=times))
    for asked, offset, time in ((0, 0, 100), (101, 1, 300), (300, 1, 300), (301, 4, 400)):
        assert await log.find_timestamp(stream, asked) == TimestampedOffset(offset, time)
    assert await log.find_timestamp(stream, 401) is None
    assert await log.find_max_timestamp(stream) == TimestampedOffset(4, 400)


async def test_deleting_records(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    for times in ([100], [500], [200], [300]):
        await append(log, stream, batch_bytes([b"v", b"w"], timestamps=times * 2))
    assert await log.delete_records(stream, 3) == 3
    assert await log.delete_records(stream, 1) == 3  # never back
    with pytest.raises(OffsetOutOfRange):
        await log.delete_records(stream, 9)
    assert isinstance((await read(log, stream, 2)).error, OffsetOutOfRange)
    assert values_in(await read(world.log(), stream, 3))[:2] == [(2, b"v"), (3, b"w")]
    assert await log.find_timestamp(stream, 0) == TimestampedOffset(3, 500)
    assert await log.delete_records(stream, 4) == 4
    assert await log.find_max_timestamp(stream) == TimestampedOffset(6, 300)
    assert await log.find_timestamp(stream, 400) is None
    assert await log.delete_records(stream, -1) == 8
    assert await log.bounds(stream) == Bounds(8, 8)
    assert (await append(log, stream, batch_bytes([b"z"]))).base_offset == 8


async def test_closed_streams_take_no_appends_from_any_broker(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    stale = world.log()
    await append(stale, stream, batch_bytes([b"a"]))
    await log.close_streams([stream])
    for broker in (log, stale, world.log()):
        with pytest.raises(StreamClosed):
            await append(broker, stream, batch_bytes([b"b"]))
    await log.sweep_streams([stream])
    with pytest.raises(StreamClosed):
        await append(stale, stream, batch_bytes([b"c"]))
    await stale.stop()


async def test_every_append_is_told_the_start_of_the_stream(world: World, log: Log) -> None:
    """Also by a broker that nobody has asked for the stream's bounds, and at no further read."""
    [stream] = await log.create_streams(1)
    for number in range(4):
        records = batch_bytes([b"%d" % number], producer=(1, 0, number))
        assert (await append(log, stream, records)).start_offset == 0
    assert await log.delete_records(stream, 3) == 3
    assert (await append(log, stream, batch_bytes([b"4"], producer=(1, 0, 4)))).start_offset == 3
    other = world.log()
    trap = world.store.trap(Fate.PASS, "get", keys.start(stream))
    assert (await append(other, stream, batch_bytes([b"5"], producer=(1, 0, 5)))).start_offset == 3
    assert trap.sprung.is_set()
    again = world.store.trap(Fate.PASS, "get", keys.start(stream))
    assert (await append(other, stream, batch_bytes([b"5"], producer=(1, 0, 5)))).start_offset == 3
    assert (await append(other, stream, batch_bytes([b"6"], producer=(1, 0, 6)))).start_offset == 3
    assert not again.sprung.is_set(), "read once, when the stream was met"
    await other.stop()
