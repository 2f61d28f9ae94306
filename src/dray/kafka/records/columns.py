"""Records as columns: the buffers that Arrow lays out, without needing Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dray.kafka.records.header import Buffer


class Record(NamedTuple):
    """One record, as a reader of the partition sees it."""

    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class BytesColumn:
    """Value n is `data[offsets[n]:offsets[n + 1]]`, null where bit n of `validity` is clear. Without
    `validity` nothing is null."""

    offsets: Buffer
    """int32, one more than there are values"""
    data: Buffer
    validity: Buffer | None

    def values(self, count: int) -> Iterator[bytes | None]:
        offsets = memoryview(self.offsets).cast("B").cast("i")
        data = memoryview(self.data)
        for row in range(count):
            if self.validity is not None and not self.validity[row >> 3] >> (row & 7) & 1:
                yield None
            else:
                yield bytes(data[offsets[row] : offsets[row + 1]])

    def nulls(self, count: int) -> list[int]:
        """The rows that are null. If none is null, no row is looked at."""
        if self.validity is None:
            return []
        present = int.from_bytes(self.validity, "little") & (1 << count) - 1
        if present.bit_count() == count:
            return []
        return [row for row in range(count) if not self.validity[row >> 3] >> (row & 7) & 1]


@dataclass(frozen=True, slots=True)
class Kept:
    """Which records stay when others are superseded."""

    offsets: Buffer
    """int64, rising: a record with a key stays if its offset is among them"""
    tombstones_below: int = 0
    """unless it is a tombstone below this offset"""
    keyless: bool = False
    """whether records without a key stay"""
    last: int = -1
    """the offset of a record that stays in any case"""


@dataclass(frozen=True, slots=True)
class Columns:
    """Records of one or many batches. A value of a whole batch is repeated in each of its rows.

    All numbers are in the machine's byte order, as Arrow has them. Whoever holds columns leaves the
    buffers alone: they are shared with Arrow and with threads.
    """

    row_count: int
    header_count: int
    offsets: Buffer
    """int64"""
    timestamps: Buffer
    """int64, milliseconds"""
    producer_ids: Buffer
    """int64, -1 for none"""
    producer_epochs: Buffer
    """int32"""
    base_sequences: Buffer
    """int32, that of the batch"""
    attributes: Buffer
    """int32, the codec bits clear"""
    keys: BytesColumn
    values: BytesColumn
    headers: Buffer
    """int32: row n has the headers `headers[n]` to `headers[n + 1]`"""
    header_keys: BytesColumn
    header_values: BytesColumn

    def records(self) -> Iterator[Record]:
        """Row by row: for people and tests, not for speed."""
        bounds = memoryview(self.headers).cast("B").cast("i")
        headers = [
            ((key or b"").decode(), value)
            for key, value in zip(
                self.header_keys.values(self.header_count),
                self.header_values.values(self.header_count),
                strict=True,
            )
        ]
        offsets = memoryview(self.offsets).cast("B").cast("q")
        timestamps = memoryview(self.timestamps).cast("B").cast("q")
        keys, values = self.keys.values(self.row_count), self.values.values(self.row_count)
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            yield Record(offsets[row], timestamps[row], key, value, headers[bounds[row] : bounds[row + 1]])
