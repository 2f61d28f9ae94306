"""The values of the log: index entries and high watermarks, as they are stored.

An index entry lists the batches it holds, by their place in the WAL object: a batch that was
refused after the upload lies in the object too, but in no entry, and whoever reads follows the
entry. An entry is kept in memory as it is stored, a fixed-size row per batch, so that a cached index
costs little and gives the garbage collector nothing to walk.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.metadata.values import ValueCorrupt, unseal

FORMAT: Final = 1
NO_TIMESTAMP: Final = -1

_WAL: Final = 0

# format, kind, start, end, cumulative size, created, minimum and maximum timestamp, running maximum and its
# offset, WAL id, length of the path, number of batches
_ENTRY = Struct(">BBqqqqqqqq16sHI")
_BATCH = Struct(">IIIhqqqhi")
# format, closed, has head, end, cumulative size, running maximum timestamp and its offset
_HIGH_WATERMARK = Struct(">BBBqqqq")


class BatchReference(NamedTuple):
    """One batch of an entry. `position` counts from the start of the object."""

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
        return self.max_timestamp if self.attributes & 0x08 else NO_TIMESTAMP


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Offsets `start` up to, not including, `end`, and where their batches are."""

    start: int
    end: int
    cumulative_size: int
    created_ms: int
    min_timestamp: int
    max_timestamp: int
    # Over the whole stream up to here, since producers' times are not monotonic.
    running_max_timestamp: int
    running_max_offset: int
    wal_id: UUID
    path: str
    table: bytes

    @property
    def batch_count(self) -> int:
        return len(self.table) // _BATCH.size

    def batches(self) -> Iterator[tuple[int, BatchReference]]:
        """Every batch with its base offset."""
        offset = self.start
        for row in _BATCH.iter_unpack(self.table):
            reference = BatchReference._make(row)
            yield offset, reference
            offset += reference.record_count

    def encode(self) -> bytes:
        path = self.path.encode()
        return b"".join(
            (
                _ENTRY.pack(
                    FORMAT,
                    _WAL,
                    self.start,
                    self.end,
                    self.cumulative_size,
                    self.created_ms,
                    self.min_timestamp,
                    self.max_timestamp,
                    self.running_max_timestamp,
                    self.running_max_offset,
                    self.wal_id.bytes,
                    len(path),
                    self.batch_count,
                ),
                path,
                self.table,
            )
        )

    @classmethod
    def decode(cls, value: bytes) -> IndexEntry:
        unseal("an offset index entry", value, FORMAT)
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
            wal_id,
            path_size,
            count,
        ) = _ENTRY.unpack_from(value)
        table_at = _ENTRY.size + path_size
        if kind != _WAL or len(value) != table_at + count * _BATCH.size:
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
            UUID(bytes=wal_id),
            path,
            value[table_at:],
        )


def pack_batches(references: list[BatchReference]) -> bytes:
    pack = _BATCH.pack
    return b"".join([pack(*reference) for reference in references])


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

    def sealed(self, closed: bool = False) -> HighWatermark:
        return HighWatermark(
            self.end,
            self.cumulative_size,
            self.max_timestamp,
            self.max_timestamp_offset,
            None,
            self.closed or closed,
        )

    @classmethod
    def at(cls, head: IndexEntry) -> HighWatermark:
        return cls(head.end, head.cumulative_size, head.running_max_timestamp, head.running_max_offset, head)

    def encode(self) -> bytes:
        fixed = _HIGH_WATERMARK.pack(
            FORMAT,
            self.closed,
            self.head is not None,
            self.end,
            self.cumulative_size,
            self.max_timestamp,
            self.max_timestamp_offset,
        )
        return fixed if self.head is None else fixed + self.head.encode()

    @classmethod
    def decode(cls, value: bytes) -> HighWatermark:
        unseal("a high watermark", value, FORMAT)
        if len(value) < _HIGH_WATERMARK.size:
            raise ValueCorrupt("a high watermark", f"{len(value)} bytes")
        _, closed, has_head, end, cumulative, maximum, maximum_offset = _HIGH_WATERMARK.unpack_from(value)
        if not has_head and len(value) != _HIGH_WATERMARK.size:
            raise ValueCorrupt("a high watermark", f"{len(value)} bytes, and no head")
        head = IndexEntry.decode(value[_HIGH_WATERMARK.size :]) if has_head else None
        return cls(end, cumulative, maximum, maximum_offset, head, bool(closed))
