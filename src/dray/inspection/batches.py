"""What a fetch brings, taken apart: the headers of its batches, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from dray.protocol.wire import Records
from dray.records import Record, RecordError, decode

# base offset, length, leader epoch, magic, checksum, attributes, delta of the last offset, first and largest
# timestamp, producer id and epoch, first sequence, number of records
_HEADER: Final = Struct(">qiibIhiqqqhii")
_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_MAGIC: Final = 2
_LARGEST_UNFOLDED: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class BatchDetails:
    base_offset: int
    last_offset: int
    length: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    checksum: int

    @property
    def codec(self) -> str:
        return _CODECS.get(self.attributes & 0x07, "unknown")

    @property
    def append_time(self) -> bool:
        return bool(self.attributes & 0x08)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & 0x10)

    @property
    def control(self) -> bool:
        return bool(self.attributes & 0x20)


@dataclass(frozen=True)
class FetchedBatch:
    header: BatchDetails
    data: memoryview

    def records(self) -> list[Record]:
        """Raises `RecordError` for what cannot be decoded. A control batch has none."""
        if self.header.control:
            return []
        return list(decode(self.data, max_decompressed_bytes=_LARGEST_UNFOLDED).records())


def batches_in(records: Records | None) -> Iterator[FetchedBatch]:
    """Every whole batch. One that is cut off at the end is left out: the next fetch brings it."""
    if records is None:
        return
    data = records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)
    view = memoryview(data)
    position = 0
    while position + _HEADER.size <= len(view):
        (
            base_offset,
            length,
            leader_epoch,
            magic,
            checksum,
            attributes,
            last_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        ) = _HEADER.unpack_from(view, position)
        size = 12 + length
        if magic != _MAGIC or size < _HEADER.size or position + size > len(view):
            return
        header = BatchDetails(
            base_offset,
            base_offset + last_delta,
            size,
            leader_epoch,
            attributes,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
            checksum,
        )
        yield FetchedBatch(header, view[position : position + size])
        position += size


__all__ = ["BatchDetails", "FetchedBatch", "Record", "RecordError", "batches_in"]
