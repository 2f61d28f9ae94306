"""Objects that the index names and that are gone: proven before anything is said, given up by an operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pytest
from tests.unit.log.harness import DOMAINS, QUICK, World, append, read
from tests.unit.log.parquet_harness import (
    TOPIC_ID,
    a_batch,
    all_of,
    compact,
    entries_of,
    filled,
    read_on,
    unit_of,
)
from tests.unit.migration.entries.foreign_harness import ForeignWorld, kafka

from dray.kafka.records import Buffer, Record, decode, read_header
from dray.kafka.records.header import CONTROL
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import Compaction, Input, Planned, advance
from dray.log.jobs.values import WrittenFile
from dray.log.life.lost_objects import (
    LOOK_SECONDS,
    PAUSE_SECONDS,
    LostEntry,
    LostObjects,
    StreamPlace,
    gap_file,
)
from dray.log.life.retention import Retention
from dray.log.read.doubts import InDoubt
from dray.log.stream_state import advance_snapshot
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import (
    LogUnavailable,
    ObjectLost,
    OffsetOutOfRange,
    OutsideFault,
)
from dray.metadata import keys
from dray.migration.entries.segments import ForeignSegments
from dray.objects.contract import ObjectMissing
from dray.tables.compaction.writing.executor import LocalUnitWriter

PROVEN_WITHIN = QUICK.doubt_seconds + 3 * PAUSE_SECONDS


def lost_objects(world: World) -> LostObjects:
    streams = StreamStore(world.store, DOMAINS, QUICK.producer_expiry_ms)
    segments = ForeignSegments(world.objects, world.runtime, world.foreign())
    return LostObjects(streams, segments.objects_of, world.may_delete, world.runtime)


async def give_up(world: World, stream: int, objects: Sequence[UUID]) -> int:
    streams = StreamStore(world.store, DOMAINS, QUICK.producer_expiry_ms)

    async def write(job: object, _: object) -> WrittenFile:
        return await gap_file(world.runtime, stream, job)  # type: ignore[arg-type]

    place = StreamPlace("t", TOPIC_ID, 0, stream)
    retention = Retention(streams, world.runtime, QUICK)
    return await lost_objects(world).replace(place, objects, write, retention)


def ranges(lost: Sequence[LostEntry]) -> list[tuple[int, int]]:
    return [(each.start, each.end) for each in lost]


async def test_a_lost_object_is_proven_said_and_given_up(world: World, log: Log) -> None:
    stream = await filled(log, 6)
    entries = await entries_of(world, stream)
    log = await restarted(world, log)
    for entry in entries[2:4]:
        world.bucket.delete(entry.path)
    first = await read(log, stream, 8)
    assert isinstance(first.error, LogUnavailable), "clients wait, as long as it is not proven"
    await world.runtime.sleep(PROVEN_WITHIN)
    with pytest.raises(ObjectLost, match="gone, and with it the offsets 8 to 11"):
        all_of(await read(log, stream, 8))
    assert log.lost.count == 1
    assert "drayd admin lost" in (log.lost.note() or "")

    lost = await lost_objects(world).of(stream)
    assert ranges(lost) == [(8, 12), (12, 16)]
    least = entries[2].stored_bytes + min(entries[2].places()[1])
    assert [lost[0].may_have(size) for size in (least - 1, least, least + 100)] == [False, True, True]
    assert await give_up(world, stream, [each.object_id for each in lost]) == 8

    # The broker knows nothing of it, and goes on behind the gap all the same.
    offsets = [record.offset for record in await read_over(log, stream)]
    assert offsets == [*range(8), *range(16, 24)]
    assert not world.keys(keys.reference(entries[2].object_id, stream))
    await world.runtime.sleep(2 * LOOK_SECONDS)
    assert log.lost.count == 0
    assert log.lost.note() is None
    await log.stop()


async def restarted(world: World, log: Log) -> Log:
    await log.stop()
    made = world.log(tail_cache_bytes=0)
    await made.start()
    return made


async def read_over(log: Log, stream: int) -> list[Record]:
    """Every record, as a consumer finds them that goes on behind each answer."""
    found: list[Record] = []
    offset = 0
    for _ in range(100):
        result = await read(log, stream, offset)
        if result.error is not None:
            raise result.error
        if not result.size:
            return found
        for batch in batches_in(result.buffers):
            header = read_header(batch)
            if not header.attributes & CONTROL:
                found += [each for each in decode(batch, sparse=True).records() if each.offset >= offset]
            offset = header.base_offset + header.last_offset_delta + 1
    raise AssertionError("the consumer does not come to the end")


def batches_in(buffers: Sequence[Buffer]) -> Iterator[memoryview]:
    for buffer in buffers:
        left = memoryview(buffer)
        while left:
            size = read_header(left).size
            yield left[:size]
            left = left[size:]


async def as_files(world: World, stream: int, inputs: Sequence[IndexEntry], job: int = 1) -> IndexEntry:
    """As a compactor leaves it: the producer snapshot went past the file first."""
    streams = StreamStore(world.store, DOMAINS, QUICK.producer_expiry_ms)
    while not await advance_snapshot(streams, stream, inputs[-1].end, world.runtime.wall_ms()):
        pass
    return await compact(world, stream, inputs, job)


async def test_the_newest_object_may_be_lost_too(world: World, log: Log) -> None:
    stream = await filled(log, 2)
    head = (await entries_of(world, stream))[-1]
    log = await restarted(world, log)
    world.bucket.delete(head.path)
    assert ranges(await lost_objects(world).of(stream)) == [(4, 8)]
    assert await give_up(world, stream, [head.object_id]) == 4
    await append(log, stream, a_batch(3))
    assert [record.offset for record in await read_over(log, stream)] == [*range(4), *range(8, 12)]
    await log.stop()


async def test_a_lost_file_becomes_a_gap(world: World, log: Log) -> None:
    stream = await filled(log, 4)
    entries = await entries_of(world, stream)
    file = await as_files(world, stream, entries[:2])
    world.bucket.delete(file.path)
    log = await restarted(world, log)
    [lost] = await lost_objects(world).of(stream)
    assert ranges([lost]) == [(0, 8)]
    sizes = (file.file_size - 1, file.file_size, file.file_size + 1)
    assert [lost.may_have(size) for size in sizes] == [False, True, False]
    assert await give_up(world, stream, [file.object_id]) == 8
    assert [record.offset for record in await read_over(log, stream)] == [*range(8, 16)]
    [gap, *_] = await entries_of(world, stream)
    assert gap.is_gap
    assert (gap.start, gap.end, gap.last_record, gap.record_count) == (0, 8, -1, 0)
    assert await lost_objects(world).of(stream) == []  # a gap has no object to lose
    await log.stop()


async def test_one_answer_proves_nothing(world: World, log: Log) -> None:
    stream = await filled(log, 2)
    entries = await entries_of(world, stream)
    inner, asked = world.objects.head, []

    async def late(path: str) -> object:
        asked.append(path)
        if len(asked) < 3:
            raise ObjectMissing(path)
        return await inner(path)

    world.objects.head = late  # type: ignore[method-assign,assignment]
    assert await lost_objects(world).proven(stream, entries[:1]) == []
    assert len(asked) == 3


async def test_a_store_that_hides_what_it_has_for_seconds_has_lost_nothing(world: World, log: Log) -> None:
    """Every GET and HEAD of it says 404, while the bucket's owner is read well, as of keys that a store does
    not show yet: clients wait, and nobody is paged."""
    stream = await filled(log, 2)
    entries = await entries_of(world, stream)
    log = await restarted(world, log)
    stored = world.bucket.objects.pop(entries[0].path)
    end = world.runtime.monotonic() + 20.0
    while world.runtime.monotonic() < end:
        assert isinstance((await read(log, stream, 0)).error, InDoubt)
        await world.runtime.sleep(0.1)
    world.bucket.objects[entries[0].path] = stored
    assert [record.offset for record in await read_on(log, stream, 0)] == [*range(8)]
    await world.runtime.sleep(PROVEN_WITHIN)
    assert log.lost.count == 0
    await log.stop()


async def test_nothing_is_lost_in_a_bucket_that_is_not_ours(world: World, log: Log) -> None:
    stream = await filled(log, 2)
    world.bucket.objects.clear()

    async def gone() -> str:
        return "the bucket's owner is gone"

    world.may_delete = gone
    with pytest.raises(LogUnavailable, match="nothing is taken for lost: the bucket's owner is gone"):
        await lost_objects(world).of(stream)


async def test_what_was_compacted_meanwhile_is_not_lost(world: World, log: Log) -> None:
    stream = await filled(log, 3)
    entries = await entries_of(world, stream)
    await compact(world, stream, entries[:2])
    for entry in entries[:2]:
        world.bucket.delete(entry.path)
    assert await lost_objects(world).proven(stream, entries[:2]) == []


async def test_a_job_that_is_under_way_is_given_up_first(world: World, log: Log) -> None:
    """A compactor cannot write the file of a lost object: its job must not be in the way."""
    stream = await filled(log, 3)
    streams = StreamStore(world.store, DOMAINS, QUICK.producer_expiry_ms)
    view = await streams.view(stream)
    assert view is not None
    entries: list[Versioned[IndexEntry]] = view.split()[0]
    compaction = Compaction("t", TOPIC_ID, 0, 0, 8, tuple(map(Input.of, entries)), table=True)
    job = await streams.job(stream)
    await streams.perform(stream, job, advance(stream, job.value, Planned(compaction)))
    world.bucket.delete(entries[0].value.path)
    assert await give_up(world, stream, [entries[0].value.object_id]) == 4


async def test_a_gap_is_compacted_with_what_lies_beside_it(world: World, log: Log) -> None:
    stream = await filled(log, 6)
    entries = await entries_of(world, stream)
    files = [await as_files(world, stream, entries[at : at + 1], job=at + 1) for at in range(3)]
    world.bucket.delete(files[1].path)
    assert await give_up(world, stream, [files[1].object_id]) == 4
    now = await entries_of(world, stream)
    merged = await compact(world, stream, now[:3], job=9)
    assert (merged.start, merged.end, merged.record_count) == (0, 12, 8)
    log = await restarted(world, log)
    assert [record.offset for record in await read_over(log, stream)] == [*range(4), *range(8, 24)]
    await log.stop()


async def test_a_unit_of_gaps_alone_is_a_gap(world: World, log: Log) -> None:
    stream = await filled(log, 3)
    entries = await entries_of(world, stream)
    world.bucket.delete(entries[0].path)
    await give_up(world, stream, [entries[0].object_id])
    [gap, *_] = await entries_of(world, stream)
    [written] = await LocalUnitWriter(world.objects, world.runtime).write([unit_of(stream, [gap], 3)])
    assert isinstance(written, WrittenFile)
    assert (written.start, written.end, written.record_count, written.row_groups) == (0, 4, 0, ())
    assert written.path not in world.bucket.objects


async def test_a_gap_is_found_by_time_and_expires(world: World, log: Log) -> None:
    stream = await filled(log, 3)
    entries = await entries_of(world, stream)
    world.bucket.delete(entries[0].path)
    await give_up(world, stream, [entries[0].object_id])
    log = await restarted(world, log)
    found = await log.find_timestamp(stream, 0)
    assert found is not None
    assert found.offset == 4
    assert await log.delete_records(stream, 2) == 2
    assert [record.offset for record in await read_on(log, stream, 4)] == [*range(4, 12)]
    assert await log.delete_records(stream, 6) == 6
    await log.stop()


async def test_an_object_that_comes_back_is_no_longer_lost(world: World, log: Log) -> None:
    stream = await filled(log, 2)
    entries = await entries_of(world, stream)
    log = await restarted(world, log)
    stored = world.bucket.objects.pop(entries[0].path)
    assert (await read(log, stream, 0)).error is not None
    await world.runtime.sleep(PROVEN_WITHIN)
    assert log.lost.count == 1
    world.bucket.objects[entries[0].path] = stored
    await world.runtime.sleep(2 * LOOK_SECONDS)
    assert log.lost.count == 0
    assert [record.offset for record in await read_on(log, stream, 0)] == [*range(8)]
    await log.stop()


async def test_much_that_comes_back_is_found_at_the_next_look(world: World, log: Log) -> None:
    stream = await filled(log, 30)
    entries = (await entries_of(world, stream))[:-1]
    log = await restarted(world, log)
    stored = {entry.path: world.bucket.objects.pop(entry.path) for entry in entries}
    for entry in entries:
        log.lost.suspect(stream, entry)
    await world.runtime.sleep(PROVEN_WITHIN)
    assert log.lost.count == len(entries) > 20
    world.bucket.objects.update(stored)
    for entry in entries[1:]:
        world.bucket.delete(entry.path)  # but for one, nothing is back: each of these takes seconds
    world.bucket.objects[entries[-1].path] = stored[entries[-1].path]
    await world.runtime.sleep(LOOK_SECONDS + 10)
    assert log.lost.count == len(entries) - 2
    await log.stop()


async def test_a_borrowed_segment_that_vanishes_is_an_error_and_can_be_given_up() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log()
    await log.start()
    stream = await world.attach(log)
    last = world.source.segments[-1][0]
    world.source.bucket.delete(last.path)
    lost = [entry for entry in await entries_of(world, stream) if entry.path == last.path]
    assert isinstance((await read(log, stream, lost[0].start)).error, OutsideFault)
    await world.runtime.sleep(30 + PROVEN_WITHIN)
    result = await read(log, stream, lost[0].start)
    assert isinstance(result.error, ObjectLost), "clients stop on it, and do not wait in silence"
    assert log.lost.count == 1
    assert await give_up(world, stream, [lost[0].object_id]) == lost[-1].end - lost[0].start
    result = await read(log, stream, lost[0].start)
    assert result.error is None
    assert [read_header(batch).base_offset for batch in batches_in(result.buffers)] == [lost[-1].end - 1]
    await log.stop()


async def test_what_the_source_has_expired_is_noticed_by_the_first_fetch() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log()
    await log.start()
    stream = await world.attach(log)
    first = world.source.segments[0][0]
    world.source.bucket.delete(first.path)
    assert isinstance((await read(log, stream, 0)).error, OutsideFault)
    await world.runtime.sleep(30)
    assert isinstance((await read(log, stream, 0)).error, OffsetOutOfRange), "the start followed the source"
    assert log.lost.count == 0
    await log.stop()


async def test_a_foreign_store_that_looks_empty_proves_nothing() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log()
    stream = await world.attach(log)
    world.source.bucket.objects.clear()
    with pytest.raises(LogUnavailable, match="foreign store 'old' looks empty"):
        await lost_objects(world).of(stream)
