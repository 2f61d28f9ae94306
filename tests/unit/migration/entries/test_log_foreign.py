"""Reading what other systems wrote, where it lies: fixtures of Kafka, of Aiven's plugin and of KafScale."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.services.attached_log import AttachedLog
from tests.unit.log.harness import DOMAINS, EVERYTHING, append, batch_bytes, read, values_in
from tests.unit.migration.entries.foreign_harness import (
    EPOCH,
    ForeignWorld,
    Source,
    aiven,
    kafka,
    kafscale_segment,
    one_record,
    packed,
    written,
)

from dray.kafka.records import BatchHeader, decode, read_header
from dray.kafka.records.header import CONTROL
from dray.log import Log
from dray.log.origins import CLASSIC, Origin, SourceOwnsLog
from dray.log.outside_table import AbortedRange
from dray.log.types import LogUnavailable, OutsideFault, ReadResult
from dray.metadata import keys
from dray.migration.entries import ownership as foreign_ownership
from dray.migration.entries.lay_down import AttachedStream, AttachRefused, lay_down, snapshot_of
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.pieces import as_data
from dray.migration.formats import walk_batches

SOURCES: dict[str, Callable[[], Source]] = {
    "kafka": lambda: kafka(0),
    "kafka, cut": lambda: kafka(0, 100_000),
    "aiven": lambda: aiven(0),
    "packed, cut": lambda: packed(cut_bytes=200_000),
    "kafscale": kafscale_segment,
}


async def read_all(log: Log, stream: int, offset: int, end: int, max_bytes: int) -> list[ReadResult]:
    """As a consumer reads: from where the last batch ended."""
    found: list[ReadResult] = []
    while offset < end:
        result = await read(log, stream, offset, max_bytes)
        assert result.error is None, result.error
        found.append(result)
        last = _last_batch(result)
        assert last.base_offset + last.last_offset_delta >= offset, "a consumer stands still"
        offset = last.base_offset + last.last_offset_delta + 1
    return found


def _last_batch(result: ReadResult) -> BatchHeader:
    return list(walk_batches(joined([result])))[-1].header


def joined(results: list[ReadResult]) -> bytes:
    return b"".join(bytes(buffer) for result in results for buffer in result.buffers)


@pytest.mark.parametrize("max_bytes", [1, 60_000, EVERYTHING])
@pytest.mark.parametrize("name", SOURCES)
async def test_every_byte_is_served_as_the_source_wrote_it_but_for_the_epoch(
    name: str, max_bytes: int
) -> None:
    world = ForeignWorld(source=SOURCES[name]())
    before = {path: stored.data for path, stored in world.source.bucket.objects.items()}
    log = world.log()
    stream = await world.attach(log)
    found = await read_all(log, stream, 0, world.source.end, max_bytes)
    assert joined(found) == world.source.served()
    assert {path: stored.data for path, stored in world.source.bucket.objects.items()} == before
    assert (await log.bounds(stream)).end == world.source.end


async def test_a_fetch_within_a_batch_begins_with_it_and_keeps_to_its_limit() -> None:
    world = ForeignWorld(source=kafka(0, 100_000))
    log = world.log()
    stream = await world.attach(log)
    batches = world.source.batches
    for batch in batches[:: len(batches) // 7]:
        for offset in {batch.header.base_offset, batch.last_offset}:
            result = await read(log, stream, offset, 3 * batch.header.size)
            assert read_header(result.buffers[0]).base_offset == batch.header.base_offset
            assert 0 < result.size <= 3 * batch.header.size
            tiny = await read(log, stream, offset, 1)
            assert tiny.size == batch.header.size, "the first batch always goes"


async def test_aborted_transactions_are_named_where_they_overlap_and_control_batches_go_raw() -> None:
    world = ForeignWorld(source=kafka(0, 100_000))
    assert world.source.aborted, "the fixture has one"
    [aborted] = world.source.aborted
    log = world.log()
    stream = await world.attach(log)
    for result in await read_all(log, stream, 0, world.source.end, 20_000):
        headers = [batch.header for batch in walk_batches(joined([result]))]
        first, last = headers[0].base_offset, headers[-1].base_offset + headers[-1].last_offset_delta
        overlaps = aborted.first_offset <= last and aborted.last_offset >= first
        assert list(result.aborted) == ([(aborted.producer_id, aborted.first_offset)] if overlaps else [])
    [marker] = [batch for batch in world.source.batches if batch.last_offset == aborted.last_offset]
    result = await read(log, stream, aborted.last_offset, 1)
    assert read_header(result.buffers[0]).attributes & CONTROL
    assert marker.is_control


async def test_what_a_dead_source_left_undecided_counts_as_aborted() -> None:
    source = kafka(0)
    undecided = replace_producer(source, transaction_first_offset=source.end - 10)
    world = ForeignWorld(source=undecided)
    log = world.log()
    stream = await world.attach(log)
    result = await read(log, stream, source.end - 1)
    assert (undecided.producers[0].producer_id, source.end - 10) in result.aborted


def replace_producer(source: Source, **changes: int) -> Source:
    first, *others = source.producers
    return replace(source, producers=[first._replace(**changes), *others])


async def test_an_answer_never_reaches_across_the_boundary() -> None:
    world = ForeignWorld(source=kafka(1))
    log = world.log()
    stream = await world.attach(log)
    end = world.source.end
    assert (await append(log, stream, batch_bytes([b"first", b"second"]))).base_offset == end
    last = world.source.batches[-1]
    below = await read(log, stream, last.header.base_offset)
    assert joined([below])[:8] == last.header.base_offset.to_bytes(8, "big")
    assert _last_batch(below).base_offset == last.header.base_offset, "and nothing of what was appended"
    assert values_in(await read(log, stream, end)) == [(end, b"first"), (end + 1, b"second")]
    fresh = world.log(tail_cache_bytes=0)
    assert _last_batch(await read(fresh, stream, last.header.base_offset)) == _last_batch(below)
    above = await read(fresh, stream, end)
    assert values_in(above) == [(end, b"first"), (end + 1, b"second")]
    assert read_header(above.buffers[0]).leader_epoch == EPOCH, "one epoch on both sides"


async def test_inside_a_hole_the_next_batch_is_served() -> None:
    source = with_holes(end=303)
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    for batch in source.batches[1:]:
        for offset in (batch.header.base_offset - 1, batch.header.base_offset - 6):
            result = await read(log, stream, offset, 1)
            assert read_header(result.buffers[0]).base_offset == batch.header.base_offset
    assert joined(await read_all(log, stream, 0, source.end, 50_000)) == source.served()


async def test_a_hole_at_the_end_is_led_over() -> None:
    """Else a consumer would ask for it for ever."""
    source = with_holes(end=400)
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    result = await read(log, stream, source.batches[-1].last_offset + 1)
    leading = _last_batch(result)
    assert leading.base_offset + leading.last_offset_delta == 399
    assert leading.record_count == 0
    assert leading.attributes & CONTROL


def with_holes(end: int) -> Source:
    """As Kafka's cleaner might have left it: between batches of three records, seven are gone."""
    return written([(base, batch_bytes([b"x" * 1000] * 3)) for base in range(0, 301, 10)], end)


# --- times


@pytest.mark.parametrize("name", SOURCES)
async def test_offsets_are_found_by_time(name: str) -> None:
    world = ForeignWorld(source=SOURCES[name]())
    log = world.log()
    stream = await world.attach(log)
    records = records_of(world.source)
    times = sorted({time for _, time in records})
    for time in [times[0] - 1, times[0], *times[:: max(1, len(times) // 9)], times[-1]]:
        expected = next((offset, found) for offset, found in records if found >= time)
        result = await log.find_timestamp(stream, time)
        assert result is not None
        assert (result.offset, result.timestamp) == expected
    assert await log.find_timestamp(stream, times[-1] + 1) is None
    greatest = await log.find_max_timestamp(stream)
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp) == next(
        (offset, time) for offset, time in records if time == times[-1]
    )


async def test_the_smallest_offset_wins_across_the_boundary() -> None:
    world = ForeignWorld(source=kafka(1))
    log = world.log()
    stream = await world.attach(log)
    records = records_of(world.source)
    greatest = max(time for _, time in records)
    await append(log, stream, batch_bytes([b"old", b"new"], timestamps=[greatest - 5, greatest + 5]))
    found = await log.find_timestamp(stream, greatest)
    assert found is not None
    assert found.offset == next(offset for offset, time in records if time >= greatest)
    later = await log.find_timestamp(stream, greatest + 1)
    assert later is not None
    assert later.offset == world.source.end + 1


async def test_pieces_that_are_too_old_are_not_read_for_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [
        (base, batch_bytes([b"x" * 5000] * 2, timestamps=[base, base + 1])) for base in range(0, 400, 2)
    ]
    world = ForeignWorld(source=written(batches, 400))
    log = world.log()
    stream = await world.attach(log)
    assert sum(len(entry.outside().rows) for entry in world.source.entries()) > 20
    reads = count_reads(log, monkeypatch)
    for time in (399, 200, 3):
        found = await log.find_timestamp(stream, time)
        assert found is not None
        assert found.offset == time
        assert len(reads) <= 2, "the piece that has it, and perhaps the one before"
        reads.clear()


def count_reads(log: AttachedLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    segments = log.entries.segments
    seen: list[int] = []
    before = segments.with_range

    async def counted(entry: Any, table: Any, position: int, length: int, work: Any) -> Any:
        seen.append(position)
        return await before(entry, table, position, length, work)

    monkeypatch.setattr(segments, "with_range", counted)
    return seen


def records_of(source: Source) -> list[tuple[int, int]]:
    """Offset and time of every record, markers too."""
    found: list[tuple[int, int]] = []
    for data in source.contents:
        for batch in walk_batches(data):
            columns = decode(as_data(data[batch.position : batch.end]), sparse=True)
            offsets = memoryview(columns.offsets).cast("B").cast("q")
            times = memoryview(columns.timestamps).cast("B").cast("q")
            found += zip(offsets, times, strict=True)
    return found


# --- the boundary


async def test_appends_go_on_at_the_boundary_with_the_sequences_of_the_source() -> None:
    world = ForeignWorld()
    world.source = replace_producer(kafka(1), timestamp=world.runtime.wall_ms())
    known = world.source.producers[0]
    log = world.log()
    stream = await world.attach(log)
    retried = batch_bytes(
        [b"x"] * (known.offset_delta + 1),
        producer=(known.producer_id, known.epoch, known.last_sequence - known.offset_delta),
    )
    again = await append(log, stream, retried)
    assert again.base_offset == known.last_offset - known.offset_delta, "a retry gets its old offset"
    skipped = batch_bytes([b"x"], producer=(known.producer_id, known.epoch, known.last_sequence + 2))
    with pytest.raises(LogUnavailable, match="is missing before it"):  # it may be on its way
        await append(log, stream, skipped)
    following = batch_bytes([b"next"], producer=(known.producer_id, known.epoch, known.last_sequence + 1))
    assert (await append(log, stream, following)).base_offset == world.source.end


async def test_nothing_is_appended_to_a_log_that_its_source_owns() -> None:
    world = ForeignWorld(source=kafka(1))
    log = world.log()
    stream = await world.attach(log, world.source.attached(boundary=CLASSIC))
    with pytest.raises(SourceOwnsLog):
        await append(log, stream, batch_bytes([b"too early"]))
    other = await log.create_streams(1)
    assert (await append(log, other[0], batch_bytes([b"fine"]))).base_offset == 0
    assert joined(await read_all(log, stream, 0, world.source.end, EVERYTHING)) == world.source.served()


async def test_of_streams_that_are_loaded_together_a_classic_one_is_not_kept() -> None:
    """An object with several streams has their states read side by side. One that is kept takes appends, and
    a classic stream's are its source's."""
    world = ForeignWorld(source=kafka(1))
    log = world.log()
    classic = await world.attach(log, world.source.attached(boundary=CLASSIC))
    own = [stream for stream in await log.create_streams(2 * DOMAINS) if (stream - classic) % DOMAINS == 0]
    committer = world.log()._committers[classic % DOMAINS]  # of a broker that knows none of them
    await committer._load_together([classic, *own])
    assert classic not in committer._states
    assert set(own) <= set(committer._states)


async def test_the_boundary_and_the_epoch_stay_through_appends_and_seals() -> None:
    world = ForeignWorld(source=kafka(1))
    log = world.log()
    stream = await world.attach(log)
    end = world.source.end
    origin = Origin(end, end, EPOCH)
    for number in range(3):
        await append(log, stream, batch_bytes([b"%d" % number]))
        mark = await world.streams().high_watermark(stream)
        assert mark is not None
        assert mark.value.origin == origin
    await log.delete_records(stream, -1)
    mark = await world.streams().high_watermark(stream)
    assert mark is not None
    assert mark.value.head is None, "it was sealed"
    assert mark.value.origin == origin


async def test_a_stream_is_laid_down_once_and_again_by_a_follower() -> None:
    world = ForeignWorld(source=kafka(0, 100_000))
    log = world.log()
    stream = await world.attach(log)
    await lay_down(world.streams(), stream, world.source.attached())
    with pytest.raises(AttachRefused):
        await lay_down(world.streams(), stream, world.source.attached(boundary=CLASSIC))
    with pytest.raises(AttachRefused):
        await lay_down(
            world.streams(), stream + 1, replace(world.source.attached(), end=world.source.end + 1)
        )


async def test_segments_that_leave_a_gap_are_refused() -> None:
    source = kafka(0)
    gap = replace(source, segments=[source.segments[0], (replace(source.segments[1][0], start=20_160), [])])
    with pytest.raises(AttachRefused, match="goes on at offset 20160"):
        gap.entries()


async def test_an_overlap_is_trimmed() -> None:
    """The second segment begins below the end of the first: what both have is served once."""
    source = kafka(0)
    first, second = source.segments[0][0], source.segments[1][0]
    batches = list(walk_batches(source.contents[0]))
    overlap = batches[-3:]
    data = b"".join(bytes(source.contents[0][batch.position : batch.end]) for batch in overlap)
    data += bytes(source.contents[1])
    source.bucket.put(second.path, data, 0)
    rows = [(batch.last_offset, batch.position) for batch in list(walk_batches(data))[1:]]
    longer = replace(
        second,
        start=first.end,
        rows=[(overlap[0].header.base_offset, 0), *rows],
        end_position=len(data),
        object_size=len(data),
    )
    served = source.served()
    world = ForeignWorld(source=replace(source, segments=[(first, []), (longer, [])]))
    log = world.log()
    stream = await world.attach(log)
    assert joined(await read_all(log, stream, 0, second.end, 70_000)) == served


async def test_an_overlap_may_be_trimmed_at_the_end_of_a_segment_too() -> None:
    """As where a leader was deposed: what its segment has behind that is not part of the log."""
    ours = [(base, batch_bytes([b"ours"] * 2)) for base in range(0, 20, 2)]
    deposed = [(base, batch_bytes([b"lost"] * 2)) for base in range(10, 16, 2)]
    first, second = written(ours[:5] + deposed, 10), written(ours[5:], 20)
    second.bucket.objects.update(first.bucket.objects)
    both = replace(second, segments=first.segments + second.segments)
    world = ForeignWorld(source=both)
    log = world.log()
    stream = await world.attach(log)
    found = await read_all(log, stream, 0, 20, 50_000)
    assert [value for result in found for _, value in values_in(result)] == [b"ours"] * 20


def test_a_producer_that_wrote_markers_only_begins_at_sequence_0() -> None:
    source = replace_producer(kafka(1), last_sequence=-1, offset_delta=0)
    states = snapshot_of(source.producers, source.end, 1 << 60).states
    entry = states.get(source.producers[0].producer_id)
    assert entry is not None
    assert entry.batches[-1].last_sequence == -1


# --- damage


@pytest.mark.parametrize("name", SOURCES)
async def test_damage_is_an_error_of_its_partition_and_names_object_and_byte(name: str) -> None:
    source = SOURCES[name]()
    path = source.segments[0][0].path
    data = bytearray(source.bucket.objects[path].data)
    data[len(data) // 2] ^= 1
    source.bucket.put(path, bytes(data), 0)
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    with pytest.raises(OutsideFault, match=rf"{path}.*byte"):
        for result in await read_until_error(log, stream, source.end):
            if result.error is not None:
                raise result.error
    [sound] = await log.create_streams(1)
    await append(log, sound, batch_bytes([b"fine"]))
    assert values_in(await read(log, sound, 0)) == [(0, b"fine")]


async def read_until_error(log: Log, stream: int, end: int) -> list[ReadResult]:
    found, offset = [], 0
    while offset < end:
        result = await read(log, stream, offset)
        found.append(result)
        if result.error is not None:
            break
        last = _last_batch(result)
        offset = last.base_offset + last.last_offset_delta + 1
    return found


async def test_a_segment_that_is_gone_is_an_error_and_nothing_is_guessed() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log()
    stream = await world.attach(log)
    world.source.bucket.delete(world.source.segments[0][0].path)
    result = await read(log, stream, 0)
    assert isinstance(result.error, OutsideFault)
    assert world.source.segments[0][0].path in str(result.error)


async def test_a_broker_that_does_not_know_the_store_says_so() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log()
    stream = await world.attach(log)
    world.knows_store = False
    result = await read(world.log(), stream, 0)
    assert isinstance(result.error, OutsideFault)
    assert "add it to foreign.stores" in str(result.error)


async def test_a_log_that_is_given_no_kind_refuses_such_entries_and_no_others() -> None:
    world = ForeignWorld(source=kafka(0))
    stream = await world.attach(world.log())
    log = Log(world.store, world.objects, world.runtime, DOMAINS, world.settings)
    [own] = await log.create_streams(1)
    await append(log, own, batch_bytes([b"ours"]))
    assert values_in(await read(log, own, 0)) == [(0, b"ours")]
    result = await read(log, stream, 0)
    assert isinstance(result.error, OutsideFault)
    assert await log.size(stream) == sum(entry.stored_bytes for entry in world.source.entries())
    with pytest.raises(OutsideFault):
        await log.find_timestamp(stream, 0)


async def test_a_broker_without_the_private_key_says_which() -> None:
    source = aiven(0)
    [name] = source.keys
    source.keys.clear()
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    result = await read(log, stream, 0)
    assert isinstance(result.error, OutsideFault)
    assert repr(name) in str(result.error)
    assert "foreign.keys" in str(result.error)


async def test_an_aborted_transaction_over_several_segments_is_named_in_each() -> None:
    source = kafka(0)
    spanning = AbortedRange(99, source.segments[0][0].end - 5, source.segments[1][0].start + 5)
    world = ForeignWorld(source=replace(source, aborted=[spanning]))
    log = world.log()
    stream = await world.attach(log)
    for offset in (spanning.first_offset, spanning.last_offset):
        assert (99, spanning.first_offset) in (await read(log, stream, offset, 1)).aborted
    assert (99, spanning.first_offset) not in (await read(log, stream, 0, 1)).aborted


async def test_what_is_kept_of_segments_is_bounded() -> None:
    world = ForeignWorld(source=kafka(0))
    log = world.log(foreign_cache_bytes=200_000)
    stream = await world.attach(log)
    assert joined(await read_all(log, stream, 0, world.source.end, 50_000)) == world.source.served()
    assert log.entries._pieces.size <= 200_000


# --- what checksums do not cover


COUNT = 40


async def test_a_wrong_base_offset_is_never_skipped_in_silence() -> None:
    """One bit of any base offset: an error, or all records at their offsets."""
    batches = [(number, one_record(b"%d" % number * 500)) for number in range(COUNT)]
    refused = 0
    for number in range(COUNT):
        for bit in range(9):
            source = written(batches, COUNT)
            [(segment, _)] = source.segments
            data = bytearray(source.contents[0])
            position = [*walk_batches(source.contents[0])][number].position
            data[position : position + 8] = (number ^ (1 << bit)).to_bytes(8, "big")
            source.bucket.put(segment.path, bytes(data), 0)
            refused += await _is_refused(source)
    assert refused >= COUNT * 9 - 5


async def _is_refused(source: Source) -> bool:
    world = ForeignWorld(source=source)
    log = world.log()
    attached = AttachedStream(source.entries(4_000), 0, COUNT, EPOCH)
    stream = await world.attach(log, attached)
    assert len(attached.entries[0].outside().rows) > 5
    offset = 0
    while offset < COUNT:
        result = await read(log, stream, offset)
        if isinstance(result.error, OutsideFault):
            return True
        found = values_in(result)
        assert [at for at, _ in found] == [*range(offset, offset + len(found))], "records are skipped"
        offset += len(found)
    return False


async def test_a_copy_that_is_not_the_source_s_bytes_takes_nobodys_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is of the right size. The source may be switched off once its segments are copied."""
    source = kafka(0)
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    kept = foreign_ownership._pieces

    async def damaged(*arguments: Any) -> AsyncIterator[list[bytearray]]:
        async for pieces in kept(*arguments):
            copied = [bytearray(piece) for piece in pieces]
            copied[0][len(copied[0]) // 2] ^= 1
            yield copied

    monkeypatch.setattr(foreign_ownership, "_pieces", damaged)
    with pytest.raises(OutsideFault, match="byte"):
        await log.entries._ownership.copy(stream)
    assert joined(await read_all(log, stream, 0, source.end, 70_000)) == source.served()
    monkeypatch.undo()
    assert await log.entries._ownership.copy(stream) == len(source.segments)
    source.bucket.objects.clear()
    assert joined(await read_all(world.log(), stream, 0, source.end, 70_000)) == source.served()


async def test_a_copy_whose_entry_went_meanwhile_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    source = kafka(0)
    world = ForeignWorld(source=source)
    log = world.log()
    stream = await world.attach(log)
    kept = ForeignOwnership._swap

    async def expired_first(self: ForeignOwnership, number: int, *arguments: Any) -> None:
        await log.delete_records(number, source.end)
        await kept(self, number, *arguments)

    monkeypatch.setattr(ForeignOwnership, "_swap", expired_first)
    await log.entries._ownership.copy(stream)
    assert world.keys(keys.REFERENCES) == []
