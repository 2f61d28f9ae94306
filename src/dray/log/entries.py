"""The values of the log: index entries, high watermarks and starts, as they are stored.

An index entry lists the batches it holds, by their place in the WAL object. A batch that was refused after
the upload lies in the object too, but in no entry, and readers follow the entry. After compaction the entry
names a Parquet file instead, and lists the file's row groups. The entry of a small append carries its batches
itself, behind its table: it has no object (`docs/design/0100`). An entry of an object that the log did not
write says how to find batches in it (`outside_table.py`). An entry is kept in memory as it is stored, a
fixed-size row per batch or row group, so that a cached index costs little and gives the garbage collector
nothing to walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.base.runtime.lean_dataclasses import dataclass
from dray.kafka.records.header import HEADER_SIZE, LOG_APPEND_TIME
from dray.log.origins import MIRRORED_FORMAT, ORIGIN_SIZES, Origin, format_of, switched
from dray.log.outside_table import OutsideTable, check_table, row_count
from dray.log.parquet.statistics import RowGroup, are_dense
from dray.metadata.values import ValueCorrupt, unseal

FORMAT: Final = 1
# Of entries that name a Parquet file, so that a build from before there were any refuses them by name.
PARQUET_FORMAT: Final = 2
# Of entries that carry their batches, for the same reason.
CARRIED_FORMAT: Final = 3
# Of entries whose file has no row for some of their offsets: compacted by key. Every other file keeps format
# 2, so that older builds go on reading it.
SPARSE_FORMAT: Final = 4
# Of entries that name an object that the log did not write.
OUTSIDE_FORMAT: Final = 5
# Of offsets whose object was lost and that somebody gave up: no file, and no row.
GAP_FORMAT: Final = 6
NO_TIMESTAMP: Final = -1

# format, kind, start, end, cumulative size, created, minimum and maximum timestamp, running maximum and its
# offset, object id, length of the path, number of batches or row groups
_ENTRY = Struct(">BBqqqqqqqq16sHI")
_BATCH = Struct(">IIIhqqqhi")
# Of a Parquet file: its size, and the length of its footer with the eight bytes behind it
_FILE = Struct(">QI")
_ROW_GROUP = Struct(">QIIqQqq")
_SPARSE_ROW_GROUP = Struct(">QIIqQqqq")  # and its last offset
# format, closed, has head, end, cumulative size, running maximum timestamp and its offset
_HIGH_WATERMARK = Struct(">BBBqqqq")
_START = Struct(">Bq")


class EntryKind(IntEnum):
    """The place of an entry's records: in a WAL object, in a Parquet file, in the entry itself, or in an
    object that the log did not write."""

    WAL = 0
    PARQUET = 1
    CARRIED = 2
    OUTSIDE = 3


class BatchReference(NamedTuple):
    """One batch of an entry. `position` counts from the start of the object, or of what the entry carries."""

    position: int
    length: int
    record_count: int
    attributes: int
    min_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def append_time_ms(self) -> int:
        """The time that the broker stamped, or -1 where the producer's own times stand."""
        return self.max_timestamp if self.attributes & LOG_APPEND_TIME else NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Offsets `start` up to, not including, `end`, and where their records are."""

    start: int
    end: int
    cumulative_size: int
    created_ms: int
    min_timestamp: int
    max_timestamp: int
    # Over the whole stream up to here, since producers' times are not monotonic.
    running_max_timestamp: int
    running_max_offset: int
    object_id: UUID  # of the WAL object, the Parquet file, the carried append, or the outside object
    path: str  # empty for a carried entry
    table: bytes
    kind: EntryKind = EntryKind.WAL
    # Some offsets have no row in the file. Of its first and last ones, too: only the entry's own bounds say
    # what it covers.
    sparse: bool = False
    data: bytes = b""  # the batches of a carried entry, one behind the other

    @classmethod
    def parquet(
        cls,
        inputs: Sequence[IndexEntry],
        parquet_id: UUID,
        path: str,
        file_size: int,
        footer_length: int,
        row_groups: Sequence[RowGroup],
        start: int | None = None,
    ) -> IndexEntry:
        """The entry that takes the place of adjoining ones: it goes onto the key of the last. `start`: where
        that is not the start of the first."""
        first, last = inputs[0], inputs[-1]
        start = first.start if start is None else start
        sparse = not are_dense(row_groups, start, last.end)
        return cls(
            start=start,
            end=last.end,
            cumulative_size=last.cumulative_size,
            created_ms=last.created_ms,
            min_timestamp=min(entry.min_timestamp for entry in inputs),
            max_timestamp=max(entry.max_timestamp for entry in inputs),
            running_max_timestamp=last.running_max_timestamp,
            running_max_offset=last.running_max_offset,
            object_id=parquet_id,
            path=path,
            table=pack_row_groups(file_size, footer_length, row_groups, sparse=sparse),
            kind=EntryKind.PARQUET,
            sparse=sparse,
        )

    @classmethod
    def packed(
        cls, inputs: Sequence[IndexEntry], wal_id: UUID, path: str, references: Sequence[BatchReference]
    ) -> IndexEntry:
        """The entry that takes the place of adjoining carried ones, once their batches lie in a WAL object.
        It says of its batches and their producers what they said."""
        first, last = inputs[0], inputs[-1]
        return cls(
            start=first.start,
            end=last.end,
            cumulative_size=last.cumulative_size,
            created_ms=last.created_ms,
            min_timestamp=min(entry.min_timestamp for entry in inputs),
            max_timestamp=max(entry.max_timestamp for entry in inputs),
            running_max_timestamp=last.running_max_timestamp,
            running_max_offset=last.running_max_offset,
            object_id=wal_id,
            path=path,
            table=pack_batches(list(references)),
        )

    @property
    def is_parquet(self) -> bool:
        return self.kind is EntryKind.PARQUET

    @property
    def is_gap(self) -> bool:
        """Have all of its offsets been given up (`lost_objects.py`)? It passes for a file that has no row,
        and there is no object at its path."""
        return self.sparse and len(self.table) == _FILE.size

    @property
    def is_carried(self) -> bool:
        return self.kind is EntryKind.CARRIED

    @property
    def is_outside(self) -> bool:
        return self.kind is EntryKind.OUTSIDE

    @property
    def lists_batches(self) -> bool:
        """Has it a row for each batch? If so, it also says what its producers wrote."""
        return self.kind is EntryKind.WAL or self.kind is EntryKind.CARRIED

    @property
    def is_referenced(self) -> bool:
        """Does its stream hold a reference to its object? Parquet files have none: their collector asks the
        index. A carried entry has no object. That of an outside object is another key (`jobs.removal`)."""
        return self.kind is EntryKind.WAL

    @property
    def place(self) -> str:
        """The place of its records, for messages."""
        return self.path or f"the carried entry {self.object_id.hex}"

    # --- of a WAL object, or of a carried entry

    @property
    def batch_count(self) -> int:
        self._must_list_batches()
        return len(self.table) // _BATCH.size

    def batches(self) -> Iterator[tuple[int, BatchReference]]:
        """Every batch with its base offset."""
        self._must_list_batches()
        return self._batches()

    def _batches(self) -> Iterator[tuple[int, BatchReference]]:
        offset = self.start
        for row in _BATCH.iter_unpack(self.table):
            reference = BatchReference._make(row)
            yield offset, reference
            offset += reference.record_count

    def places(self) -> tuple[list[int], list[int], list[int]]:
        """Base offset, position and length of every batch."""
        self._must_list_batches()
        columns = list(zip(*_BATCH.iter_unpack(self.table), strict=True))
        if not columns:
            return [], [], []
        return list(accumulate(columns[2][:-1], initial=self.start)), list(columns[0]), list(columns[1])

    # --- of a Parquet file

    @property
    def file_size(self) -> int:
        return self._file()[0]

    @property
    def footer_length(self) -> int:
        """The length of the footer with the eight bytes behind it: the tail of the file, which a reader asks
        for first."""
        return self._file()[1]

    def row_groups(self) -> list[RowGroup]:
        self._must_be(EntryKind.PARQUET)
        table = self.table[_FILE.size :]
        if self.sparse:
            return [RowGroup._make(row) for row in _SPARSE_ROW_GROUP.iter_unpack(table)]
        return [RowGroup._make((*row, row[3] + row[2] - 1)) for row in _ROW_GROUP.iter_unpack(table)]

    @property
    def record_count(self) -> int:
        """How many records there are: in a sparse entry fewer than offsets."""
        if not self.sparse:
            return self.end - self.start
        return sum(group.record_count for group in self.row_groups())

    @property
    def last_record(self) -> int:
        """The offset of the last record that is there; of a gap, the one before its first."""
        if self.is_gap:
            return self.start - 1
        return self.row_groups()[-1].last_offset if self.sparse else self.end - 1

    def _file(self) -> tuple[int, int]:
        self._must_be(EntryKind.PARQUET)
        size, footer_length = _FILE.unpack_from(self.table)
        return size, footer_length

    # --- of an outside object

    def outside(self) -> OutsideTable:
        self._must_be(EntryKind.OUTSIDE)
        return OutsideTable.decode(self.table)

    @property
    def stored_bytes(self) -> int:
        """The bytes that its records take in their store; of an outside object, as they were written."""
        if self.kind is EntryKind.PARQUET:
            return self.file_size
        return self.outside().size if self.kind is EntryKind.OUTSIDE else sum(self.places()[2])

    def _must_list_batches(self) -> None:
        if not self.lists_batches:
            raise ValueError(f"{self.place} is a {self.kind.name} object, and has no batches")

    def _must_be(self, kind: EntryKind) -> None:
        if self.kind is not kind:
            raise ValueError(f"{self.path} is a {self.kind.name} object, not a {kind.name} one")

    # --- as stored

    def encode(self) -> bytes:
        path = self.path.encode()
        if self.is_parquet:
            row = _SPARSE_ROW_GROUP if self.sparse else _ROW_GROUP
            count = (len(self.table) - _FILE.size) // row.size
        elif self.is_outside:
            count = row_count(self.table)
        else:
            count = len(self.table) // _BATCH.size
        return b"".join(
            (
                _ENTRY.pack(
                    self._format,
                    self.kind,
                    self.start,
                    self.end,
                    self.cumulative_size,
                    self.created_ms,
                    self.min_timestamp,
                    self.max_timestamp,
                    self.running_max_timestamp,
                    self.running_max_offset,
                    self.object_id.bytes,
                    len(path),
                    count,
                ),
                path,
                self.table,
                self.data,
            )
        )

    @property
    def _format(self) -> int:
        if self.is_gap:
            return GAP_FORMAT
        return SPARSE_FORMAT if self.sparse else _FORMATS[self.kind]

    @classmethod
    def decode(cls, value: bytes) -> IndexEntry:
        format_version, _ = unseal("an offset index entry", value, GAP_FORMAT)
        if len(value) < _ENTRY.size:
            raise ValueCorrupt("an offset index entry", f"{len(value)} bytes")
        (
            _,
            kind,
            start,
            end,
            cumulative,
            created,
            minimum,
            maximum,
            running,
            running_offset,
            object_id,
            path_size,
            count,
        ) = _ENTRY.unpack_from(value)
        table_at = _ENTRY.size + path_size
        sparse = format_version in (SPARSE_FORMAT, GAP_FORMAT)
        expected = _KINDS[format_version]
        if expected is EntryKind.PARQUET:
            table_size = _FILE.size + count * (_SPARSE_ROW_GROUP if sparse else _ROW_GROUP).size
        elif expected is EntryKind.OUTSIDE:
            table_size = max(0, len(value) - table_at)
        else:
            table_size = count * _BATCH.size
        data_at = table_at + table_size
        if expected is EntryKind.CARRIED:
            fits = path_size == 0 and _carries(value[table_at:data_at], len(value) - data_at)
        elif expected is EntryKind.OUTSIDE:
            fits = check_table(value[table_at:], count)
        else:
            fits = len(value) == data_at and (sparse and count == 0) == (format_version == GAP_FORMAT)
        if kind != expected or not fits:
            raise ValueCorrupt("an offset index entry", f"{len(value)} bytes, kind {kind}")
        try:
            path = value[_ENTRY.size : table_at].decode()
        except UnicodeDecodeError as error:
            raise ValueCorrupt("an offset index entry", str(error)) from error
        return cls(
            start,
            end,
            cumulative,
            created,
            minimum,
            maximum,
            running,
            running_offset,
            UUID(bytes=object_id),
            path,
            value[table_at:data_at],
            expected,
            sparse,
            value[data_at:],
        )


_FORMATS: Final = {
    EntryKind.WAL: FORMAT,
    EntryKind.PARQUET: PARQUET_FORMAT,
    EntryKind.CARRIED: CARRIED_FORMAT,
    EntryKind.OUTSIDE: OUTSIDE_FORMAT,
}
_KINDS: Final = {
    FORMAT: EntryKind.WAL,
    PARQUET_FORMAT: EntryKind.PARQUET,
    CARRIED_FORMAT: EntryKind.CARRIED,
    SPARSE_FORMAT: EntryKind.PARQUET,
    GAP_FORMAT: EntryKind.PARQUET,
    OUTSIDE_FORMAT: EntryKind.OUTSIDE,
}


def _carries(table: bytes, size: int) -> bool:
    """Does a table describe exactly the bytes behind it, one batch behind the other?"""
    if size <= 0 or len(table) % _BATCH.size:
        return False
    reached = 0
    for position, length, *_ in _BATCH.iter_unpack(table):
        if position != reached or length < HEADER_SIZE:
            return False
        reached += length
    return reached == size


def pack_batches(references: list[BatchReference]) -> bytes:
    pack = _BATCH.pack
    return b"".join([pack(*reference) for reference in references])


def pack_row_groups(
    file_size: int, footer_length: int, row_groups: Sequence[RowGroup], *, sparse: bool = False
) -> bytes:
    if sparse:
        rows = [_SPARSE_ROW_GROUP.pack(*group) for group in row_groups]
    else:
        rows = [_ROW_GROUP.pack(*group[:-1]) for group in row_groups]
    return _FILE.pack(file_size, footer_length) + b"".join(rows)


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """The commit point of a stream: its end, and the entry that brought it there (the head).

    A sealed stream has no head; a closed one takes no more appends.
    """

    end: int = 0
    cumulative_size: int = 0
    max_timestamp: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    head: IndexEntry | None = None
    closed: bool = False
    origin: Origin | None = None  # of a stream that was not born here

    @property
    def filed_end(self) -> int:
        """Up to here the index has everything."""
        return self.end if self.head is None else self.head.start

    def sealed(self, closed: bool = False) -> HighWatermark:
        return HighWatermark(
            self.end,
            self.cumulative_size,
            self.max_timestamp,
            self.max_timestamp_offset,
            None,
            self.closed or closed,
            self.origin,
        )

    @classmethod
    def at(cls, head: IndexEntry, origin: Origin | None = None) -> HighWatermark:
        """`origin`: that of the high watermark which this one follows."""
        return cls(
            head.end,
            head.cumulative_size,
            head.running_max_timestamp,
            head.running_max_offset,
            head,
            origin=origin,
        )

    @property
    def is_classic(self) -> bool:
        """Does its source own the log, so that nothing may be appended here?"""
        return self.origin is not None and self.origin.is_classic

    def switched(self) -> HighWatermark:
        """The source gives the log up: from its end on, Dray assigns the offsets. Raises `BoundaryStands`."""
        return replace(self, origin=switched(self.origin, self.end))

    def encode(self) -> bytes:
        fixed = _HIGH_WATERMARK.pack(
            format_of(self.origin),
            self.closed,
            self.head is not None,
            self.end,
            self.cumulative_size,
            self.max_timestamp,
            self.max_timestamp_offset,
        )
        if self.origin is not None:
            fixed += self.origin.encode()
        return fixed if self.head is None else fixed + self.head.encode()

    @classmethod
    def decode(cls, value: bytes) -> HighWatermark:
        format_version, _ = unseal("a high watermark", value, MIRRORED_FORMAT)
        size = _HIGH_WATERMARK.size
        fixed = size + ORIGIN_SIZES[format_version]
        if len(value) < fixed:
            raise ValueCorrupt("a high watermark", f"{len(value)} bytes")
        _, closed, has_head, end, cumulative, maximum, maximum_offset = _HIGH_WATERMARK.unpack_from(value)
        if not has_head and len(value) != fixed:
            raise ValueCorrupt("a high watermark", f"{len(value)} bytes, and no head")
        head = IndexEntry.decode(value[fixed:]) if has_head else None
        origin = None if fixed == size else Origin.decode(value, size, format_version)
        return cls(end, cumulative, maximum, maximum_offset, head, bool(closed), origin)


def encode_start(offset: int) -> bytes:
    """A stream's start: the first offset that still exists."""
    return _START.pack(FORMAT, offset)


def decode_start(value: bytes) -> int:
    unseal("a stream's start", value, FORMAT)
    if len(value) != _START.size:
        raise ValueCorrupt("a stream's start", f"{len(value)} bytes")
    start: int = _START.unpack(value)[1]
    return start
