"""The rows of segments that another system wrote: what their readers would see of them as committed.

Markers of transactions are no rows, and neither are the records of transactions that were aborted. So the
file of such a unit has holes, and is told apart from one that lost something by what the index says: offsets
rise, every batch is whole and sound, and each piece ends where the index says that the next begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from dray.base.runtime import Runtime
from dray.kafka.records import LEADER_EPOCH, BatchHeader, RecordError, RecordFault, decode, unfolds_to
from dray.kafka.records.header import CODEC_BITS, CONTROL, TRANSACTIONAL
from dray.log.outside_table import AbortedRange
from dray.log.parquet.reader import place_of
from dray.log.types import ObjectCorrupt
from dray.migration.entries.pieces import check_offsets, prepare, walk
from dray.migration.entries.segments import ForeignAddress, ForeignSegments, ForeignStore, open_foreign_stores
from dray.objects.contract import ObjectStore, OwnBuffer
from dray.tables.compaction.writing.outside_rows import (
    ONE_BATCH_MOST,
    ROW_BYTES,
    UNFOLDED_BYTES,
    OutsidePiece,
    UnfoldsTooFar,
)
from dray.tables.compaction.writing.trimming import rows_from

if TYPE_CHECKING:
    import pyarrow

Rows: TypeAlias = "pyarrow.RecordBatch"
_BELOW_ALL: Final = -1


class ForeignBatch(NamedTuple):
    data: memoryview
    position: int  # in the segment
    header: BatchHeader

    @property
    def last_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta


class ForeignRows:
    """The kind of entries that compaction is given in every process that may meet them."""

    def __init__(
        self, own: ObjectStore, runtime: Runtime, stores: Mapping[str, ForeignStore] | None = None
    ) -> None:
        self._segments = ForeignSegments(own, runtime, stores)
        self._stores = stores or {}

    async def fetch(self, piece: OutsidePiece, partition: int) -> FetchedForeign:
        begin, end = piece.table.bounds_of(piece.number)

        def work(data: OwnBuffer) -> list[ForeignBatch]:
            batches = prepare(data, piece.entry.path, begin, LEADER_EPOCH)  # every checksum
            check_offsets(batches, piece.entry, piece.table, piece.number)
            headers = walk(data, piece.entry.path, begin)
            return [
                ForeignBatch(batches.batch(place), begin + position, header)
                for place, (position, header) in enumerate(headers)
            ]

        found = await self._segments.with_range(piece.entry, piece.table, begin, end - begin, work)
        rows = [one for one in found if is_data(one, piece)]
        last = max([one.last_offset for one in found], default=_BELOW_ALL)
        return FetchedForeign(piece, rows, partition, min(last, piece.entry.end - 1), ends_piece=True)

    async def close(self) -> None:
        for store in self._stores.values():
            await store.objects.close()


@dataclass(frozen=True, slots=True)
class ForeignAddresses:
    """The stores of other systems, by name, for a worker in another process."""

    stores: Mapping[str, ForeignAddress]

    async def open(self, own: ObjectStore, runtime: Runtime) -> ForeignRows:
        return ForeignRows(own, runtime, await open_foreign_stores(self.stores, runtime))


def is_data(batch: ForeignBatch, piece: OutsidePiece) -> bool:
    """Is it of the entry, no marker, and of no aborted transaction?"""
    header = batch.header
    if header.base_offset >= piece.entry.end or batch.last_offset < piece.entry.start:
        return False  # an overlap was trimmed: another entry has it
    if header.attributes & CONTROL or not header.record_count:
        return False
    return not (header.attributes & TRANSACTIONAL and is_aborted(header, piece.table.aborted))


def is_aborted(header: BatchHeader, aborted: Sequence[AbortedRange]) -> bool:
    return any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset <= one.last_offset
        for one in aborted
    )


class FetchedForeign:
    """Batches of a piece that become rows."""

    def __init__(
        self, piece: OutsidePiece, batches: list[ForeignBatch], partition: int, last: int, *, ends_piece: bool
    ) -> None:
        self._piece = piece
        self._batches = batches
        self._partition = partition
        self._last = last  # the last offset that these cover
        self._ends_piece = ends_piece

    def cut(self) -> list[FetchedForeign]:
        """Into parts that say they unfold to no more than is held at once, or are one batch."""
        parts: list[list[ForeignBatch]] = []
        size = 0
        for batch in self._batches:
            weight = (unfolds_to(batch.data) or len(batch.data)) + ROW_BYTES * batch.header.record_count
            if not parts or size + weight > UNFOLDED_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(batch)
            size += weight
        return self._parts(parts or [[]])

    def halves(self) -> list[FetchedForeign]:
        middle = len(self._batches) // 2
        return self._parts([self._batches[:middle], self._batches[middle:]])

    def _parts(self, parts: list[list[ForeignBatch]]) -> list[FetchedForeign]:
        made = [
            FetchedForeign(self._piece, part, self._partition, part[-1].last_offset, ends_piece=False)
            for part in parts[:-1]
        ]
        return [
            *made,
            FetchedForeign(self._piece, parts[-1], self._partition, self._last, ends_piece=self._ends_piece),
        ]

    def following(self, expected: int, _: int) -> int:
        """The offset after these, and after the last piece of an entry all that it covers."""
        if self._ends_piece and self._piece.is_last:
            return self._piece.entry.end
        return max(expected, self._last + 1)

    def compressed_bytes(self) -> int:
        return sum([len(one.data) for one in self._batches if one.header.attributes & CODEC_BITS])

    def decode(self, expected: int) -> Rows:
        """The rows from the offset on that is expected next. It belongs in a thread."""
        import pyarrow as pa

        from dray.kafka.records.arrow import schema, to_arrow

        entry = self._piece.entry
        if not self._batches:
            return pa.RecordBatch.from_pylist([], schema=schema())
        first = self._batches[0]
        if first.last_offset < max(expected, entry.start):
            raise ObjectCorrupt(
                f"{entry.path}: byte {first.position}: offset {first.header.base_offset} comes after "
                f"{expected - 1}"
            )
        joined = bytearray().join([batch.data for batch in self._batches])
        limit = UNFOLDED_BYTES if len(self._batches) > 1 else ONE_BATCH_MOST
        try:
            rows = to_arrow(decode(joined, max_decompressed_bytes=limit, sparse=True), self._partition)
        except (RecordError, pa.ArrowInvalid) as error:
            if len(self._batches) > 1 and getattr(error, "fault", None) is RecordFault.TOO_LARGE:
                raise UnfoldsTooFar from None
            raise ObjectCorrupt(f"{entry.path}: from byte {first.position} on: {error}") from error
        return within(rows, entry.start, entry.end)


def within(rows: Rows, start: int, end: int) -> Rows:
    """If a batch reaches over the edge of its entry, another entry has the rest."""
    kept = rows_from(rows, start)
    return kept.slice(0, place_of(kept, end)) if len(kept) else kept
