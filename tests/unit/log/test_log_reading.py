"""Reading back from objects: segments, what is damaged, what is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulation.scripted import Fate, Lie
from tests.unit.log.harness import (
    EVERYTHING,
    World,
    append,
    batch_bytes,
    read,
    read_patiently,
    soon,
    values_in,
)

from dray.kafka.records import restore
from dray.kafka.records.header import LEADER_EPOCH
from dray.log import Log
from dray.log.entries import BatchReference, IndexEntry, pack_batches
from dray.log.read import segments
from dray.log.read.doubts import InDoubt
from dray.log.read.segments import EntryLayout
from dray.log.types import LogUnavailable, ObjectCorrupt, OffsetOutOfRange, ReadRequest
from dray.objects.contract import OwnBuffer


def layout_of(lengths: list[int], counts: list[int], gaps: list[int]) -> EntryLayout:
    position, batches = 97, []
    for length, count, gap in zip(lengths, counts, gaps, strict=True):
        position += gap  # a batch that was refused lies in the object too
        batches.append(BatchReference(position, length, count, 0, 0, 0, -1, -1, -1))
        position += length
    end = 1000 + sum(counts)
    return EntryLayout(IndexEntry(1000, end, 0, 0, 0, 0, 0, 0, UUID(int=1), "path", pack_batches(batches)))


batches = st.tuples(st.integers(61, 700_000), st.integers(1, 5), st.sampled_from((4, 4, 4, 300_000)))


@given(st.lists(batches, min_size=1, max_size=40))
def test_segments_cut_an_entry_in_one_fixed_way(plan: list[tuple[int, int, int]]) -> None:
    lengths, counts, gaps = ([row[column] for row in plan] for column in range(3))
    layout = layout_of(lengths, counts, gaps)
    place = 0
    for number, segment in enumerate(layout.segments):
        assert segment.first == place < segment.end, "every batch is in one segment, in order"
        assert segment.position == layout.positions[segment.first]
        last = segment.end - 1
        assert segment.position + segment.length == layout.positions[last] + layout.lengths[last]
        assert segment.length >= segments.SEGMENT_BYTES or number == len(layout.segments) - 1
        for inside in range(segment.first, segment.end):
            assert layout.segment_of(inside) == number
        place = segment.end
    assert place == len(plan)
    for number, start in enumerate(layout.starts):
        for offset in range(start, start + counts[number]):
            assert layout.place_of(offset) == number


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 200)


async def fill(log: Log, count: int, size: int = 50) -> int:
    """A stream whose one object holds so many batches."""
    [stream] = await log.create_streams(1)
    await asyncio.gather(
        *[append(log, stream, batch_bytes([b"%d" % number * size])) for number in range(count)]
    )
    return stream


async def fill_evenly(log: Log, count: int) -> int:
    """The same, of 170 bytes each: with small segments two are one."""
    [stream] = await log.create_streams(1)
    await asyncio.gather(*[append(log, stream, batch_bytes([b"v" * 100])) for _ in range(count)])
    return stream


async def test_consumers_of_a_stream_share_what_is_read(log: Log, world: World, small_segments: None) -> None:
    stream = await fill(log, 10)
    reader = world.log(tail_cache_bytes=0)
    for offset in (0, 3, 7, 0, 9):
        assert values_in(await read(reader, stream, offset))[0][0] == offset
        await asyncio.sleep(1)  # what was read ahead arrives
    ranges = world.objects.ranges_read
    assert len(ranges) == len(set(ranges)), "nothing is read twice"
    assert all(length < 600 for _, _, length in ranges)


async def test_two_readers_at_once_read_once(log: Log, world: World) -> None:
    stream = await fill(log, 3)
    reader = world.log(tail_cache_bytes=0)
    held = world.objects.hold("get")
    first, second = await soon(read(reader, stream, 0)), await soon(read(reader, stream, 1))
    await held.reached()
    first.cancel()  # a consumer that goes away does not take the bytes from the other
    held.release()
    assert [offset for offset, _ in values_in(await second)] == [1, 2]
    assert len(world.objects.ranges_read) == 1


async def test_two_answers_are_read_ahead(log: Log, world: World, small_segments: None) -> None:
    """So that the second is read while the client takes the first apart."""
    stream = await fill_evenly(log, 12)
    reader = world.log(tail_cache_bytes=0)
    for offset, segments_read in ((0, 3), (2, 4), (4, 5), (6, 6), (8, 6), (10, 6)):
        result = await read(reader, stream, offset, max_bytes=400)
        assert [offset for offset, _ in values_in(result)] == [offset, offset + 1], "a segment"
        await asyncio.sleep(1)
        assert len(world.objects.ranges_read) == segments_read


async def test_who_takes_many_segments_has_as_many_read_ahead(
    log: Log, world: World, small_segments: None
) -> None:
    stream = await fill_evenly(log, 40)
    reader = world.log(tail_cache_bytes=0)
    result = await read(reader, stream, 0, max_bytes=6 * 170)
    assert [offset for offset, _ in values_in(result)] == list(range(6)), "three segments"
    await asyncio.sleep(1)
    assert len(world.objects.ranges_read) == 9


async def test_who_takes_many_entries_has_as_many_read_ahead(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    for number in range(8):  # one after another: an entry each
        await append(log, stream, batch_bytes([b"%d" % number * 100]))
    reader = world.log(tail_cache_bytes=0)
    assert len(values_in(await read(reader, stream, 0, max_bytes=400))) == 2
    await asyncio.sleep(1)
    assert len(world.objects.ranges_read) == 6
    assert [offset for offset, _ in values_in(await read(reader, stream, 2, max_bytes=400))] == [2, 3]
    await asyncio.sleep(1)
    assert len(world.objects.ranges_read) == 8


async def test_what_is_read_is_checked_once_for_all_consumers(
    log: Log, world: World, small_segments: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await fill_evenly(log, 16)
    reader = world.log(tail_cache_bytes=0)
    checked = []

    def counted(buffer: bytearray, *places: Any) -> int:
        checked.append(len(buffer))
        return restore(buffer, *places)

    monkeypatch.setattr(segments, "restore", counted)
    for _ in range(3):
        for offset in range(0, 16, 2):
            assert (await read(reader, stream, offset, max_bytes=400)).size
    assert len(checked) == 8


@pytest.mark.parametrize("together", [False, True])
async def test_the_second_answer_ahead_pushes_out_none_that_was_read_ahead(
    log: Log, world: World, small_segments: None, together: bool
) -> None:
    streams = [await fill_evenly(log, 16) for _ in range(3)]
    reader = world.log(tail_cache_bytes=0, segment_cache_bytes=5 * 350)
    for offset in range(0, 16, 2):
        requests = [ReadRequest(stream, offset, 400) for stream in streams]
        for some in [requests] if together else [[request] for request in requests]:
            found = await reader.fetch(some, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=0)
            assert [len(values_in(result)) for result in found] == [2] * len(some)
            await asyncio.sleep(1)
    ranges = world.objects.ranges_read
    assert len(ranges) == len(set(ranges)) == 3 * 8, "nothing is read twice"


async def test_streams_side_by_side_in_an_object_are_read_in_one_call(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = await neighbours(log, 3)
    reader = world.log(tail_cache_bytes=0)
    calls = []
    get_ranges = world.objects.get_ranges

    async def counted(path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        calls.append(path)
        return await get_ranges(path, ranges)

    monkeypatch.setattr(world.objects, "get_ranges", counted)
    found = await reader.fetch(
        [ReadRequest(stream, 0, 1000) for stream in streams], min_bytes=1, max_bytes=10_000, max_wait_ms=0
    )
    assert [len(values_in(result)) for result in found] == [1, 1, 1]
    assert len(world.objects.ranges_read) == 3
    assert len(calls) == 1


async def test_a_damaged_neighbour_does_not_spoil_the_others(log: Log, world: World) -> None:
    streams = await neighbours(log, 3)
    [path] = world.bucket.objects
    reader = world.log(tail_cache_bytes=0)
    [(_, damaged)] = (await reader._reader.find(streams[1], 0)).batches()
    world.corrupt(path, damaged.position + damaged.length - 1)
    requests = [ReadRequest(stream, 0, 1000) for stream in streams]
    found = await reader.fetch(requests, min_bytes=1, max_bytes=10_000, max_wait_ms=0)
    assert [type(result.error) for result in found] == [type(None), InDoubt, type(None)]


async def neighbours(log: Log, count: int) -> list[int]:
    """Streams of one domain, each with a batch in the same object."""
    every = await log.create_streams(count * log._domains)
    streams = [stream for stream in every if stream % log._domains == 0]
    await asyncio.gather(*[append(log, stream, batch_bytes([b"x" * 100])) for stream in streams])
    return streams


async def test_a_doubted_neighbour_is_read_by_itself_in_its_turn(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together with others it would be asked for without a pause."""
    bad, good = await neighbours(log, 2)
    reader = world.log(tail_cache_bytes=0)
    world.objects.lies += [Lie.FLIP] * 3
    assert isinstance((await read(reader, bad, 0)).error, InDoubt)
    calls = []
    get_ranges = world.objects.get_ranges

    async def counted(path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        calls.append((len(ranges), world.runtime.monotonic()))
        return await get_ranges(path, ranges)

    monkeypatch.setattr(world.objects, "get_ranges", counted)
    both = [ReadRequest(bad, 0, 1000), ReadRequest(good, 0, 1000)]
    await reader.fetch(both, min_bytes=1, max_bytes=10_000, max_wait_ms=500)
    await asyncio.sleep(5)
    [(alone, at), (doubted, later)] = calls
    assert (alone, doubted) == (1, 1)
    assert at < later


async def test_the_epoch_of_a_stream_that_was_dropped_from_memory_is_not_guessed(
    log: Log, world: World
) -> None:
    """A stream that began elsewhere has another than most, and a layout in memory keeps what it was told."""
    [stream] = await neighbours(log, 1)
    reader = world.log(tail_cache_bytes=0)._reader
    await reader.refresh(stream)
    assert reader.leader_epoch(stream) == LEADER_EPOCH
    reader.forget(stream)
    with pytest.raises(LogUnavailable, match="dropped from memory"):
        reader.leader_epoch(stream)


async def test_what_is_dropped_while_an_entry_is_looked_for_keeps_its_epoch(
    log: Log, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    [stream] = await neighbours(log, 1)
    reader = world.log(tail_cache_bytes=0)._reader
    await reader.refresh(stream)
    reader.forget_entries(stream)
    find = reader.find

    async def found(*arguments: Any) -> IndexEntry:
        entry = await find(*arguments)
        reader.forget(stream)
        return entry

    monkeypatch.setattr(reader, "find", found)
    plan = await reader.plan(ReadRequest(stream, 0, 1000), 1000, at_least_one=True)
    assert len(await plan.read()) > 0


async def test_the_segment_cache_is_bounded(log: Log, world: World, small_segments: None) -> None:
    stream = await fill(log, 10)
    reader = world.log(tail_cache_bytes=0, segment_cache_bytes=300)
    for _ in range(2):
        for offset in range(10):
            values_in(await read(reader, stream, offset, max_bytes=1))
            await asyncio.sleep(1)
    cache = reader._reader.segments
    held = {
        id(segment.data.obj): memoryview(segment.data.obj).nbytes
        for block in cache._kept
        for segment in block.segments
        if segment.data is not None
    }
    assert 0 < cache._size == sum(held.values()) <= 300
    assert len(world.objects.ranges_read) > 6, "what was dropped is read again"


# --- damage


@pytest.mark.parametrize("target", ["length", "magic", "crc", "attributes", "records", "last byte"])
async def test_a_damaged_batch_is_named_and_never_served(log: Log, world: World, target: str) -> None:
    stream = await fill(log, 2)
    [path] = world.bucket.objects
    reader = world.log()
    entry = await reader._reader.find(stream, 0)
    _, (_, second) = entry.batches()
    place = {"length": 8, "magic": 16, "crc": 17, "attributes": 22, "records": 62}.get(
        target, second.length - 1
    )
    world.corrupt(path, second.position + place)
    result = await read_patiently(reader, stream, 1)
    assert isinstance(result.error, ObjectCorrupt)
    assert path in str(result.error)
    assert not result.buffers
    assert (result.high_watermark, result.start_offset) == (2, 0)


async def test_every_byte_of_a_batch_is_checked_or_patched(log: Log, world: World) -> None:
    stream = await fill(log, 1, size=3)
    [path] = world.bucket.objects
    entry = await log._reader.find(stream, 0)
    [(_, batch)] = entry.batches()
    good = world.bucket.objects[path].data
    for place in range(batch.length):
        world.corrupt(path, batch.position + place)
        result = await read_patiently(world.log(), stream, 0)
        if result.error is None:
            assert values_in(result) == [(0, b"000")], f"byte {place} is served as it is"
        else:
            assert isinstance(result.error, ObjectCorrupt)
        world.bucket.put(path, good, 0)


async def test_an_object_cut_short_is_named(log: Log, world: World) -> None:
    stream = await fill(log, 2)
    [path] = world.bucket.objects
    world.bucket.put(path, world.bucket.objects[path].data[:-100], 0)
    result = await read_patiently(world.log(), stream, 0)
    assert isinstance(result.error, ObjectCorrupt)
    assert path in str(result.error)


async def test_an_object_that_vanished_is_not_out_of_range(log: Log, world: World) -> None:
    """Nobody raised the start: this is a loss, and must be called one."""
    stream = await fill(log, 2)
    [path] = world.bucket.objects
    world.bucket.delete(path)
    result = await read_patiently(world.log(), stream, 0)
    assert isinstance(result.error, ObjectCorrupt)


async def test_a_store_that_does_not_answer_is_no_damage(log: Log, world: World) -> None:
    stream = await fill(log, 2)
    reader = world.log()
    world.objects.trap(Fate.REFUSE, "get")
    assert isinstance((await read(reader, stream, 0)).error, LogUnavailable)
    assert len(values_in(await read(reader, stream, 0))) == 2


async def test_what_adjoins_is_served_up_to_what_is_gone(log: Log, world: World) -> None:
    """A cached index, and an object in the middle that expired: the next read says so."""
    [stream] = await log.create_streams(1)
    for number in range(4):
        await append(log, stream, batch_bytes([b"%d" % number]))
    reader = world.log(tail_cache_bytes=0, segment_cache_bytes=0)
    assert len(values_in(await read(reader, stream, 0))) == 4
    entry = await reader._reader.find(stream, 2)
    world.bucket.delete(entry.path)
    assert [offset for offset, _ in values_in(await read(reader, stream, 0))] == [0, 1]


async def test_what_expired_under_a_reader_is_out_of_range(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    for number in range(4):
        await append(log, stream, batch_bytes([b"%d" % number]))
    reader = world.log(tail_cache_bytes=0, segment_cache_bytes=0)
    assert len(values_in(await read(reader, stream, 0))) == 4
    paths = [(await reader._reader.find(stream, offset)).path for offset in (0, 1)]
    await log.delete_records(stream, 2)
    for path in paths:
        world.bucket.delete(path)
    result = await read(reader, stream, 0)
    assert isinstance(result.error, OffsetOutOfRange)
    assert (result.error.start, result.error.end) == (2, 4)


# --- limits


async def test_limits_count_over_all_streams_and_the_first_batch_is_free(log: Log) -> None:
    streams = await log.create_streams(2)
    size = len(batch_bytes([b"x" * 100]))
    for stream in streams:
        for _ in range(3):
            await append(log, stream, batch_bytes([b"x" * 100]))

    async def counts(per_stream: int, in_all: int, offset: int = 0) -> list[int]:
        requests = [ReadRequest(stream, offset, per_stream) for stream in streams]
        results = await log.fetch(requests, min_bytes=0, max_bytes=in_all, max_wait_ms=0)
        return [result.size // size for result in results]

    for log_reads_from_the_tail in (True, False):
        if not log_reads_from_the_tail:
            for stream in streams:
                log._tail.forget(stream)
        assert await counts(EVERYTHING, EVERYTHING) == [3, 3]
        assert await counts(size, EVERYTHING) == [1, 1]
        assert await counts(2 * size + 1, 3 * size) == [2, 1]
        assert await counts(1, EVERYTHING) == [1, 0], "at least one batch in all, and no more"
        assert await counts(EVERYTHING, 1) == [1, 0]
        assert await counts(EVERYTHING, 4 * size) == [3, 1]
        assert await counts(EVERYTHING, 0, offset=3) == [0, 0]


# --- what is ready, and what is on its way


async def cold_and_warm(log: Log, world: World, **settings: Any) -> tuple[Log, list[int]]:
    """A reader, and two streams in objects of their own: the second is in its memory."""
    streams = await log.create_streams(2)
    for stream in streams:
        await append(log, stream, batch_bytes([b"x" * 100]))
    reader = world.log(tail_cache_bytes=0, **settings)
    await read(reader, streams[1], 0)
    return reader, streams


async def both(reader: Log, streams: list[int], min_bytes: int = 1) -> list[int]:
    """How many records of each come in one answer."""
    requests = [ReadRequest(stream, 0, 1000) for stream in streams]
    found = await reader.fetch(requests, min_bytes=min_bytes, max_bytes=10_000, max_wait_ms=0)
    assert all(result.high_watermark == 1 and result.error is None for result in found)
    return [len(values_in(result)) for result in found]


async def test_what_is_ready_does_not_wait_for_what_is_read(log: Log, world: World) -> None:
    reader, streams = await cold_and_warm(log, world)
    held = world.objects.hold("get")
    assert await both(reader, streams) == [0, 1]
    await held.reached()
    assert await both(reader, streams) == [0, 1], "as long as it is on its way"
    held.release()
    await asyncio.sleep(1)
    assert await both(reader, streams) == [1, 1]
    assert len(world.objects.ranges_read) == 2, "and it was read once"


async def test_too_little_is_not_answered_before_the_rest_is_there(log: Log, world: World) -> None:
    reader, streams = await cold_and_warm(log, world)
    assert await both(reader, streams, min_bytes=300) == [1, 1]
    reader, streams = await cold_and_warm(log, world)
    more = await log.create_streams(1)
    await append(log, more[0], batch_bytes([b"x" * 100]))
    assert await both(reader, streams + more) == [1, 1, 1], "one of three is not worth an answer"


async def test_what_was_dropped_before_it_was_served_is_waited_for(log: Log, world: World) -> None:
    """Or a consumer could be told for ever to ask again."""
    reader, streams = await cold_and_warm(log, world, segment_cache_bytes=500)
    assert await both(reader, streams) == [0, 1]
    [large] = await log.create_streams(1)
    await append(log, large, batch_bytes([b"y" * 350]))
    await asyncio.sleep(1)
    assert await both(reader, [large, streams[1]]) == [0, 1]
    await asyncio.sleep(1)  # there is no room for anything beside it
    for stream in (large, streams[1]):
        assert (await read(reader, stream, 0)).size
    assert await both(reader, streams) == [1, 1]


async def test_what_was_served_goes_before_what_was_read_ahead(log: Log, world: World) -> None:
    reader, streams = await cold_and_warm(log, world, segment_cache_bytes=350)
    assert await both(reader, streams) == [0, 1]
    await asyncio.sleep(1)
    [other] = await log.create_streams(1)
    await append(log, other, batch_bytes([b"y" * 100]))
    assert (await read(reader, other, 0)).size
    before = len(world.objects.ranges_read)
    assert (await read(reader, streams[0], 0)).size
    assert len(world.objects.ranges_read) == before, "it was in memory"


async def test_what_could_not_be_read_is_waited_for(log: Log, world: World) -> None:
    reader, streams = await cold_and_warm(log, world)
    world.objects.trap(Fate.REFUSE, "get")
    assert await both(reader, streams) == [0, 1]
    await asyncio.sleep(1)
    world.objects.trap(Fate.REFUSE, "get")
    requests = [ReadRequest(stream, 0, 1000) for stream in streams]
    cold, warm = await reader.fetch(requests, min_bytes=1, max_bytes=10_000, max_wait_ms=0)
    assert isinstance(cold.error, LogUnavailable), "a store that fails is told of"
    assert values_in(warm)
