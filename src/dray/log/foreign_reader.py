"""Reading batches from segments that other systems wrote, a piece of about a mebibyte at a time.

A piece is read, checked and patched once, off the event loop, and then shared by all consumers. The next ones
are read ahead. What is kept is bounded by bytes, which all segments that are being read share: what is read
ahead must still be there when its consumer comes. What is damaged or gone is an error for its partition, and
nothing is guessed.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from dray.log.entries import IndexEntry
from dray.log.foreign_pieces import ForeignBatches, prepare
from dray.log.foreign_segments import ForeignSegments
from dray.log.foreign_tables import SegmentTable
from dray.log.shared_reads import SharedReads
from dray.log.types import TimestampedOffset
from dray.objects.contract import OwnBuffer
from dray.records import HEADER_SIZE

_AHEAD_BYTES: Final = 4 << 20
_CHUNKS_AHEAD: Final = 2
_TURN_CHUNKS: Final = 4
_READS_NOTED: Final = 128
_TABLES: Final = 512

PieceKey = tuple[str, int, int]  # path, position, leader epoch
Look = Callable[[memoryview, int], Awaitable[TimestampedOffset | None]]
"""The first record of a batch whose time is at least the one given, if it counts."""


class TakenBatches(NamedTuple):
    views: list[memoryview]
    size: int
    finished: bool  # the whole rest of the entry
    last_offset: int  # of what was taken; -1 for nothing
    aborted: list[tuple[int, int]]  # producer id, first offset: of the transactions among them


class PieceCache(SharedReads[PieceKey, ForeignBatches]):
    """Pieces of segments, ready to be served."""


class ForeignReader:
    def __init__(self, segments: ForeignSegments, cache_bytes: int) -> None:
        self.segments = segments
        self.cache_bytes = cache_bytes
        self._pieces = PieceCache(cache_bytes, lambda batches: batches.size)
        self._tables: OrderedDict[bytes, SegmentTable] = OrderedDict()
        self._recent: deque[str] = deque()  # the segments of the last reads
        self._active: Counter[str] = Counter()  # how often each of them

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._pieces.size + self.segments.size

    @property
    def is_empty(self) -> bool:
        """Nothing is in memory."""
        return not self._pieces.size

    def is_midway(self, entry: IndexEntry, offset: int, leader_epoch: int) -> bool:
        """Does a read from there go on in what is in memory? Where chunks are unpacked, a stream that got its
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

    def table(self, entry: IndexEntry) -> SegmentTable:
        key = entry.table  # not the path: several streams may lie in one object
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = entry.segment()
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        return table

    def may_be_hole(self, entry: IndexEntry) -> bool:
        """Has it one empty batch and nothing else? Then it may be where the source deleted what was not
        mirrored yet (`mirrored_pieces.py`), perhaps with the marker of an aborted transaction: an answer that
        reached over it would hide what the same producer wrote behind it."""
        return self.table(entry).size <= HEADER_SIZE

    def estimate(self, entry: IndexEntry, offset: int) -> int:
        """About what the batches from `offset` to the end of the entry take. Never nothing."""
        table = self.table(entry)
        return max(1, table.end_position - table.rows[table.piece_of(offset)].position)

    async def read(
        self, entry: IndexEntry, leader_epoch: int, offset: int, limit: int, at_least_one: bool
    ) -> TakenBatches:
        """Batches from the one that holds `offset`, or the first behind it, as many as fit. Raises
        `ObjectMissing` where the object is gone: the caller looks further in the index."""
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
        """The first pieces of an entry that a consumer will come to."""
        self._read_ahead(entry, self.table(entry), 0, leader_epoch)

    def _note(self, path: str) -> None:
        self._recent.append(path)
        self._active[path] += 1
        if len(self._recent) > _READS_NOTED:
            oldest = self._recent.popleft()
            self._active[oldest] -= 1
            if not self._active[oldest]:
                del self._active[oldest]

    def _read_ahead(self, entry: IndexEntry, table: SegmentTable, first: int, leader_epoch: int) -> None:
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
        self, entry: IndexEntry, table: SegmentTable, number: int, leader_epoch: int
    ) -> ForeignBatches:
        return await asyncio.shield(self._start(entry, table, number, leader_epoch))

    def _start(
        self, entry: IndexEntry, table: SegmentTable, number: int, leader_epoch: int
    ) -> asyncio.Task[ForeignBatches]:
        begin, end = table.bounds_of(number)
        return self._pieces.start(
            (entry.path, begin, leader_epoch), partial(self._load, entry, table, begin, end, leader_epoch)
        )

    async def _load(
        self, entry: IndexEntry, table: SegmentTable, begin: int, end: int, leader_epoch: int
    ) -> ForeignBatches:
        def work(data: OwnBuffer) -> ForeignBatches:
            return prepare(data, entry.path, begin, leader_epoch)

        return await self.segments.with_range(entry, table, begin, end - begin, work)

    # --- by time

    async def first_at_or_after(
        self, entry: IndexEntry, leader_epoch: int, start: int, timestamp: int, look: Look
    ) -> TimestampedOffset | None:
        """The first record of the entry from `start` on whose time is at least `timestamp`. `look` finds it
        in a batch. Pieces that are too old, as the rows say, are not read."""
        table = self.table(entry)
        for number in range(table.piece_of(start), len(table.rows)):
            if number + 1 < len(table.rows) and table.rows[number + 1].time < timestamp:
                continue
            piece = await self._piece(entry, table, number, leader_epoch)
            for at in range(bisect_left(piece.lasts, start), piece.below(entry.end)):
                if piece.times[at] >= timestamp:
                    found = await look(piece.batch(at), timestamp)
                    if found is not None:
                        return found
        return None

    async def greatest(
        self, entry: IndexEntry, leader_epoch: int, start: int, above: int, look: Look
    ) -> TimestampedOffset | None:
        """The first record from `start` on that has the entry's greatest time, if that is above `above`."""
        table = self.table(entry)
        best: TimestampedOffset | None = None
        for number in range(table.piece_of(start), len(table.rows)):
            if number + 1 < len(table.rows) and table.rows[number + 1].time <= above:
                continue
            piece = await self._piece(entry, table, number, leader_epoch)
            for at in range(bisect_left(piece.lasts, start), piece.below(entry.end)):
                while piece.times[at] > above and (found := await look(piece.batch(at), above + 1)):
                    best, above = found, found.timestamp
        return best


def aborted_in(table: SegmentTable, first: int, last: int) -> list[tuple[int, int]]:
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
