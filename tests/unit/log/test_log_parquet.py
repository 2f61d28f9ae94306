"""Reading what was compacted: the same records, few requests, and nothing that is not what was written."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, read, read_patiently
from tests.unit.log.parquet_harness import TIME, a_batch, all_of, compact, drop, entries_of, filled, read_on

from dray.kafka.records import decode, encode, stamp_append_time, twin, validate
from dray.kafka.records.columns import Record
from dray.log import Log
from dray.log.read.parquet_cache import Batches
from dray.log.types import ObjectCorrupt, ReadRequest, TimestampedOffset


@pytest.mark.parametrize("max_bytes", [1, 500, 2_000, EVERYTHING])
async def test_a_consumer_does_not_notice(log: Log, world: World, small_groups: None, max_bytes: int) -> None:
    stream = await filled(log, 40)
    wanted = await read_on(world.log(tail_cache_bytes=0), stream, 0)
    assert len(wanted) == 160
    entries = await entries_of(world, stream)
    await compact(world, stream, entries[:25])
    await compact(world, stream, entries[25:31], job=2)
    await drop(world, entries[:31])
    reader = world.log(tail_cache_bytes=0)
    assert await read_on(reader, stream, 0, max_bytes) == wanted
    for offset in (1, 57, 99, 100, 123, 124, 130, 159):
        assert await read_on(world.log(tail_cache_bytes=0), stream, offset, max_bytes) == wanted[offset:]


async def test_producers_and_the_kind_of_time_come_back(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, a_batch(0, producer=(77, 3, 10)))
    await append(log, stream, a_batch(1, producer=(77, 3, 14)))
    stamped = a_batch(2)
    [batch] = validate(stamped, max_batch_bytes=EVERYTHING, max_decompressed_bytes=EVERYTHING)
    stamp_append_time(stamped, batch, TIME + 5)
    await append(log, stream, stamped, append_time_ms=TIME + 5)
    await append(log, stream, a_batch(3))
    await compact(world, stream, (await entries_of(world, stream))[:3])
    result = await read(world.log(tail_cache_bytes=0), stream, 0)
    headers = [header for buffer in result.buffers for header, _ in twin.decode(buffer)]
    assert [(h.base_offset, h.producer_id, h.producer_epoch, h.base_sequence) for h in headers] == [
        (0, 77, 3, 10),
        (4, 77, 3, 14),
        (8, -1, -1, -1),
    ]
    assert [header.attributes for header in headers] == [0, 0, 8]
    assert headers[2].max_timestamp == TIME + 5


async def test_a_cold_offset_takes_two_requests(log: Log, world: World, small_groups: None) -> None:
    stream = await filled(log, 40)
    entries = await entries_of(world, stream)
    entry = await compact(world, stream, entries[:39])
    assert len(entry.row_groups()) > 4
    reader = world.log(tail_cache_bytes=0, parquet_groups_ahead=0)
    assert (await read_on_once(reader, stream, 100))[0].offset <= 100
    assert len(world.objects.ranges_read) == 2, world.objects.ranges_read
    assert (await read_on_once(reader, stream, 100))[0].offset <= 100
    assert len(world.objects.ranges_read) == 2, "and then none"
    assert (await read_on_once(reader, stream, 10))[0].offset <= 10
    assert len(world.objects.ranges_read) == 3, "its footer is known"


async def read_on_once(log: Log, stream: int, offset: int) -> list[Record]:
    return all_of(await read(log, stream, offset, max_bytes=1))


async def test_what_follows_is_read_ahead(log: Log, world: World, small_groups: None) -> None:
    stream = await filled(log, 40)
    entries = await entries_of(world, stream)
    first = await compact(world, stream, entries[:20])
    second = await compact(world, stream, entries[20:39], job=2)
    reader = world.log(tail_cache_bytes=0, parquet_groups_ahead=2)
    await read_on_once(reader, stream, 0)
    await asyncio.sleep(1)
    groups = first.row_groups()
    assert {range_[1] for range_ in world.objects.ranges_read} >= {group.position for group in groups[:3]}
    before = len(world.objects.ranges_read)
    await read_on_once(reader, stream, groups[1].first_offset)
    assert len(world.objects.ranges_read) == before, "it was there already"
    await read_on_once(reader, stream, groups[-1].first_offset)
    await asyncio.sleep(1)
    assert any(range_[0] == second.path for range_ in world.objects.ranges_read), "into the next file"


async def test_two_consumers_at_once_read_once(log: Log, world: World) -> None:
    stream = await filled(log, 5)
    await compact(world, stream, (await entries_of(world, stream))[:4])
    reader = world.log(tail_cache_bytes=0)
    await asyncio.gather(*[read(reader, stream, offset) for offset in (0, 3, 7, 12)])
    assert len([path for path, _, _ in world.objects.ranges_read if path.endswith(".parquet")]) == 2


async def test_what_is_kept_is_bounded(log: Log, world: World, small_groups: None) -> None:
    stream = await filled(log, 40)
    entry = await compact(world, stream, (await entries_of(world, stream))[:39])
    reader = world.log(tail_cache_bytes=0, compacted_cache_bytes=4000, parquet_groups_ahead=2)
    wanted = await read_on(reader, stream, 0, 300)
    assert len(wanted) == 160
    kept = reader._reader.parquet
    cached = kept._cached
    assert 0 < cached.size <= 4000
    tiers = [
        sum(len(batches.data) for batches in tier.values()) for tier in (cached._finished, cached._ahead)
    ]
    tiers.append(sum(len(batches.data) for batches in cached._in_use.values()))
    assert (cached.size, cached.finished_size) == (sum(tiers), tiers[0])
    assert kept._expected == 0
    assert len(entry.row_groups()) > len(kept._cached)


async def test_limits_hold_to_the_byte(log: Log, world: World, small_groups: None) -> None:
    streams = [await filled(log, 12) for _ in range(3)]
    for stream in streams:
        await compact(world, stream, (await entries_of(world, stream))[:11])
    for max_bytes in (1, 450, 1000, 2500, 6000):
        reader = world.log(tail_cache_bytes=0)
        results = await reader.fetch(
            [ReadRequest(stream, 3, 2000) for stream in streams],
            min_bytes=1,
            max_bytes=max_bytes,
            max_wait_ms=0,
        )
        sizes = [result.size for result in results]
        assert sizes[0] > 0
        assert sum(sizes) <= max_bytes or sizes[1:] == [0, 0], (max_bytes, sizes)
        assert all(size <= 2000 for size in sizes)
        for result in results:
            assert all_of(result)[:1] == [] or all_of(result)[0].offset <= 3


async def test_many_partitions_at_once_do_not_drive_each_other_out(
    log: Log, world: World, small_groups: None
) -> None:
    """A row group that does not stay until it was read to its end is decoded for each of its parts."""
    streams = [await filled(log, 12) for _ in range(6)]
    for stream in streams:
        entry = await compact(world, stream, (await entries_of(world, stream))[:11])
    groups = entry.row_groups()
    two = 5 * max(group.raw_bytes for group in groups) // 2  # rebuilt from tiny batches, they take a bit more
    reader = world.log(tail_cache_bytes=0, compacted_cache_bytes=two, parquet_groups_ahead=0)
    offsets = dict.fromkeys(streams, 0)
    for _ in range(100):
        # In turns, as clients do.
        offsets = dict(sorted(offsets.items(), key=lambda item: item[1] > 0))
        left = [stream for stream, offset in offsets.items() if offset < entry.end]
        if not left:
            break
        results = await reader.fetch(
            [ReadRequest(stream, offsets[stream], 500) for stream in left],
            min_bytes=1,
            max_bytes=EVERYTHING,
            max_wait_ms=0,
        )
        served = [(stream, all_of(result)) for stream, result in zip(left, results, strict=True)]
        assert 0 < len([records for _, records in served if records]) <= 2
        for stream, records in served:
            if records:
                offsets[stream] = records[-1].offset + 1
    files = [path for path, _, _ in world.objects.ranges_read if path.endswith(".parquet")]
    assert not left
    needed = len(streams) * (1 + len(groups))  # a footer each, and every row group once
    assert len(files) == needed


async def test_nothing_is_read_ahead_at_the_price_of_what_is_in_use(
    log: Log, world: World, small_groups: None
) -> None:
    streams = [await filled(log, 30) for _ in range(3)]
    for stream in streams:
        entry = await compact(world, stream, (await entries_of(world, stream))[:29])
    groups = entry.row_groups()
    room = 5 * max(group.raw_bytes for group in groups)  # for three in use, and one or two beside them
    reader = world.log(tail_cache_bytes=0, compacted_cache_bytes=room, parquet_groups_ahead=2)
    offsets = dict.fromkeys(streams, 0)
    while any(offset < entry.end for offset in offsets.values()):
        for stream in streams:
            if offsets[stream] < entry.end:
                offsets[stream] = all_of(await read(reader, stream, offsets[stream], 500))[-1].offset + 1
            await asyncio.sleep(1)
    read_groups = [found for found in world.objects.ranges_read if found[0].endswith(".parquet")]
    needed = len(streams) * (1 + len(groups))
    assert len(set(read_groups)) == needed
    assert len(read_groups) <= needed + 3, "but for what was read ahead before the others came"


@pytest.mark.parametrize("cached", [False, True])
async def test_through_the_swap(log: Log, world: World, small_groups: None, cached: bool) -> None:
    """A reader that knows the old entries: their objects go, and it goes on."""
    stream = await filled(log, 20)
    reader = world.log(tail_cache_bytes=0, segment_cache_bytes=0)
    wanted = await read_on(reader, stream, 0)
    entries = await entries_of(world, stream)
    if not cached:
        reader = world.log(tail_cache_bytes=0, segment_cache_bytes=0)
        await read(reader, stream, 0, max_bytes=1)
    await compact(world, stream, entries[:19])
    await drop(world, entries[:19])
    assert await read_on(reader, stream, 6, 900) == wanted[6:]


async def test_through_a_merge(log: Log, world: World, small_groups: None) -> None:
    stream = await filled(log, 20)
    entries = await entries_of(world, stream)
    first = await compact(world, stream, entries[:10])
    second = await compact(world, stream, entries[10:19], job=2)
    reader = world.log(tail_cache_bytes=0, compacted_cache_bytes=0, parquet_groups_ahead=0)
    wanted = await read_on(reader, stream, 0)
    await compact(world, stream, [first, second], job=3)
    await drop(world, [first, second])
    assert await read_on(reader, stream, 5, 900) == wanted[5:]


@pytest.mark.parametrize("place", ["footer", "rows", "short"])
async def test_damage_is_named_and_never_served(log: Log, world: World, place: str) -> None:
    stream = await filled(log, 9)
    entry = await compact(world, stream, (await entries_of(world, stream))[:8])
    [group] = entry.row_groups()
    if place == "short":
        world.bucket.put(entry.path, bytes(world.bucket.objects[entry.path].data)[:-20], 0)
    else:
        middle = group.position + group.length // 2
        world.corrupt(entry.path, entry.file_size - 7 if place == "footer" else middle)
    result = await read_patiently(world.log(tail_cache_bytes=0), stream, 3)
    assert isinstance(result.error, ObjectCorrupt)
    assert entry.path in str(result.error)
    assert not result.buffers


async def test_a_flipped_bit_anywhere(log: Log, world: World) -> None:
    """It is noticed, or it is in a byte that says nothing about the records."""
    stream = await filled(log, 9)
    entry = await compact(world, stream, (await entries_of(world, stream))[:8])
    wanted = all_of(await read(world.log(tail_cache_bytes=0), stream, 0))
    noticed = 0
    for position in range(4, entry.file_size, 11):
        world.corrupt(entry.path, position)
        result = await read_patiently(world.log(tail_cache_bytes=0), stream, 0)
        if result.error is None:
            assert all_of(result) == wanted, position
        else:
            assert isinstance(result.error, ObjectCorrupt)
            noticed += 1
        world.corrupt(entry.path, position)
    assert noticed > 30


async def test_a_file_that_is_another(log: Log, world: World) -> None:
    """Good Parquet, wrong records."""
    stream, other = await filled(log, 9), await filled(log, 12)
    entry = await compact(world, stream, (await entries_of(world, stream))[:8])
    foreign = await compact(world, other, (await entries_of(world, other))[3:11])
    world.bucket.put(entry.path, bytes(world.bucket.objects[foreign.path].data), 0)
    result = await read_patiently(world.log(tail_cache_bytes=0), stream, 0)
    assert isinstance(result.error, ObjectCorrupt)


async def test_by_time(log: Log, world: World, small_groups: None) -> None:
    [stream] = await log.create_streams(1)
    times = [5, 3, 9, 9, 4, 12, 1, 30, 30, 2, 8, 31]
    for time in times:
        await append(
            log, stream, batch_bytes([b"x" * 200, b"y" * 200], timestamps=[time * 10, time * 10 - 5])
        )
    flat = [moment for time in times for moment in (time * 10, time * 10 - 5)]
    await compact(world, stream, (await entries_of(world, stream))[:10])
    reader = world.log(tail_cache_bytes=0)
    for start in (0, 5, 15):
        await reader.delete_records(stream, start) if start else None
        for wanted in (0, 25, 31, 45, 90, 91, 120, 299, 300, 305, 310, 311):
            expected = next(
                (TimestampedOffset(at, flat[at]) for at in range(start, len(flat)) if flat[at] >= wanted),
                None,
            )
            assert await reader.find_timestamp(stream, wanted) == expected, (start, wanted)
        best = max(range(start, len(flat)), key=lambda at: (flat[at], -at))
        assert await reader.find_max_timestamp(stream) == TimestampedOffset(best, flat[best])


async def test_the_greatest_time_of_what_is_left(log: Log, world: World, small_groups: None) -> None:
    """Of a stream whose latest record was deleted, all of it compacted but the head."""
    [stream] = await log.create_streams(1)
    for time in (90, 20, 50, 50, 10):
        await append(log, stream, batch_bytes([b"x" * 900, b"y" * 900], timestamps=[time, time + 1]))
    await compact(world, stream, (await entries_of(world, stream))[:4])
    reader = world.log(tail_cache_bytes=0)
    await reader.delete_records(stream, 3)
    assert await reader.find_max_timestamp(stream) == TimestampedOffset(5, 51)
    await reader.delete_records(stream, 6)
    assert await reader.find_max_timestamp(stream) == TimestampedOffset(7, 51)


async def test_a_batch_above_the_limit_comes_alone_wherever_it_lies(
    log: Log, world: World, small_groups: None
) -> None:
    """At the end of a row group, too: the limit that is left for the next one is negative then."""
    stream = await filled(log, 40)
    entries = await entries_of(world, stream)
    entry = await compact(world, stream, entries[:39])
    assert len(entry.row_groups()) > 4
    reader = world.log(tail_cache_bytes=0)
    for offset in range(entry.end):
        [buffer] = (await read(reader, stream, offset, 100)).buffers
        assert len(buffer) > 100
        assert len(twin.decode(buffer)) == 1, f"from offset {offset}"


def test_arrow_is_not_loaded_before_it_is_needed() -> None:
    """A broker without compacted files does not pay for it."""
    code = "import sys, dray.log, dray.daemons.broker.node; print('pyarrow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True
    )
    assert done.stdout.strip() == "False"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(0, 59),
    st.integers(-3000, 3000),  # negative: more was taken than there was room for
    st.booleans(),
)
def test_batches_are_cut_where_they_end(sizes: list[int], at: int, limit: int, at_least_one: bool) -> None:
    records = [Record(100 + place, TIME, None, b"x" * size) for place, size in enumerate(sizes)]
    columns = decode(twin.encode(records))
    batches = Batches(encode(columns, batch_bytes=250))
    offset = 100 + at % len(sizes)
    view, finished = batches.take(offset, limit, at_least_one)
    found = [record for header, rows in twin.decode(view) for record in rows]
    assert len(view) <= max(limit, 0) or (at_least_one and len(twin.decode(view)) == 1)
    if found:
        assert found[0].offset <= offset <= found[-1].offset
        assert finished == (found[-1].offset == 99 + len(sizes))
    else:
        assert not at_least_one
