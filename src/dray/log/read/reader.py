"""Reading a stream: its bounds, where an offset lies, and its batches.

The cached index may be behind the store. So before the reader says that there is nothing more, or that an
offset is out of range, it asks the store again, behind a barrier. With an old start, deleted records would be
served: so bounds are good for a few seconds, and then the store is asked (`docs/design/0066`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from dray.kafka.records import LEADER_EPOCH
from dray.log.entries import IndexEntry
from dray.log.origins import Origin
from dray.log.outside_entries import OutsideEntries, known_kind
from dray.log.read.doubts import WHOLE, Doubts
from dray.log.read.index_cache import IndexCache
from dray.log.read.parquet_reader import ParquetReader
from dray.log.read.plans import EmptyPlan, OutsidePlan, ParquetPlan, ReadPlan, Slice, TailPlan, WalPlan
from dray.log.read.segments import SegmentReader
from dray.log.read.tail_cache import TailCache
from dray.log.stream_store import ANY_END, StreamStore, Versioned, split
from dray.log.types import (
    Bounds,
    LogUnavailable,
    ObjectCorrupt,
    OffsetOutOfRange,
    OutsideFault,
    ReadRequest,
    StreamClosed,
)
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectMissing

_WINDOW = 64


class StreamReader:
    def __init__(
        self,
        store: StreamStore,
        index: IndexCache,
        tail: TailCache,
        segments: SegmentReader,
        parquet: ParquetReader,
        outside: OutsideEntries | None,
        on_growth: Callable[[int], None],
        doubts: Doubts,
        now: Callable[[], float],
    ) -> None:
        """`now`: as `Hearing.now`."""
        self.doubts = doubts
        self._store = store
        self._now = now
        self._on_growth = on_growth
        self._index = index
        self._tail = tail
        self.segments = segments
        self.parquet = parquet
        self._outside = outside
        self.on_missing: Callable[[int, IndexEntry], None] = lambda _, __: None
        """Called with a stream and an entry of it whose object no read finds any more."""

    @property
    def outside(self) -> OutsideEntries:
        """Reads the entries of objects that the log did not write. Raises `OutsideFault` where there is
        none."""
        return known_kind(self._outside)

    # --- bounds

    def known_bounds(self, stream: int) -> Bounds | None:
        return self._index.bounds(stream)

    def is_unanswered(self, stream: int) -> bool:
        """Was the store last asked without an answer?"""
        return self._index.unanswered(stream)

    def is_failing(self, stream: int) -> bool:
        """Did its last read fail? Then it is read an object at a time, and nothing is read ahead."""
        return self._index.failing(stream)

    def read_ended(self, stream: int, *, failed: bool) -> None:
        self._index.set_failing(stream, failed)

    def doubt_start(self, stream: int) -> None:
        """The start may have been raised: the next fetch asks the store first."""
        self._index.doubt(stream, self._now())

    async def refresh(self, stream: int, barrier: bool = False) -> Bounds:
        """Ask the store for the stream's bounds."""
        asked, hints = self._now(), self._index.hints
        try:
            if barrier:
                await self._store.barrier(stream)
            high_watermark, start = await asyncio.gather(
                self._store.high_watermark(stream), self._store.start(stream)
            )
            if start.version == 0 and high_watermark is not None:
                # The two were read side by side, so the stream may have been swept in between. A read behind
                # a barrier shows whether it was.
                await self._store.barrier(stream)
                high_watermark = await self._store.high_watermark(stream)
        except MetadataError as error:
            self._index.not_answered(stream)
            raise LogUnavailable(f"the metadata store did not answer: {error}") from error
        if high_watermark is None and not barrier:
            return await self.refresh(stream, barrier=True)  # the stream may be newer than a stale read
        if high_watermark is None or high_watermark.value.closed:
            self.forget(stream)
            raise StreamClosed(f"stream {stream} is closed")
        before = self._index.high_watermark(stream)
        self._index.observe(stream, high_watermark, start.value)
        self._index.was_read(stream, hints)
        if barrier:
            self._index.confirm(stream, asked)
        self._tail.drop_below(stream, start.value)
        bounds = self.known_bounds(stream)
        assert bounds is not None
        if before is None or before.end != bounds.end:
            self._on_growth(stream)  # always: no later call sees this growth, and waiting polls would miss it
        return bounds

    def forget(self, stream: int) -> None:
        self._index.forget(stream)
        self._tail.forget(stream)

    def forget_entries(self, stream: int) -> None:
        """Drop the stream's cached entries, which no longer hold: the store is asked from now on."""
        self._index.forget_entries(stream)

    def forget_cleaned(self, stream: int) -> None:
        """The stream was cleaned by key: what is in memory may be what was removed."""
        self._index.forget_entries(stream)
        self._tail.forget(stream)

    def forget_idle(self) -> None:
        """Drop what was not read lately, of all that is kept of streams and objects."""
        self._index.forget_idle()
        self._tail.forget_idle()
        self.segments.forget_idle()
        self.parquet.forget_idle()
        if self._outside is not None:
            self._outside.forget_idle()

    @property
    def kept_bytes(self) -> int:
        kept = self._index.size + self._tail.size + self.segments.size + self.parquet.size
        return kept if self._outside is None else kept + self._outside.size

    # --- planning

    async def plan(self, request: ReadRequest, max_bytes: int, at_least_one: bool) -> ReadPlan:
        """Raises OffsetOutOfRange, StreamClosed, LogUnavailable."""
        bounds = self.known_bounds(request.stream)
        if bounds is None:
            bounds = await self.refresh(request.stream, barrier=True)
        if not bounds.start <= request.offset <= bounds.end:
            bounds = await self.refresh(request.stream, barrier=True)
            if request.offset > bounds.end and self._is_classic(request.stream):
                return EmptyPlan(request, bounds)  # the source may have it: the mirror brings it
            if not bounds.start <= request.offset <= bounds.end:
                raise OffsetOutOfRange(request.offset, bounds.start, bounds.end)
        limit = min(max_bytes, request.max_bytes)
        if request.offset == bounds.end or (limit <= 0 and not at_least_one):
            return EmptyPlan(request, bounds)
        if self._tail.holds(request.stream, request.offset):
            batches = self._tail.read(request.stream, request.offset, limit, at_least_one)
            return TailPlan(request, bounds, sum([len(batch.view) for batch in batches]), batches)
        epoch = self.leader_epoch(
            request.stream
        )  # now: while an entry is looked for, the stream may be dropped
        slices: list[Slice] = []
        size = 0
        offset = request.offset
        one_object = self.is_failing(request.stream)
        while offset < bounds.end and (not slices or (size < limit and not one_object)):
            entry = self._index.find(request.stream, offset)
            if entry is None:
                if slices:
                    break  # enough for one answer: the next one goes on from here
                entry = await self.find(request.stream, offset)
            if not entry.lists_batches:
                if not slices:
                    plan = self._plan_outside if entry.is_outside else self._plan_compacted
                    return plan(request, bounds, limit, at_least_one, entry, epoch)
                break
            took = self._take(request.stream, entry, offset, limit - size, at_least_one and not slices, epoch)
            if took is None:
                break
            slices.append(took[0])
            size += took[1]
            if took[0].end < len(took[0].layout.starts):
                break
            offset = entry.end
        return WalPlan(request, bounds, size, slices, self) if slices else EmptyPlan(request, bounds)

    def _plan_compacted(
        self,
        request: ReadRequest,
        bounds: Bounds,
        limit: int,
        at_least_one: bool,
        entry: IndexEntry,
        epoch: int,
    ) -> ParquetPlan:
        """Files that follow each other, until they are enough. WAL entries behind them are left to the next
        read: only after this one is it known how many bytes the files gave."""
        offset, size, entries = request.offset, 0, [entry]
        while True:
            size += self.parquet.estimate(entry, offset)
            offset = entry.end
            following = self._index.find(request.stream, offset)
            if size >= limit or following is None or not following.is_parquet:
                break
            entry = following
            entries.append(entry)
        guess = max(1, min(size, limit))
        return ParquetPlan(request, bounds, guess, limit, at_least_one, entries, self, epoch)

    def _plan_outside(
        self,
        request: ReadRequest,
        bounds: Bounds,
        limit: int,
        at_least_one: bool,
        entry: IndexEntry,
        epoch: int,
    ) -> OutsidePlan:
        """Outside objects that follow each other, until they are enough, or one comes that stands alone."""
        outside, offset, size, entries = self.outside, request.offset, 0, [entry]
        while True:
            size += outside.estimate(entry, offset)
            offset = entry.end
            following = self._index.find(request.stream, offset)
            if size >= limit or following is None or not following.is_outside:
                break
            if outside.stands_alone(entry) or outside.stands_alone(following):
                break
            entry = following
            entries.append(entry)
        guess = max(1, min(size, limit))
        return OutsidePlan(request, bounds, guess, limit, at_least_one, entries, epoch, self)

    def origin(self, stream: int) -> Origin | None:
        """The origin of the stream, as far as is known. None: here."""
        high_watermark = self._index.high_watermark(stream)
        return None if high_watermark is None else high_watermark.origin

    def _is_classic(self, stream: int) -> bool:
        """Does its source own it? Then it ends there, and not where the mirror is."""
        origin = self.origin(stream)
        return origin is not None and origin.is_classic

    def leader_epoch(self, stream: int) -> int:
        """The leader epoch in the stream's batches. It is never guessed: a layout keeps it."""
        high_watermark = self._index.high_watermark(stream)
        if high_watermark is None:
            raise LogUnavailable(f"stream {stream} was dropped from memory meanwhile: ask again")
        return LEADER_EPOCH if high_watermark.origin is None else high_watermark.origin.leader_epoch

    def order(self, requests: Sequence[ReadRequest]) -> Sequence[int]:
        """The places of the requests, in the order to plan them: as asked, but first those in the middle of a
        row group or of an outside object that is in memory. Otherwise that would be decoded again for every
        part of it, if a client asks for its partitions in turns."""
        places = range(len(requests))
        if self.parquet.is_empty and (self._outside is None or self._outside.is_empty):
            return places
        return sorted(places, key=lambda place: not self._is_midway(requests[place]))

    def _is_midway(self, request: ReadRequest) -> bool:
        """Does the request go on in what is in memory of a compacted file or an outside object?"""
        entry = self._index.find(request.stream, request.offset)
        if entry is None or entry.lists_batches:
            return False
        if entry.is_outside:
            return self.outside.is_midway(entry, request.offset, self.leader_epoch(request.stream))
        return self.parquet.is_midway(entry, request.offset)

    def _take(
        self, stream: int, entry: IndexEntry, offset: int, limit: int, at_least_one: bool, epoch: int
    ) -> tuple[Slice, int] | None:
        layout = self.segments.layout(entry, stream, lambda _: epoch)
        first = end = layout.place_of(offset)
        size = 0
        for length in layout.lengths[first:]:
            if size + length > limit and not (at_least_one and size == 0):
                break
            size += length
            end += 1
        return (Slice(entry, layout, first, end), size) if end > first else None

    async def find(self, stream: int, offset: int, without: frozenset[UUID] = frozenset()) -> IndexEntry:
        """The entry that holds `offset`, from the cache or the store."""
        if not without:
            entry = self._index.find(stream, offset)
            if entry is not None:
                return entry
        for _ in range(3):
            forgotten = self._index.times_forgotten
            try:
                found = await self._store.entries_above(stream, offset, _WINDOW)
            except MetadataError as error:
                raise LogUnavailable(f"the metadata store did not answer: {error}") from error
            entry = _holding(found, offset, without)
            if entry is not None:
                live, _ = split(found, 0, ANY_END)
                self._index.remember(stream, [each.value for each in live], forgotten)
                return entry
            bounds = await self.refresh(stream, barrier=True)
            high_watermark = self._index.high_watermark(stream)
            head = None if high_watermark is None else high_watermark.head
            if head is not None and head.start <= offset < head.end and head.object_id not in without:
                return head
            if offset < bounds.start:
                raise OffsetOutOfRange(offset, bounds.start, bounds.end)
        raise _NoEntry(f"stream {stream}: no readable index entry holds offset {offset}")

    # --- reading

    def read_ahead_from(self, stream: int, offset: int, size: int) -> None:
        """Read the next `size` bytes into memory, as far as their entries are known."""
        while size > 0 and not self._tail.holds(stream, offset):
            entry = self._index.find(stream, offset)
            if entry is None:
                return
            if entry.is_parquet:
                self.parquet.read_ahead(entry, self.leader_epoch(stream))
                return
            if entry.is_outside:
                self.outside.read_ahead(entry, self.leader_epoch(stream))
                return
            size -= self.segments.read_ahead(self.segments.layout(entry, stream, self.leader_epoch), size)
            offset = entry.end

    async def read_batch(self, stream: int, entry: IndexEntry, place: int) -> memoryview:
        """One batch, for a look inside."""
        [view] = await self.segments.batches(
            self.segments.layout(entry, stream, self.leader_epoch), place, place + 1
        )
        return view

    async def read_elsewhere(self, request: ReadRequest, gone: IndexEntry) -> list[memoryview]:
        """The object of a (perhaps cached) entry is gone: its records were compacted into a file, or have
        expired. The index says which. If it says neither, the store may be wrong, and is asked again; where
        nothing else has the records, raises `ObjectLost` once it is proven that the object is lost."""
        if gone.is_outside:
            await self._must_be_replaced(request, gone)
        without = frozenset({gone.object_id})
        while (views := await self._read_by_index(request, without)) is None:
            text = f"{gone.path}: the object that holds offset {request.offset} is not in its store"
            lost = ObjectCorrupt(text, path=gone.path, place=request.offset, missing=True)
            told = self.doubts.failed(gone.path, WHOLE, lost)
            if told is not None:
                self.on_missing(request.stream, gone)
                raise told
            await self.doubts.turn(gone.path, WHOLE)
            without = frozenset()
        return views

    async def _read_by_index(self, request: ReadRequest, without: frozenset[UUID]) -> list[memoryview] | None:
        """Entries whose objects are missing are passed over. None: there is no other."""
        self._index.forget_entries(request.stream)
        for _ in range(8):
            try:
                entry = await self.find(request.stream, request.offset, without)
            except _NoEntry:
                if not without:
                    raise
                return None
            try:
                epoch = self.leader_epoch(request.stream)
                if entry.is_parquet:
                    taken = await self.parquet.read(entry, request.offset, request.max_bytes, True, epoch)
                    return taken.views
                if entry.is_outside:  # what was aborted in it is part of the answer: only a plan says it
                    raise LogUnavailable(f"{entry.path}: the segment lies elsewhere by now: ask again")
                took = self._take(request.stream, entry, request.offset, request.max_bytes, True, epoch)
                assert took is not None
                return await self.segments.batches(took[0].layout, took[0].first, took[0].end)
            except ObjectMissing:
                without = without | {entry.object_id}
        return None

    async def _must_be_replaced(self, request: ReadRequest, gone: IndexEntry) -> None:
        """Raises `OutsideFault` if the index still names the object: then its owner has taken it away, and
        nothing else has its records."""
        self._index.forget_entries(request.stream)
        if (await self.find(request.stream, request.offset)).object_id == gone.object_id:
            self.on_missing(request.stream, gone)
            raise OutsideFault(f"{gone.path}: the segment is gone from its store")


class _NoEntry(ObjectCorrupt):
    """The index has none that holds the offset, or none that may be used."""


def _holding(
    entries: list[Versioned[IndexEntry]], offset: int, without: frozenset[UUID]
) -> IndexEntry | None:
    """The last one that does. A late write can bring a replaced entry back, with records that were cleaned
    away; the one that covers it ends at the same offset or behind it."""
    for versioned in reversed(entries):
        entry = versioned.value
        if entry.start <= offset < entry.end and entry.object_id not in without:
            return entry
    return None
