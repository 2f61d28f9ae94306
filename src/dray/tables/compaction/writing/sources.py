"""The rows of a unit, from WAL objects, from Parquet files or from objects that the log did not write
(`outside_rows.py`), in pieces of a few mebibytes.

Of a WAL object only the batches that the index entry lists are read: one that was refused after the upload
lies there too. The next pieces are fetched while one is decoded. Every piece is held against the index:
checksums, counts, and one record for every offset; of a file that has holes, those that it is said to have.

Records below the unit's start were deleted before they were compacted, or since: batches and row groups
wholly below it are not read, and of the one that it lies in the first rows are left out (`trimming.py`).

How far a piece unfolds is known only when it has been read. Then its batches say it, and the piece is cut
once more. If a batch stated a wrong size, the piece is halved, down to a single batch: only a batch that
cannot be read alone is damaged.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from dray.base.runtime import Runtime
from dray.kafka.records import (
    Kept,
    RecordError,
    RecordFault,
    decode,
    decode_keys,
    decode_stored,
    records_said,
    unfolds_to,
)
from dray.kafka.records.header import CODEC_BITS
from dray.log.entries import BatchReference, IndexEntry
from dray.log.parquet.reader import Footer, ParquetCorrupt
from dray.log.parquet.statistics import RowGroup
from dray.log.read.parquet_reader import read_footer, read_range
from dray.log.types import ObjectCorrupt, OutsideFault
from dray.metadata.values import ValueCorrupt
from dray.objects.contract import Buffer, ObjectStore
from dray.tables.compaction.model import Unit
from dray.tables.compaction.writing.outside_rows import (
    MIB,
    ONE_BATCH_MOST,
    ROW_BYTES,
    UNFOLDED_BYTES,
    FetchedRows,
    OutsidePiece,
    OutsideRows,
    UnfoldsTooFar,
)
from dray.tables.compaction.writing.trimming import first_needed, offsets_from, rows_from

if TYPE_CHECKING:
    import pyarrow

PIECE_BYTES: Final = 6 * MIB
_AHEAD: Final = 2  # pieces that are here or on their way while one is decoded
# A compressed batch is taken to unfold to so many times its size, until the first ones have shown how many.
_UNKNOWN_FACTOR: Final = 16
_GREATEST_FACTOR: Final = 1000
_WORTH_READING_OVER: Final = 64 << 10  # a gap between two batches that is cheaper to read than to skip

T = TypeVar("T")
Rows: TypeAlias = "pyarrow.RecordBatch"


class Run(NamedTuple):
    """Batches of one entry that lie close together: one range of the object."""

    entry: IndexEntry
    batches: list[tuple[int, BatchReference]]  # with their base offsets

    @property
    def position(self) -> int:
        return self.batches[0][1].position

    @property
    def length(self) -> int:
        last = self.batches[-1][1]
        return last.position + last.length - self.position


@dataclass(frozen=True, slots=True)
class WalPiece:
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class ParquetPiece:
    entry: IndexEntry
    number: int
    group: RowGroup
    is_last: bool  # of the file


async def rows_of(
    unit: Unit,
    objects: ObjectStore,
    runtime: Runtime,
    columns: Sequence[str] | None = None,
    outside: OutsideRows | None = None,
    kept: Kept | None = None,
) -> AsyncGenerator[pyarrow.RecordBatch, None]:
    """Every record of the unit, in order. Raises `ObjectCorrupt`, `OutsideFault`, and the errors of
    the object store. `columns`: no others are decoded, where a look needs only these. Offsets are among them.
    `kept`: no others need to come; those of files do, all the same."""
    source = _Source(unit, objects, runtime, columns, outside, kept)
    expected = source.first_offset
    async with aclosing(_ahead(source.pieces(), source.fetch, _AHEAD)) as pieces:
        async for piece in pieces:
            if isinstance(piece, GapPiece):
                expected = piece.end
                continue
            left = [*piece.cut()]
            while left:
                part = left.pop(0)
                try:
                    batch = await runtime.in_thread(part.decode, expected)
                except UnfoldsTooFar:
                    left[:0] = part.halves()
                    continue
                source.learn(part, batch)
                expected = part.following(expected, len(batch))
                yield rows_from(batch, unit.start) if columns is None else offsets_from(batch, unit.start)
    if expected != unit.end:
        where = f"{unit.topic}-{unit.partition}"
        raise ObjectCorrupt(f"{where}: the records end at offset {expected}, not {unit.end}")


class StoredBatch(NamedTuple):
    """One batch as it was read."""

    data: memoryview
    path: str
    base_offset: int
    reference: BatchReference


class FetchedBatches:
    """Batches that adjoin in the log, to be turned into rows."""

    def __init__(
        self,
        batches: list[StoredBatch],
        partition: int,
        columns: Sequence[str] | None = None,
        kept: Kept | None = None,
    ) -> None:
        self._batches = batches
        self._partition = partition
        self._columns = columns
        self._kept = kept

    def cut(self) -> list[FetchedBatches]:
        """Into parts that say they unfold to no more than is held at once, or are one batch."""
        parts: list[list[StoredBatch]] = []
        size = 0
        for batch in self._batches:
            weight = unfolds_to(batch.data) or len(batch.data)
            weight += ROW_BYTES * batch.reference.record_count
            if not parts or size + weight > UNFOLDED_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(batch)
            size += weight
        return [self._part(part) for part in parts]

    def halves(self) -> list[FetchedBatches]:
        middle = len(self._batches) // 2
        return [self._part(half) for half in (self._batches[:middle], self._batches[middle:])]

    def _part(self, batches: list[StoredBatch]) -> FetchedBatches:
        return FetchedBatches(batches, self._partition, self._columns, self._kept)

    def following(self, expected: int, _: int) -> int:
        """The offset after these, however many of their rows are here."""
        return expected + sum([records_said(one.data) for one in self._batches])

    def compressed_bytes(self) -> int:
        return sum([one.reference.length for one in self._batches if _is_compressed(one.reference)])

    def unfolded_bytes(self, rows: Rows) -> int:
        """The memory that it took, whatever was made of it."""
        if self._kept is None and self._columns is None:
            return int(rows.nbytes)
        return sum([unfolds_to(one.data) + ROW_BYTES * one.reference.record_count for one in self._batches])

    def decode(self, expected: int) -> Rows:
        """The rows, from the offset on that is expected next. It belongs in a thread."""
        import pyarrow as pa

        path = self._batches[0].path
        limit = UNFOLDED_BYTES if len(self._batches) > 1 else ONE_BATCH_MOST
        try:
            rows = self._rows(limit)
        except (RecordError, pa.ArrowInvalid) as error:
            if len(self._batches) > 1 and getattr(error, "fault", None) is RecordFault.TOO_LARGE:
                raise UnfoldsTooFar from None
            self._name_damaged()
            raise ObjectCorrupt(f"{path}: {error}") from error
        if not self._are_dense(expected):
            self._name_damaged()
            raise ObjectCorrupt(f"{path}: its index entry skips an offset from {expected} on")
        return rows

    def _rows(self, limit: int) -> Rows:
        from dray.kafka.records.arrow import KEY_COLUMNS, keys_to_arrow, to_arrow

        batches = [batch.data for batch in self._batches]
        offsets = [batch.base_offset for batch in self._batches]
        if self._columns == KEY_COLUMNS:
            return keys_to_arrow(*decode_keys(batches, offsets, max_decompressed_bytes=limit))
        columns = decode_stored(batches, offsets, max_decompressed_bytes=limit, kept=self._kept)
        return to_arrow(columns, self._partition)

    def _are_dense(self, expected: int) -> bool:
        """One record per offset, in order, from `expected` on: the records of each batch were seen to follow
        each other, as many as its header says."""
        for batch in self._batches:
            if batch.base_offset != expected:
                return False
            expected += records_said(batch.data)
        return True

    def _name_damaged(self) -> None:
        """Raises for the first batch that cannot be read alone, or is not the one that the index lists."""
        import pyarrow as pa

        from dray.kafka.records.arrow import to_arrow

        for data, path, base_offset, reference in self._batches:
            where = f"{path}: the batch at byte {reference.position} (offset {base_offset})"
            try:
                columns = decode(data)
                to_arrow(columns, self._partition)
            except RecordError as error:
                raise ObjectCorrupt(f"{where} is not what was stored: {error}") from error
            except pa.ArrowInvalid as error:
                raise ObjectCorrupt(f"{where} has a timestamp that no table can hold") from error
            if columns.row_count != reference.record_count:
                raise ObjectCorrupt(f"{where} is not the one that the index lists")


class FetchedGroup:
    """A row group of a Parquet file."""

    def __init__(
        self, piece: ParquetPiece, footer: Footer, data: Buffer, columns: list[str] | None = None
    ) -> None:
        self._piece = piece
        self._footer = footer
        self._data = data
        self._columns = columns

    def cut(self) -> list[FetchedGroup]:
        return [self]

    def halves(self) -> list[FetchedGroup]:
        raise AssertionError("a row group is read as it is")

    def following(self, expected: int, count: int) -> int:
        """The offset after these rows, and after the last of a file all that it covers."""
        piece = self._piece
        if not piece.entry.sparse:
            return expected + count
        return piece.entry.end if piece.is_last else piece.group.last_offset + 1

    def compressed_bytes(self) -> int:
        return 0

    def decode(self, expected: int) -> Rows:
        entry, number, group = self._piece.entry, self._piece.number, self._piece.group
        first, last = expected, expected + group.record_count - 1
        if entry.sparse:
            first, last = group.first_offset, group.last_offset
            if not expected <= first or last >= entry.end:
                raise ObjectCorrupt(f"{entry.path}: the index has no place for its offsets from {first} on")
        try:
            return self._footer.read_group(
                number, group.position, self._data, first, group.record_count, last, self._columns
            )
        except ParquetCorrupt as error:
            raise ObjectCorrupt(f"{entry.path}: {error}, from byte {group.position} on") from error


class GapPiece(NamedTuple):
    """Offsets that were given up: all that there is to read of them is where they end."""

    end: int


Piece: TypeAlias = WalPiece | ParquetPiece | OutsidePiece | GapPiece


class _Source:
    def __init__(
        self,
        unit: Unit,
        objects: ObjectStore,
        runtime: Runtime,
        columns: Sequence[str] | None,
        outside: OutsideRows | None,
        kept: Kept | None,
    ) -> None:
        self._outside = outside
        self._columns = columns
        self._kept = kept
        self._start = unit.start
        self._partition = unit.partition
        self._objects = objects
        self._runtime = runtime
        self._footers: dict[str, asyncio.Future[Footer]] = {}
        self._factor = _UNKNOWN_FACTOR
        try:
            self._entries = unit.decoded()
        except ValueCorrupt as error:
            raise ObjectCorrupt(f"{unit.topic}-{unit.partition}: {error}") from error
        first = self._entries[0]
        following = first.start if first.start <= unit.start < first.end else unit.start
        for entry in self._entries:
            if entry.start != following:
                raise ObjectCorrupt(
                    f"{unit.topic}-{unit.partition}: the index goes on at offset {entry.start} "
                    f"({entry.place}) instead of {following}"
                )
            following = entry.end
        self._below, self.first_offset = first_needed(first, unit.start)

    def pieces(self) -> Iterator[Piece]:
        """The pieces that are read at a time: small neighbours together, large ones cut."""
        runs: list[Run] = []
        size = 0
        for entry in self._entries:
            if runs and not entry.lists_batches:
                yield WalPiece(runs)
                runs, size = [], 0
            if entry.is_outside:
                table = entry.outside()
                for number in self._needed(entry, range(len(table.rows))):
                    yield OutsidePiece(entry, table, number)
                continue
            if entry.is_gap:
                yield GapPiece(entry.end)
                continue
            if entry.is_parquet:
                groups = entry.row_groups()
                for number, group in self._needed(entry, enumerate(groups)):
                    yield ParquetPiece(entry, number, group, number == len(groups) - 1)
                continue
            for base_offset, reference in self._needed(entry, entry.batches()):
                weight = reference.length * (self._factor if _is_compressed(reference) else 1)
                if runs and size + weight > PIECE_BYTES:
                    yield WalPiece(runs)
                    runs, size = [], 0
                _join(runs, entry, base_offset, reference)
                size += weight
        if runs:
            yield WalPiece(runs)

    def _needed(self, entry: IndexEntry, parts: Iterable[T]) -> Iterator[T]:
        """Without the batches or row groups of the first entry that lie below the unit's start."""
        return islice(parts, self._below if entry is self._entries[0] else 0, None)

    async def fetch(self, piece: Piece) -> FetchedRows | GapPiece:
        """Gets the bytes of a piece."""
        if isinstance(piece, GapPiece):
            return piece
        if isinstance(piece, OutsidePiece):
            if self._outside is None:
                raise OutsideFault(f"{piece.entry.path}: this process reads only what the log wrote")
            return await self._outside.fetch(piece, self._partition)
        if isinstance(piece, ParquetPiece):
            footer, data = await asyncio.gather(
                self._footer(piece.entry), self._range(piece.entry, piece.group.position, piece.group.length)
            )
            columns = None if self._columns is None else list(self._columns)
            return FetchedGroup(piece, footer, data, columns)
        found = await asyncio.gather(
            *[self._range(run.entry, run.position, run.length) for run in piece.runs]
        )
        batches = _stored(piece.runs, found)
        # If the unit begins inside of a batch, all of its rows are needed to tell how much is cut off.
        kept = self._kept if batches[0].base_offset >= self._start else None
        return FetchedBatches(batches, self._partition, self._columns, kept)

    def learn(self, part: FetchedRows, rows: Rows) -> None:
        """How far compressed batches unfold: the next pieces are cut accordingly."""
        compressed = part.compressed_bytes()
        unfolded = part.unfolded_bytes(rows) if isinstance(part, FetchedBatches) else rows.nbytes
        if compressed:
            self._factor = min(_GREATEST_FACTOR, max(1, -(-unfolded // compressed)))

    async def _range(self, entry: IndexEntry, position: int, length: int) -> Buffer:
        return await read_range(self._objects, entry, position, length)

    async def _footer(self, entry: IndexEntry) -> Footer:
        """Asked for once per file, however many row groups are on their way."""
        known = self._footers.get(entry.path)
        if known is None:
            known = self._footers[entry.path] = asyncio.ensure_future(
                read_footer(self._objects, self._runtime, entry)
            )
        return await asyncio.shield(known)


def _is_compressed(reference: BatchReference) -> bool:
    return reference.attributes & CODEC_BITS != 0


def _stored(runs: list[Run], found: Sequence[Buffer]) -> list[StoredBatch]:
    batches: list[StoredBatch] = []
    for run, data in zip(runs, found, strict=True):
        view = memoryview(data)
        for base_offset, reference in run.batches:
            start = reference.position - run.position
            batches.append(
                StoredBatch(view[start : start + reference.length], run.entry.place, base_offset, reference)
            )
    return batches


def _join(runs: list[Run], entry: IndexEntry, base_offset: int, reference: BatchReference) -> None:
    if runs and runs[-1].entry is entry:
        last = runs[-1].batches[-1][1]
        if 0 <= reference.position - (last.position + last.length) <= _WORTH_READING_OVER:
            runs[-1].batches.append((base_offset, reference))
            return
    runs.append(Run(entry, [(base_offset, reference)]))


async def _ahead(
    pieces: Iterator[Piece],
    fetch: Callable[[Piece], Awaitable[T]],
    depth: int,
) -> AsyncGenerator[T, None]:
    """The pieces in their order, so many of them fetched at once."""
    fetching: deque[asyncio.Future[T]] = deque()
    try:
        for piece in pieces:
            fetching.append(asyncio.ensure_future(fetch(piece)))
            if len(fetching) >= depth:
                yield await fetching.popleft()
        while fetching:
            yield await fetching.popleft()
    finally:
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
