"""One record, and everything that is known of it: its batch, its producer, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.base.runtime.shown import printable
from dray.inspection.records.reading import FetchedRecord, OffsetGone, TopicReader, Unreadable
from dray.inspection.records.search import HeaderView, RecordRow, row_of
from dray.inspection.records.shown import Shown, preview, whole
from dray.inspection.storage.stored import EntryOf, StoredCluster
from dray.log.entries import EntryKind, IndexEntry

PLACE_KINDS: Final = {
    EntryKind.WAL: "wal",
    EntryKind.PARQUET: "parquet",
    EntryKind.CARRIED: "carried",
    EntryKind.OUTSIDE: "foreign",
}


@dataclass(frozen=True)
class BatchView:
    base_offset: int
    last_offset: int
    records: int
    length: int
    codec: str
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    append_time: bool
    checksum: str


@dataclass(frozen=True)
class Place:
    """The place where the record lies: in the object store, or in the metadata store with its commit."""

    kind: str
    """one of `PLACE_KINDS`"""
    path: str
    object_id: str
    start: int
    end: int
    """The offsets that the object holds of this partition."""
    position: int
    length: int
    """The bytes that are read for it: its batch, or its row group."""
    size: int | None
    """The size of the whole file, for a Parquet file."""
    row_group: int | None
    row: int | None
    """The row, counted from the start of its row group."""
    created_ms: int
    is_head: bool
    due_ms: int | None
    """When a record that is not in the table yet is old enough to be compacted."""


@dataclass(frozen=True)
class Passport:
    topic: str
    partition: int
    offset: int
    row: RecordRow
    key: Shown
    value: Shown
    headers: Sequence[HeaderView]
    batch: BatchView
    place: Place | None
    place_unknown: str | None
    """Why it is not known where the record lies."""
    start: int
    end: int
    """The offsets that the partition holds now."""
    previous: int | None
    following: int | None


class NoRecord(Exception):
    """No record has that offset: it is a gap, or outside of what the partition holds."""

    def __init__(self, text: str, start: int, end: int) -> None:
        super().__init__(text)
        self.start = start
        self.end = end


async def raw_record(reader: TopicReader, partition: int, offset: int) -> FetchedRecord | Unreadable:
    """Raises `NoRecord`."""
    try:
        fetched = await reader.fetch(partition, offset, max_bytes=1)
    except OffsetGone as error:
        raise NoRecord(
            f"{reader.name}-{partition} holds the offsets from {error.start} up to {error.end}, not {offset}",
            error.start,
            error.end,
        ) from error
    for item in fetched.items:
        if isinstance(item, Unreadable) or item.record.offset == offset:
            return item
    if offset >= fetched.end >= 0:
        raise NoRecord(
            f"{reader.name}-{partition} ends at {fetched.end}: offset {offset} is not written yet",
            fetched.start,
            fetched.end,
        )
    raise NoRecord(
        f"{reader.name}-{partition} has no record at offset {offset}: it was compacted away, or it marks the "
        "end of a transaction",
        fetched.start,
        fetched.end,
    )


async def passport(
    reader: TopicReader,
    partition: int,
    offset: int,
    stored: StoredCluster | None = None,
    wal_max_age_ms: int | None = None,
) -> Passport:
    """Raises `NoRecord`. `wal_max_age_ms`: when compactors take up what is in WAL objects."""
    item = await raw_record(reader, partition, offset)
    place, unknown = await _place(reader.name, partition, offset, stored, wal_max_age_ms)
    bounds = (await reader.bounds())[partition]
    batch = item.batch
    record = item.record if isinstance(item, FetchedRecord) else None
    return Passport(
        reader.name,
        partition,
        offset,
        row_of(partition, item),
        whole(None if record is None else record.key),
        whole(None if record is None else record.value),
        [
            HeaderView(printable(name), preview(value, 2000))
            for name, value in (() if record is None else record.headers)
        ],
        BatchView(
            batch.base_offset,
            batch.last_offset,
            batch.record_count,
            batch.length,
            batch.codec,
            batch.leader_epoch,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.transactional,
            batch.append_time,
            f"{batch.checksum:08x}",
        ),
        place,
        unknown,
        bounds.start,
        bounds.end,
        offset - 1 if offset > bounds.start else None,
        offset + 1 if offset + 1 < bounds.end else None,
    )


async def _place(
    topic: str, partition: int, offset: int, stored: StoredCluster | None, wal_max_age_ms: int | None
) -> tuple[Place | None, str | None]:
    if stored is None:
        return None, "only Kafka's protocol is asked here, and it does not say"
    known = await stored.topic(topic)
    stream = None if known is None else known.stream_of(partition)
    if stream is None:
        return None, "the topic is not in the metadata store that the console reads"
    found = await stored.entry_of(stream, offset)
    if found is None:
        return None, "no index entry holds this offset any more"
    return place_in(found, offset, wal_max_age_ms), None


def place_in(found: EntryOf, offset: int, wal_max_age_ms: int | None = None) -> Place:
    entry = found.entry
    position, length, row_group, row = _bytes_of(entry, offset)
    due = None if entry.is_parquet or wal_max_age_ms is None else entry.created_ms + wal_max_age_ms
    return Place(
        PLACE_KINDS[entry.kind],
        entry.place,
        str(entry.object_id),
        entry.start,
        entry.end,
        position,
        length,
        entry.file_size if entry.is_parquet else None,
        row_group,
        row,
        entry.created_ms,
        found.is_head,
        due,
    )


def _bytes_of(entry: IndexEntry, offset: int) -> tuple[int, int, int | None, int | None]:
    if entry.is_outside:
        table = entry.outside()
        begin, end = table.bounds_of(table.piece_of(offset))
        return begin, end - begin, None, None
    if not entry.is_parquet:
        for base, batch in entry.batches():
            if base <= offset < base + batch.record_count:
                return batch.position, batch.length, None, None
        return 0, 0, None, None
    groups = entry.row_groups()
    for number, group in enumerate(groups):
        if group.first_offset <= offset <= group.last_offset:
            # In a row group with holes only the rows themselves say which row it is.
            row = offset - group.first_offset if group.is_dense else None
            return group.position, group.length, number, row
    return 0, 0, None, None
