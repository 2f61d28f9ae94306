"""What a fetch brings, taken apart: the headers of its batches, and their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dray.protocol.wire import Records
from dray.records import HEADER_SIZE, Record, RecordError, decode, read_header
from dray.records.header import CODEC_BITS, CONTROL, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL

_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
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
        return _CODECS.get(self.attributes & CODEC_BITS, "unknown")

    @property
    def append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)


@dataclass(frozen=True)
class FetchedBatch:
    header: BatchDetails
    data: memoryview

    def records(self) -> list[Record]:
        """Raises `RecordError` for what cannot be decoded. A control batch has none."""
        return list(self.each_record())

    def each_record(self) -> Iterator[Record]:
        """The same, one after the other. The error is raised before the first."""
        if self.header.control:
            return iter(())
        return decode(self.data, max_decompressed_bytes=_LARGEST_UNFOLDED, sparse=True).records()


def batches_in(records: Records | None) -> Iterator[FetchedBatch]:
    """Every whole batch. One that is cut off at the end is left out: the next fetch brings it."""
    if records is None:
        return
    data = records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)
    view = memoryview(data)
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(view) - position:
            return
        details = BatchDetails(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.size,
            header.leader_epoch,
            header.attributes,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            header.checksum,
        )
        yield FetchedBatch(details, view[position : position + header.size])
        position += header.size


__all__ = ["BatchDetails", "FetchedBatch", "Record", "RecordError", "batches_in"]
