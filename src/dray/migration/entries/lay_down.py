"""Laying a stream down over segments that another system wrote, where they lie.

The inventory says which segments hold which offsets; here they become index entries, and the keys of a new
stream: entries, producer snapshot, start, job, and the high watermark at the end of the source's tier. The
topic's record comes last and elsewhere: until it is there, nothing of this is seen. Every key is put only if
it is absent, so a process that died may be followed by another one with the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from dray.log.entries import NO_TIMESTAMP, EntryKind, HighWatermark, IndexEntry
from dray.log.jobs.machine import Job, put_job, put_start
from dray.log.origins import NO_EPOCH, Origin
from dray.log.outside_table import AbortedRange, OutsideRow, OutsideTable, grow
from dray.log.producer_state import ProducerEntry, ProducerSnapshot, ProducerStates, RememberedBatch
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import ABSENT, MetadataError, Put
from dray.migration.entries.segments import ForeignLayout
from dray.migration.formats.kafka_files import ProducerRow, TimeRow

PIECE_BYTES: Final = 1 << 20
"""The bytes of a segment that are read at a time, at least."""

DAY_MS: Final = 24 * 3_600_000
_ENTRIES_AT_ONCE: Final = 64
_MOST_BYTES_AT_ONCE: Final = 512 << 10


class AttachRefused(LogError):
    """The segments do not make a stream, or the stream is there and is another one."""


@dataclass(frozen=True, slots=True)
class ForeignSegment:
    """One segment as an inventory found it, checked: what of it counts, and where it lies."""

    segment_id: UUID
    store: str  # its name in the config
    path: str  # of its bytes, in that store
    layout: ForeignLayout
    start: int  # the first offset that counts: above that of its first batch where an overlap was trimmed
    end: int  # one past the last
    # No record is younger. Kafka's metadata says the greatest time of a segment.
    max_timestamp: int
    # None is older, as far as is known.
    min_timestamp: int
    # Offset and position, as its index has them. The first is where its batches begin, with its first offset.
    rows: Sequence[tuple[int, int]]
    end_position: int  # where its last batch ends, in the segment as it was written
    object_size: int  # of the object at `path`
    manifest: str = ""  # the path of Aiven's manifest
    times: Sequence[TimeRow] = ()  # its `.timeindex`: without it, finding a time takes a look at all of it


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """A place where a segment is cut: a batch begins there, and `offset` is its base offset."""

    position: int
    offset: int
    # If a day (UTC) begins there: no record before it is as young, and none behind it is older. Between
    # two such cuts there is one day.
    midnight: int = NO_TIMESTAMP


def cut_positions(segment: ForeignSegment, target_bytes: int) -> list[int]:
    """The positions at which to cut a large segment into entries of about so many bytes. A batch begins at
    each; its base offset stands in its header, and has to be read."""
    found: list[int] = []
    begin = segment.rows[0][1]
    for _, position in segment.rows[1:]:
        if position - begin >= target_bytes and segment.end_position - position >= target_bytes // 2:
            found.append(position)
            begin = position
    return found


def entries_of(
    segments: Iterable[tuple[ForeignSegment, Sequence[SegmentCut]]],
    aborted: Sequence[AbortedRange],
    created_ms: int,
    piece_bytes: int = PIECE_BYTES,
) -> list[IndexEntry]:
    """The index of a stream, from the segments that hold it, in order. `aborted`: of the whole partition,
    also those whose transaction was still open when the source ended. Raises `AttachRefused`."""
    entries: list[IndexEntry] = []
    size, running, running_offset = 0, NO_TIMESTAMP, -1
    for segment, cuts in segments:
        for entry in _entries_of(segment, cuts, aborted, created_ms, piece_bytes):
            if entries and entry.start != entries[-1].end:
                raise AttachRefused(
                    f"{segment.path}: it goes on at offset {entry.start}, and {entries[-1].end} is next"
                )
            size += entry.stored_bytes
            if entry.max_timestamp > running:
                running, running_offset = entry.max_timestamp, entry.start
            entries.append(
                replace(
                    entry,
                    cumulative_size=size,
                    running_max_timestamp=running,
                    running_max_offset=running_offset,
                )
            )
    return entries


def _entries_of(
    segment: ForeignSegment,
    cuts: Sequence[SegmentCut],
    aborted: Sequence[AbortedRange],
    created_ms: int,
    piece_bytes: int,
) -> list[IndexEntry]:
    every = [OutsideRow(offset, position, NO_TIMESTAMP) for offset, position in segment.rows]
    if not 0 <= segment.start < segment.end or not grow(every, segment.end_position):
        raise AttachRefused(f"{segment.path}: its offsets or the rows of its index do not grow")
    begins = [SegmentCut(every[0].position, segment.start), *cuts]
    ends = [*cuts, SegmentCut(segment.end_position, segment.end)]
    found: list[IndexEntry] = []
    for begin, end in zip(begins, ends, strict=True):
        if end.offset <= segment.start or begin.offset >= segment.end:
            continue  # an overlap was trimmed: this part is in another segment
        start, stop = max(begin.offset, segment.start), min(end.offset, segment.end)
        if start >= stop or begin.position >= end.position:
            raise AttachRefused(f"{segment.path}: it cannot be cut at byte {begin.position}")
        rows = [row for row in every if begin.position <= row.position < end.position]
        if not rows or rows[0].position != begin.position:
            raise AttachRefused(f"{segment.path}: its index has no row for byte {begin.position}")
        rows[0] = rows[0]._replace(offset=min(start, rows[0].offset))
        kept = thinned(rows, end.position, piece_bytes)
        kept[1:] = [row._replace(time=_greatest_time(segment, row.offset)) for row in kept[1:]]
        midnights = [cut for cut in cuts if cut.midnight != NO_TIMESTAMP]
        least = max(
            [segment.min_timestamp, *[cut.midnight for cut in midnights if cut.position <= begin.position]]
        )
        greatest = _greatest_time(segment, stop)
        if any(cut.position >= end.position for cut in midnights):
            greatest = min(greatest, (least // DAY_MS + 1) * DAY_MS - 1)
        table = OutsideTable(
            segment.layout,
            segment.store,
            segment.manifest,
            segment.object_size,
            end.position,
            tuple(kept),
            tuple([one for one in aborted if one.first_offset < stop and one.last_offset >= start]),
        )
        found.append(
            IndexEntry(
                start=start,
                end=stop,
                cumulative_size=0,
                created_ms=created_ms,
                min_timestamp=least,
                max_timestamp=greatest,
                running_max_timestamp=NO_TIMESTAMP,
                running_max_offset=-1,
                object_id=segment.segment_id,
                path=segment.path,
                table=table.encode(),
                kind=EntryKind.OUTSIDE,
            )
        )
    return found


def _greatest_time(segment: ForeignSegment, end: int) -> int:
    """No record below `end` is younger. A row of the time index has the greatest time up to its offset."""
    for row in segment.times:
        if row.offset >= end - 1:
            return min(row.timestamp, segment.max_timestamp)
    return segment.max_timestamp


def open_transactions(producers: Iterable[ProducerRow], end: int) -> list[AbortedRange]:
    """A transaction that a gone source left undecided is never committed: it counts as aborted."""
    return [
        AbortedRange(row.producer_id, row.transaction_first_offset, end - 1)
        for row in producers
        if 0 <= row.transaction_first_offset < end
    ]


def snapshot_of(producers: Iterable[ProducerRow], end: int, expiry_ms: int) -> ProducerSnapshot:
    """The producers as the source knew them at the end: their next batch is theirs, and a retry of the last
    one is answered with its old offset."""
    states = ProducerStates(expiry_ms)
    for row in producers:
        if row.last_sequence < 0:  # it wrote markers only: its next sequence is 0
            batch = RememberedBatch(-1, -1, -1, -1)
        else:
            batch = RememberedBatch(
                (row.last_sequence - row.offset_delta) % (1 << 31),
                row.last_sequence,
                row.last_offset - row.offset_delta,
                -1,
            )
        states.put(row.producer_id, ProducerEntry(row.epoch, row.timestamp, (batch,)))
    return ProducerSnapshot(end, states)


@dataclass(frozen=True, slots=True)
class AttachedStream:
    """All that a stream is at the moment at which it is attached."""

    entries: Sequence[IndexEntry]
    start: int
    end: int  # T: the end of the source's tier
    leader_epoch: int  # of the topic: `origins.epoch_above` the source's
    producers: Sequence[ProducerRow] = field(default=())
    boundary: int | None = None  # None: the end, which is a cold attach; or `CLASSIC`
    # Of the last batch, as the source gave it: the mirror that goes on from here asks with it whether the
    # source's history is still that of its tier.
    source_epoch: int = NO_EPOCH

    def high_watermark(self) -> HighWatermark:
        boundary = self.end if self.boundary is None else self.boundary
        origin = Origin(boundary, self.end, self.leader_epoch, self.source_epoch)
        if not self.entries:
            return HighWatermark(self.end, origin=origin)
        last = self.entries[-1]
        return HighWatermark(
            self.end,
            last.cumulative_size,
            last.running_max_timestamp,
            last.running_max_offset,
            origin=origin,
        )


async def lay_down(store: StreamStore, stream: int, attached: AttachedStream) -> None:
    """Put the keys of a stream whose id is fresh, and see that they are there. May be called again with the
    same stream and plan. Raises `AttachRefused`, `LogUnavailable`."""
    _check(attached)
    snapshot = snapshot_of(attached.producers, attached.end, store.producer_expiry_ms)
    try:
        part: list[Put] = []
        size = 0
        for entry in attached.entries:
            key = keys.index_entry(stream, entry.end, entry.cumulative_size)
            put = Put(key, entry.encode(), ABSENT)
            if part and (len(part) >= _ENTRIES_AT_ONCE or size + len(put.value) > _MOST_BYTES_AT_ONCE):
                await store.write(stream, part)
                part, size = [], 0
            part.append(put)
            size += len(put.value)
        if part:
            await store.write(stream, part)
        await store.write(
            stream,
            [
                store.put_snapshot(stream, snapshot, 0),
                put_start(stream, attached.start, 0),
                put_job(stream, Job(), 0),
            ],
        )
        mark = attached.high_watermark()
        await store.write(stream, [Put(keys.high_watermark(stream), mark.encode(), ABSENT)])
        await store.barrier(stream)
        view = await store.view(stream)
        seen = await store.snapshot(stream)
    except MetadataError as error:
        raise LogUnavailable(f"stream {stream} could not be laid down: try again ({error})") from error
    there = view is not None and (
        view.high_watermark.value == mark
        and view.start == attached.start
        and [entry.value for entry in view.entries] == list(attached.entries)
        and seen.value.encode() == snapshot.encode()
    )
    if not there:
        raise AttachRefused(f"stream {stream}: what is there is not what was to be laid down")


def _check(attached: AttachedStream) -> None:
    reached = attached.start
    for entry in attached.entries:
        if entry.start != reached or entry.end <= entry.start:
            raise AttachRefused(f"{entry.path}: it begins at offset {entry.start}, and {reached} is next")
        reached = entry.end
    if reached != attached.end:
        raise AttachRefused(f"the segments end at offset {reached}, not {attached.end}")


def thinned(rows: Sequence[OutsideRow], end_position: int, piece_bytes: int) -> list[OutsideRow]:
    """As few of the rows as leave pieces of at least so many bytes. The first stays: it is where the batches
    begin."""
    kept: list[OutsideRow] = []
    for row in rows:
        if not kept or (
            row.position - kept[-1].position >= piece_bytes
            and end_position - row.position >= piece_bytes // 2
        ):
            kept.append(row)
    return kept
