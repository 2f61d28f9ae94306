"""The rows of a unit, from WAL objects or from Parquet files, in pieces of a few mebibytes.

Of a WAL object only the batches that the index entry lists are read: one that was refused after the upload
lies there too. The next pieces are fetched while one is decoded. Every piece is held against the index:
checksums, counts, and one record for every offset.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from dray.compaction.model import Unit
from dray.log.entries import BatchReference, IndexEntry, RowGroup
from dray.log.object_ranges import read_footer, read_range
from dray.log.types import ObjectCorrupt
from dray.metadata.values import ValueCorrupt
from dray.objects.contract import Buffer, ObjectStore
from dray.parquet.reader import Footer, ParquetCorrupt, is_dense
from dray.records import RecordError, decode, patch_all
from dray.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow

MIB: Final = 1 << 20
PIECE_BYTES: Final = 6 * MIB
_AHEAD: Final = 2  # pieces that are here or on their way while one is decoded
# A compressed batch is taken to unfold to so many times its size, until the first ones have shown how many.
_UNKNOWN_FACTOR: Final = 16
_GREATEST_FACTOR: Final = 1000
_WORTH_READING_OVER: Final = 64 << 10  # a gap between two batches that is cheaper to read than to skip
_CODEC_BITS: Final = 0x07
_LEADER_EPOCH: Final = 0

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


async def rows_of(
    unit: Unit, objects: ObjectStore, runtime: Runtime
) -> AsyncGenerator[pyarrow.RecordBatch, None]:
    """Every record of the unit, in order. Raises `ObjectCorrupt`, and the errors of the object store."""
    source = _Source(unit, objects, runtime)
    expected = unit.start
    async with aclosing(_ahead(source.pieces(), source.fetch, _AHEAD)) as pieces:
        async for decode_piece in pieces:
            batch = await runtime.in_thread(decode_piece, expected)
            expected += len(batch)
            yield batch
    if expected != unit.end:
        where = f"{unit.topic}-{unit.partition}"
        raise ObjectCorrupt(f"{where}: the records end at offset {expected}, not {unit.end}")


class _Source:
    def __init__(self, unit: Unit, objects: ObjectStore, runtime: Runtime) -> None:
        self._partition = unit.partition
        self._objects = objects
        self._runtime = runtime
        self._footers: dict[str, asyncio.Future[Footer]] = {}
        self._factor = _UNKNOWN_FACTOR
        try:
            self._entries = unit.decoded()
        except ValueCorrupt as error:
            raise ObjectCorrupt(f"{unit.topic}-{unit.partition}: {error}") from error
        following = unit.start
        for entry in self._entries:
            if entry.start != following:
                raise ObjectCorrupt(
                    f"{unit.topic}-{unit.partition}: the index goes on at offset {entry.start} "
                    f"({entry.path}) instead of {following}"
                )
            following = entry.end

    def pieces(self) -> Iterator[WalPiece | ParquetPiece]:
        """What is read at a time: small neighbours together, large ones cut."""
        runs: list[Run] = []
        size = 0
        for entry in self._entries:
            if entry.is_parquet:
                if runs:
                    yield WalPiece(runs)
                    runs, size = [], 0
                for number, group in enumerate(entry.row_groups()):
                    yield ParquetPiece(entry, number, group)
                continue
            for base_offset, reference in entry.batches():
                weight = reference.length * (self._factor if _is_compressed(reference) else 1)
                if runs and size + weight > PIECE_BYTES:
                    yield WalPiece(runs)
                    runs, size = [], 0
                _join(runs, entry, base_offset, reference)
                size += weight
        if runs:
            yield WalPiece(runs)

    async def fetch(self, piece: WalPiece | ParquetPiece) -> Callable[[int], Rows]:
        """Gets the bytes of a piece. What it answers turns them into rows from the offset on that is
        expected next, and belongs in a thread."""
        if isinstance(piece, ParquetPiece):
            footer, data = await asyncio.gather(
                self._footer(piece.entry), self._range(piece.entry, piece.group.position, piece.group.length)
            )
            return lambda expected: _read_group(piece, footer, data, expected)
        found = await asyncio.gather(
            *[self._range(run.entry, run.position, run.length) for run in piece.runs]
        )
        return lambda expected: self._learn(piece, _decode(piece.runs, found, self._partition, expected))

    def _learn(self, piece: WalPiece, rows: Rows) -> Rows:
        """How far compressed batches unfold: the next pieces are cut accordingly."""
        compressed = sum([one.length for run in piece.runs for _, one in run.batches if _is_compressed(one)])
        if compressed:
            self._factor = min(_GREATEST_FACTOR, max(1, -(-rows.nbytes // compressed)))
        return rows

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
    return reference.attributes & _CODEC_BITS != 0


def _join(runs: list[Run], entry: IndexEntry, base_offset: int, reference: BatchReference) -> None:
    if runs and runs[-1].entry is entry:
        last = runs[-1].batches[-1][1]
        if 0 <= reference.position - (last.position + last.length) <= _WORTH_READING_OVER:
            runs[-1].batches.append((base_offset, reference))
            return
    runs.append(Run(entry, [(base_offset, reference)]))


def _decode(runs: list[Run], found: Sequence[Buffer], partition: int, expected: int) -> Rows:
    import pyarrow as pa

    from dray.records.arrow import to_arrow

    parts: list[memoryview] = []
    places: list[tuple[int, int]] = []
    at = 0
    for run, data in zip(runs, found, strict=True):
        view = memoryview(data)
        for base_offset, reference in run.batches:
            start = reference.position - run.position
            parts.append(view[start : start + reference.length])
            places.append((at, base_offset))
            at += reference.length
    joined = bytearray().join(parts)
    patch_all(joined, places, _LEADER_EPOCH)
    try:
        batch = to_arrow(decode(joined), partition)
    except (RecordError, pa.ArrowInvalid) as error:
        _name_damaged(runs, parts, partition)
        raise ObjectCorrupt(f"{runs[0].entry.path}: {error}") from error
    if not is_dense(batch, expected):
        _name_damaged(runs, parts, partition)
        raise ObjectCorrupt(f"{runs[0].entry.path}: its index entry skips an offset from {expected} on")
    return batch


def _name_damaged(runs: list[Run], parts: list[memoryview], partition: int) -> None:
    """Raises for the first batch that cannot be read alone, or is not the one that the index lists."""
    import pyarrow as pa

    from dray.records.arrow import to_arrow

    batches = iter(parts)
    for run in runs:
        for base_offset, reference in run.batches:
            where = f"{run.entry.path}: the batch at byte {reference.position} (offset {base_offset})"
            try:
                columns = decode(next(batches))
                to_arrow(columns, partition)
            except RecordError as error:
                raise ObjectCorrupt(f"{where} is not what was stored: {error}") from error
            except pa.ArrowInvalid as error:
                raise ObjectCorrupt(f"{where} has a timestamp that no table can hold") from error
            if columns.row_count != reference.record_count:
                raise ObjectCorrupt(f"{where} is not the one that the index lists")


def _read_group(piece: ParquetPiece, footer: Footer, data: Buffer, expected: int) -> Rows:
    group = piece.group
    try:
        return footer.read_group(piece.number, group.position, data, expected, group.record_count)
    except ParquetCorrupt as error:
        raise ObjectCorrupt(f"{piece.entry.path}: {error}, from byte {group.position} on") from error


async def _ahead(
    pieces: Iterator[WalPiece | ParquetPiece],
    fetch: Callable[[WalPiece | ParquetPiece], Awaitable[T]],
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
