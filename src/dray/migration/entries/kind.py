"""The entries of segments that other systems wrote, for the log: how they are read, and whose they are.

They are read in pieces of about a mebibyte. A piece is read, checked and patched once, off the event loop,
and then shared by all consumers. The next ones are read ahead. Kept pieces are bounded by bytes, which all
segments that are being read share: a piece that was read ahead must still be there when its consumer comes.
A piece that is damaged or gone is an error for its partition, and nothing is guessed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.kafka.records import HEADER_SIZE, RecordError, decode
from dray.log.entries import IndexEntry
from dray.log.life.retention import Raised, Retention
from dray.log.outside_entries import LookInto, TakenBatches
from dray.log.outside_table import OutsideTable
from dray.log.read.shared_reads import SharedReads
from dray.log.stream_store import StreamStore
from dray.log.types import OutsideFault, TimestampedOffset
from dray.migration.entries.ownership import ForeignFinding, ForeignOwnership
from dray.migration.entries.pieces import ForeignBatches, as_data, check_offsets, prepare
from dray.migration.entries.segments import ForeignSegments, ForeignStore
from dray.objects.contract import ObjectError, ObjectStore, OwnBuffer

_log = structlog.get_logger(__name__)

_AHEAD_BYTES: Final = 4 << 20
_CHUNKS_AHEAD: Final = 2
_TURN_CHUNKS: Final = 4
_READS_NOTED: Final = 128
_TABLES: Final = 512

PieceKey = tuple[str, int, int]  # path, position, leader epoch


class PieceCache(SharedReads[PieceKey, ForeignBatches]):
    """Pieces of segments, ready to be served."""


class ForeignEntries:
    """The kind of entries that a log is given in every process that may meet them."""

    _ownership: ForeignOwnership  # these two once there is a log
    _start_raised: Raised

    def __init__(
        self,
        own: ObjectStore,
        runtime: Runtime,
        stores: Mapping[str, ForeignStore],
        cache_bytes: int,
        *,
        looks_after: bool = True,
    ) -> None:
        """`stores`: those of other systems, by the names that index entries have for them. `looks_after`:
        may this process raise a start? One that only reads may not."""
        self.segments = ForeignSegments(own, runtime, stores, cache_bytes)
        self.cache_bytes = cache_bytes
        self._looks_after = looks_after
        self._own = own
        self._runtime = runtime
        self._pieces = PieceCache(cache_bytes, lambda batches: batches.size)
        self._tables: OrderedDict[bytes, OutsideTable] = OrderedDict()
        self._recent: deque[str] = deque()  # the segments of the last reads
        self._active: Counter[str] = Counter()  # how often each of them

    def join(self, streams: StreamStore, retention: Retention, start_raised: Raised) -> None:
        self._ownership = ForeignOwnership(streams, self.segments, self._own, self._runtime, retention)
        self._start_raised = start_raised

    # --- memory

    @property
    def size(self) -> int:
        return self._pieces.size + self.segments.size

    @property
    def is_empty(self) -> bool:
        return not self._pieces.size

    def is_midway(self, entry: IndexEntry, offset: int, leader_epoch: int) -> bool:
        """Does a read from there go on in what is in memory? If chunks are unpacked, a stream that got its
        turn keeps it for some of them: a batch that reaches into the next chunk would have that one unpacked
        a second time otherwise."""
        table = self.table(entry)
        number = table.piece_of(offset)
        begin, _ = table.bounds_of(number)
        chunk = self.segments.chunk_bytes(table)
        if not chunk:
            return offset > table.rows[number].offset and (entry.path, begin, leader_epoch) in self._pieces
        turn = chunk * _TURN_CHUNKS
        is_same_turn = number > 0 and table.rows[number - 1].position // turn == begin // turn
        return is_same_turn and self.segments.holds_chunk(entry, table, begin)

    def held_bytes(self, entry: IndexEntry, offset: int) -> int:
        """About the memory that a read from there takes: a piece or a chunk, and the one behind it, into
        which a batch may reach."""
        table = self.table(entry)
        begin, end = table.bounds_of(table.piece_of(offset))
        return 2 * max(end - begin, self.segments.chunk_bytes(table) or 0)

    def forget_idle(self) -> None:
        self._pieces.forget_idle()
        self.segments.forget_idle()

    def table(self, entry: IndexEntry) -> OutsideTable:
        key = entry.table  # not the path: several streams may lie in one object
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = entry.outside()
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        return table

    def store_of(self, entry: IndexEntry) -> str:
        return self.table(entry).store

    def stands_alone(self, entry: IndexEntry) -> bool:
        """Has it one empty batch and nothing else? Then it may be where the source deleted what was not
        mirrored yet (`mirrored_pieces.py`), perhaps with the marker of an aborted transaction: an answer that
        reached over it would hide what the same producer wrote behind it."""
        return self.table(entry).size <= HEADER_SIZE

    def estimate(self, entry: IndexEntry, offset: int) -> int:
        table = self.table(entry)
        return max(1, table.end_position - table.rows[table.piece_of(offset)].position)

    async def read(
        self, entry: IndexEntry, leader_epoch: int, offset: int, limit: int, at_least_one: bool
    ) -> TakenBatches:
        table = self.table(entry)
        number = table.piece_of(offset)
        self._note(entry.path)
        views: list[memoryview] = []
        size, last_offset = 0, -1
        while number < len(table.rows):
            piece = await self._piece(entry, table, number, leader_epoch)
            first, end = bisect_left(piece.lasts, offset), piece.below(entry.end)
            at = first
            while at < end:
                length = piece.positions[at + 1] - piece.positions[at]
                if size + length > limit and not (at_least_one and size == 0):
                    break
                size += length
                at += 1
            if at > first:
                views.append(piece.data[piece.positions[first] : piece.positions[at]])
                last_offset = piece.lasts[at - 1]
            if at < end:
                break
            number += 1
        self._read_ahead(entry, table, number + 1, leader_epoch)
        finished = number == len(table.rows)
        return TakenBatches(views, size, finished, last_offset, aborted_in(table, offset, last_offset))

    def read_ahead(self, entry: IndexEntry, leader_epoch: int) -> None:
        self._read_ahead(entry, self.table(entry), 0, leader_epoch)

    def _note(self, path: str) -> None:
        self._recent.append(path)
        self._active[path] += 1
        if len(self._recent) > _READS_NOTED:
            oldest = self._recent.popleft()
            self._active[oldest] -= 1
            if not self._active[oldest]:
                del self._active[oldest]

    def _read_ahead(self, entry: IndexEntry, table: OutsideTable, first: int, leader_epoch: int) -> None:
        """The pieces from `first` on, as far as the share allows that each segment has which is being read:
        what is dropped before its consumer comes has to be read again."""
        if first >= len(table.rows):
            return
        share = self.cache_bytes // max(1, len(self._active))
        chunk = self.segments.chunk_bytes(table)
        if chunk is None:  # the first piece brings it in
            if first == 0:
                self._start(entry, table, 0, leader_epoch).add_done_callback(_seen)
            return
        begin, end = table.bounds_of(max(0, first - 1))
        if chunk:
            last = (begin // chunk + 1 + max(0, min(_CHUNKS_AHEAD, share // chunk - 1))) * chunk
        else:
            last = (end if first else begin) + min(_AHEAD_BYTES, share - (end - begin))
        for number in range(first, len(table.rows)):
            if table.bounds_of(number)[1] > last:
                return
            self._start(entry, table, number, leader_epoch).add_done_callback(_seen)

    async def _piece(
        self, entry: IndexEntry, table: OutsideTable, number: int, leader_epoch: int
    ) -> ForeignBatches:
        return await asyncio.shield(self._start(entry, table, number, leader_epoch))

    def _start(
        self, entry: IndexEntry, table: OutsideTable, number: int, leader_epoch: int
    ) -> asyncio.Task[ForeignBatches]:
        begin, _ = table.bounds_of(number)
        return self._pieces.start(
            (entry.path, begin, leader_epoch), partial(self._load, entry, table, number, leader_epoch)
        )

    async def _load(
        self, entry: IndexEntry, table: OutsideTable, number: int, leader_epoch: int
    ) -> ForeignBatches:
        begin, end = table.bounds_of(number)

        def work(data: OwnBuffer) -> ForeignBatches:
            batches = prepare(data, entry.path, begin, leader_epoch)
            check_offsets(batches, entry, table, number)
            return batches

        return await self.segments.with_range(entry, table, begin, end - begin, work)

    # --- by time

    async def first_at_or_after(
        self, entry: IndexEntry, leader_epoch: int, start: int, timestamp: int, look_into: LookInto
    ) -> TimestampedOffset | None:
        """Pieces that are too old, as the rows say, are not read."""
        table = self.table(entry)
        for number in range(table.piece_of(start), len(table.rows)):
            if number + 1 < len(table.rows) and table.rows[number + 1].time < timestamp:
                continue
            piece = await self._piece(entry, table, number, leader_epoch)
            for at in range(bisect_left(piece.lasts, start), piece.below(entry.end)):
                if piece.times[at] >= timestamp:
                    found = await _first_in(piece.batch(at), start, timestamp, look_into)
                    if found is not None:
                        return found
        return None

    async def greatest(
        self, entry: IndexEntry, leader_epoch: int, start: int, above: int, look_into: LookInto
    ) -> TimestampedOffset | None:
        table = self.table(entry)
        best: TimestampedOffset | None = None
        for number in range(table.piece_of(start), len(table.rows)):
            if number + 1 < len(table.rows) and table.rows[number + 1].time <= above:
                continue
            piece = await self._piece(entry, table, number, leader_epoch)
            for at in range(bisect_left(piece.lasts, start), piece.below(entry.end)):
                while piece.times[at] > above:
                    found = await _first_in(piece.batch(at), start, above + 1, look_into)
                    if found is None:
                        break
                    best, above = found, found.timestamp
        return best

    # --- objects

    def objects_of(self, store: str) -> ObjectStore:
        return self.segments.objects_of(store)

    async def look_after(self, stream: int) -> None:
        if self._looks_after:
            await self.audit(stream)

    async def audit(self, stream: int) -> ForeignFinding:
        """Are the foreign segments of a stream still there? The start is raised over what its source has
        expired."""
        finding = await self._ownership.audit(stream)
        if finding.raised_to is not None:
            await self._start_raised(stream)
        return finding

    async def delete(
        self, store: str, paths: Sequence[str], deleted: Callable[[str], None], *, dry_run: bool
    ) -> bool:
        objects = self.segments.adopting(store)
        if objects is None:
            _log.warning("adopted segment not deleted: its store is not known here", store=store)
            return False
        if dry_run:
            return True
        for path in paths:
            try:
                await objects.delete_adopted(path)
            except ObjectError as error:
                _log.warning("adopted segment not deleted", path=path, error=str(error))
                return False
            deleted(path)
        return True


async def _first_in(
    batch: memoryview, start: int, timestamp: int, look_into: LookInto
) -> TimestampedOffset | None:
    """The first record from `start` on whose time is at least this."""
    try:
        return await look_into(batch, _first_at_or_after, start, timestamp)
    except RecordError as error:
        raise OutsideFault(f"a batch of another system cannot be read: {error}") from error


def _first_at_or_after(batch: memoryview, limit: int, start: int, timestamp: int) -> TimestampedOffset | None:
    """Markers of transactions are records too, as in Kafka."""
    columns = decode(as_data(batch), max_decompressed_bytes=limit, sparse=True)
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    for offset, time in zip(offsets, timestamps, strict=True):
        if offset >= start and time >= timestamp:
            return TimestampedOffset(offset, time)
    return None


def aborted_in(table: OutsideTable, first: int, last: int) -> list[tuple[int, int]]:
    """The aborted transactions that overlap a range of offsets, as Fetch answers them."""
    return [
        (one.producer_id, one.first_offset)
        for one in table.aborted
        if one.first_offset <= last and one.last_offset >= first
    ]


def _seen(task: asyncio.Task[ForeignBatches]) -> None:
    """A read ahead has no waiting read: the next one that asks meets the error itself."""
    if not task.cancelled():
        task.exception()
