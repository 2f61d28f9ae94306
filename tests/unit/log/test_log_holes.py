"""A log with holes: offsets whose records were compacted away. Consumers pass over them, up to the end."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.harness import EVERYTHING, World, append, read
from tests.unit.log.parquet_harness import (
    TIME,
    a_batch,
    compact,
    drop,
    entries_of,
    filled,
    read_on,
    rows_in,
    seal,
    thin,
    unit_of,
)

from dray.kafka.records import HEADER_SIZE, Buffer, crc32c, decode, filler, read_header
from dray.kafka.records.columns import Record
from dray.kafka.records.header import CONTROL, NO_PRODUCER, BatchHeader
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.values import WrittenFile
from dray.log.types import TimestampedOffset
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.compaction.writing.trimming import rows_from

BATCHES, RECORDS = 20, 80


def batches_in(data: Buffer) -> list[tuple[BatchHeader, list[Record]]]:
    """As a client takes an answer apart."""
    found, at = [], 0
    while at < len(data):
        header = read_header(data, at)
        part = data[at : at + header.size]
        control = header.attributes & CONTROL
        records = [] if control else list(decode(part, sparse=True).records())
        found.append((header, records))
        at += header.size
    return found


async def consume(log: Log, stream: int, position: int, max_bytes: int) -> tuple[list[Record], int]:
    """What a consumer gets from a position on, and where it comes to stand. Every answer must lead on."""
    found: list[Record] = []
    while True:
        result = await read(log, stream, position, max_bytes)
        if result.error is not None:
            raise result.error
        batches = [batch for buffer in result.buffers for batch in batches_in(buffer)]
        if not batches:
            return found, position
        following = position
        for header, records in batches:
            last = header.base_offset + header.last_offset_delta
            assert last >= position, "a batch that a consumer has passed would take it back"
            found += [record for record in records if record.offset >= following]
            following = last + 1
        assert following > position
        position = following


async def thinned(
    log: Log, world: World, keep: Collection[int], cuts: tuple[int, ...] = (7, 12, 19)
) -> tuple[int, dict[int, Record], list[IndexEntry]]:
    """A stream of which files hold only some records; the head is still in the WAL."""
    stream = await filled(log, BATCHES)
    wanted = {record.offset: record for record in await read_on(world.log(tail_cache_bytes=0), stream, 0)}
    entries = await entries_of(world, stream)
    files, first = [], 0
    for job, cut in enumerate(cuts, 1):
        files.append(await thin(world, stream, entries[first:cut], keep, job))
        first = cut
    await drop(world, entries[:first])
    left = {offset: record for offset, record in wanted.items() if offset in keep or offset >= 4 * first}
    return stream, left, files


# The first file lacks its beginning, middle and end, the second all but one; the third is whole.
KEEP = frozenset({9, 10, 11, 17, 25, 26, 33, *range(48, 76)})


@pytest.mark.parametrize("max_bytes", [1, 500, 2_000, EVERYTHING])
async def test_a_consumer_passes_over_holes_and_reaches_the_end(
    log: Log, world: World, small_groups: None, max_bytes: int
) -> None:
    stream, left, _ = await thinned(log, world, KEEP)
    for offset in range(RECORDS + 1):
        found, position = await consume(world.log(tail_cache_bytes=0), stream, offset, max_bytes)
        assert found == [record for at, record in sorted(left.items()) if at >= offset]
        assert position == RECORDS


@pytest.mark.parametrize("max_bytes", [1, EVERYTHING])
async def test_a_consumer_reaches_the_end_of_an_emptied_tail(
    log: Log, world: World, small_groups: None, max_bytes: int
) -> None:
    """The last records of the stream are gone: nothing but the filler says how far it reaches."""
    stream = await filled(log, BATCHES)
    await seal(world, stream)
    entries = await entries_of(world, stream)
    await thin(world, stream, entries, {3})
    for offset in range(RECORDS + 1):
        found, position = await consume(world.log(tail_cache_bytes=0), stream, offset, max_bytes)
        assert [record.offset for record in found] == ([3] if offset <= 3 else [])
        assert position == RECORDS
    result = await read(world.log(tail_cache_bytes=0), stream, 40, 1)
    [[(header, records)]] = [batches_in(buffer) for buffer in result.buffers]
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (RECORDS - 1, 0, 0)
    assert (header.attributes, header.producer_id, records) == (CONTROL, NO_PRODUCER, [])
    assert result.size == HEADER_SIZE


def test_a_filler_is_a_whole_batch_with_its_checksum() -> None:
    batch = filler(2**40, 7)
    header = read_header(batch)
    assert (header.size, header.base_offset, header.leader_epoch) == (len(batch), 2**40, 7)
    assert header.last_offset_delta == 0
    assert header.max_timestamp == header.base_timestamp == -1
    assert header.checksum == crc32c(batch[21:])


async def test_batches_with_holes_carry_no_producer(log: Log, world: World) -> None:
    """A consumer must not take the rest of a producer's batch for all of it."""
    [stream] = await log.create_streams(1)
    for number in range(4):
        await append(log, stream, a_batch(number, producer=(77, 3, 10 + 4 * number)))
    entries = await entries_of(world, stream)
    await thin(world, stream, entries[:1], {0, 1, 3})
    await thin(world, stream, entries[1:3], set(range(4, 12)), 2)
    reader = world.log(tail_cache_bytes=0)
    result = await read(reader, stream, 0)
    headers = [header for buffer in result.buffers for header, _ in batches_in(buffer)]
    assert [
        (header.base_offset, header.producer_id, header.producer_epoch, header.base_sequence)
        for header in headers
    ] == [
        (0, -1, -1, -1),
        (4, 77, 3, 14),
        (8, 77, 3, 18),
    ]


@pytest.mark.parametrize("start", [0, 11, 26])
async def test_times_are_found_among_what_is_left(
    log: Log, world: World, small_groups: None, start: int
) -> None:
    stream, left, _ = await thinned(log, world, KEEP)
    if start:
        assert await log.delete_records(stream, start) == start
    reader = world.log(tail_cache_bytes=0)
    records = [record for offset, record in sorted(left.items()) if offset >= start]
    for time in range(TIME - 1, TIME + 100 * BATCHES + 5, 7):
        wanted = next((record for record in records if record.timestamp >= time), None)
        found = await reader.find_timestamp(stream, time)
        assert found == (None if wanted is None else TimestampedOffset(wanted.offset, wanted.timestamp))


async def test_the_greatest_time_is_one_that_is_there(log: Log, world: World, small_groups: None) -> None:
    """The running maximum of the index names a record that may be gone."""
    stream = await filled(log, BATCHES)
    await seal(world, stream)
    entries = await entries_of(world, stream)
    await thin(world, stream, entries, {3, 41, 40})
    found = await world.log(tail_cache_bytes=0).find_max_timestamp(stream)
    assert found == TimestampedOffset(41, TIME + 1001)


async def test_files_with_holes_become_one(log: Log, world: World, small_groups: None) -> None:
    """Compaction takes them as they are: nothing more goes, and nothing is missed."""
    stream, left, files = await thinned(log, world, KEEP)
    whole = await compact(world, stream, files, job=9)
    assert (whole.start, whole.end, whole.record_count) == (0, 76, len(KEEP))
    assert whole.sparse
    for offset in (0, 5, 30, 34, 47, 75, 76):
        found, position = await consume(world.log(tail_cache_bytes=0), stream, offset, EVERYTHING)
        assert found == [record for at, record in sorted(left.items()) if at >= offset]
        assert position == RECORDS


@pytest.mark.parametrize("start", [0, 8, 9, 12, 17, 18, 26, 27])
async def test_a_file_with_holes_is_trimmed(log: Log, world: World, small_groups: None, start: int) -> None:
    stream, _, files = await thinned(log, world, KEEP)
    unit = unit_of(stream, files[:2])
    unit = type(unit)(**{name: getattr(unit, name) for name in unit.__slots__} | {"start": start})
    [written] = await LocalUnitWriter(world.objects, world.runtime).write([unit])
    assert isinstance(written, WrittenFile), written
    wanted = [offset for offset in sorted(KEEP) if start <= offset < 48]
    assert written.record_count == len(wanted)
    assert (written.row_groups[0].first_offset, written.row_groups[-1].last_offset) == (wanted[0], wanted[-1])


async def test_a_unit_of_which_nothing_is_left_fails_by_name(log: Log, world: World) -> None:
    stream, _, files = await thinned(log, world, KEEP)
    unit = unit_of(stream, files[:1])
    unit = type(unit)(**{name: getattr(unit, name) for name in unit.__slots__} | {"start": 27})
    [failed] = await LocalUnitWriter(world.objects, world.runtime).write([unit])
    assert isinstance(failed, UnitFailed)
    assert not failed.retriable
    assert "no record is left" in failed.reason


async def test_a_hole_that_the_index_does_not_know_is_damage(log: Log, world: World) -> None:
    """An entry that says of fewer rows than it has, or of others."""
    stream, _, files = await thinned(log, world, KEEP)
    [group, *_] = groups = files[0].row_groups()
    for changed in (group._replace(first_offset=group.first_offset - 1), group._replace(last_offset=27)):
        wrong = IndexEntry.parquet(
            [files[0]],
            files[0].object_id,
            files[0].path,
            files[0].file_size,
            files[0].footer_length,
            [changed, *groups[1:]],
        )
        [failed] = await LocalUnitWriter(world.objects, world.runtime).write([unit_of(stream, [wrong])])
        assert isinstance(failed, UnitFailed)
        assert "does not hold" in failed.reason


async def test_a_cut_batch_of_a_producer_keeps_the_sequence_of_each_record(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    for number in range(2):
        await append(log, stream, a_batch(number, count=10, producer=(77, 3, 10 + 10 * number)))
    entries = await entries_of(world, stream)
    file = await thin(world, stream, entries[:1], {0, 1, 5, 8})
    batch = await rows_in(world, unit_of(stream, [file]))
    cut = rows_from(batch, 4)
    assert cut.column("offset").to_pylist() == [5, 8]
    assert cut.column("base_sequence").to_pylist() == [15, 15], "as many as lie between, holes counted"


@settings(max_examples=25, deadline=None)
@given(
    keep=st.sets(st.integers(0, 75), min_size=1),
    cut=st.integers(1, 18),
    offset=st.integers(0, RECORDS),
    max_bytes=st.sampled_from([1, 61, 300, 1000, EVERYTHING]),
)
async def test_whatever_is_gone(keep: set[int], cut: int, offset: int, max_bytes: int) -> None:
    world = World()
    log = world.log()
    await log.start()
    stream, left, _ = await thinned(log, world, keep | {4 * cut - 1, 75}, (cut, 19))
    found, position = await consume(world.log(tail_cache_bytes=0), stream, offset, max_bytes)
    assert found == [record for at, record in sorted(left.items()) if at >= offset]
    assert position == RECORDS
    await log.stop()
