"""Reading a stream: its bounds, where an offset lies, and its batches.

The cached index may be behind the store. So before the reader says that there is nothing more, or that an
offset is out of range, it asks the store again, behind a barrier. With an old start, deleted records would be
served: so bounds are good for a few seconds, and then the store is asked (`docs/design/0066`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.log.foreign_reader import ForeignReader
from dray.log.index_cache import IndexCache
from dray.log.origins import Origin
from dray.log.parquet_reader import ParquetReader
from dray.log.plans import EmptyPlan, ForeignPlan, ParquetPlan, ReadPlan, Slice, TailPlan, WalPlan
from dray.log.segments import SegmentReader
from dray.log.stream_store import StreamStore, Versioned
from dray.log.tail_cache import TailCache
from dray.log.types import (
    Bounds,
    ForeignSegmentFault,
    LogError,
    LogUnavailable,
    ObjectCorrupt,
    OffsetOutOfRange,
    ReadRequest,
    StreamClosed,
)
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectMissing
from dray.records import LEADER_EPOCH
from dray.runtime import Runtime, run_once

_WINDOW = 64


class StreamReader:
    def __init__(
        self,
        store: StreamStore,
        index: IndexCache,
        tail: TailCache,
        segments: SegmentReader,
        parquet: ParquetReader,
        foreign: ForeignReader,
        runtime: Runtime,
        on_growth: Callable[[int], None],
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._confirming: set[int] = set()
        self._on_growth = on_growth
        self._index = index
        self._tail = tail
        self.segments = segments
        self.parquet = parquet
        self.foreign = foreign

    # --- bounds

    def known_bounds(self, stream: int) -> Bounds | None:
        return self._index.bounds(stream)

    def confirmed(self, stream: int) -> float:
        """When the store was last asked for the stream's bounds, behind a barrier."""
        return self._index.confirmed(stream)

    def is_unanswered(self, stream: int) -> bool:
        """Was the store last asked without an answer?"""
        return self._index.unanswered(stream)

    def confirm_soon(self, stream: int) -> None:
        """Ask the store in the background, so that no fetch has to wait for it."""
        if stream not in self._confirming:
            self._confirming.add(stream)
            run_once(self._runtime, "confirm bounds", self._confirm, stream)

    async def _confirm(self, stream: int) -> None:
        try:
            await self.refresh(stream, barrier=True)
        except LogError:
            pass  # the next fetch meets the error itself, or uses bounds that are still good
        finally:
            self._confirming.discard(stream)

    def doubt_start(self, stream: int) -> None:
        """The start may have been raised: the next fetch asks the store first."""
        self._index.doubt(stream, self._runtime.monotonic())

    async def refresh(self, stream: int, barrier: bool = False) -> Bounds:
        """Ask the store for the stream's bounds."""
        asked = self._runtime.monotonic()
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

    def forget_idle(self) -> None:
        """Drop what was not read lately, of all that is kept of streams and objects."""
        self._index.forget_idle()
        self._tail.forget_idle()
        self.segments.forget_idle()
        self.parquet.forget_idle()
        self.foreign.forget_idle()

    @property
    def kept_bytes(self) -> int:
        kept = self._index.size + self._tail.size
        return kept + self.segments.size + self.parquet.size + self.foreign.size

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
        slices: list[Slice] = []
        size = 0
        offset = request.offset
        while offset < bounds.end and (size < limit or not slices):
            entry = self._index.find(request.stream, offset)
            if entry is None:
                if slices:
                    break  # enough for one answer: the next one goes on from here
                entry = await self.find(request.stream, offset)
            if not entry.lists_batches:
                if not slices:
                    plan = self._plan_foreign if entry.is_foreign else self._plan_compacted
                    return plan(request, bounds, limit, at_least_one, entry)
                break
            took = self._take(request.stream, entry, offset, limit - size, at_least_one and not slices)
            if took is None:
                break
            slices.append(took[0])
            size += took[1]
            if took[0].end < len(took[0].layout.starts):
                break
            offset = entry.end
        return WalPlan(request, bounds, size, slices, self) if slices else EmptyPlan(request, bounds)

    def _plan_compacted(
        self, request: ReadRequest, bounds: Bounds, limit: int, at_least_one: bool, entry: IndexEntry
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
        guess, epoch = max(1, min(size, limit)), self.leader_epoch(request.stream)
        return ParquetPlan(request, bounds, guess, limit, at_least_one, entries, self, epoch)

    def _plan_foreign(
        self, request: ReadRequest, bounds: Bounds, limit: int, at_least_one: bool, entry: IndexEntry
    ) -> ForeignPlan:
        """Segments that follow each other, until they are enough, or a hole comes."""
        offset, size, entries = request.offset, 0, [entry]
        while True:
            size += self.foreign.estimate(entry, offset)
            offset = entry.end
            following = self._index.find(request.stream, offset)
            if size >= limit or following is None or not following.is_foreign:
                break
            if self.foreign.may_be_hole(entry) or self.foreign.may_be_hole(following):
                break
            entry = following
            entries.append(entry)
        guess = max(1, min(size, limit))
        epoch = self.leader_epoch(request.stream)
        return ForeignPlan(request, bounds, guess, limit, at_least_one, entries, epoch, self)

    def origin(self, stream: int) -> Origin | None:
        """Where the stream began, as far as is known. None: here."""
        high_watermark = self._index.high_watermark(stream)
        return None if high_watermark is None else high_watermark.origin

    def _is_classic(self, stream: int) -> bool:
        """Does its source own it? Then it ends there, and not where the mirror is."""
        origin = self.origin(stream)
        return origin is not None and origin.is_classic

    def leader_epoch(self, stream: int) -> int:
        """What batches of the stream carry."""
        origin = self.origin(stream)
        return LEADER_EPOCH if origin is None else origin.leader_epoch

    def order(self, requests: Sequence[ReadRequest]) -> Sequence[int]:
        """The places of the requests, in the order to plan them: as asked, but first those in the middle of a
        row group or of a foreign piece that is in memory. Otherwise it would be decoded again for every part
        of it, if a client asks for its partitions in turns."""
        places = range(len(requests))
        if self.parquet.is_empty and self.foreign.is_empty:
            return places
        return sorted(places, key=lambda place: not self._is_midway(requests[place]))

    def _is_midway(self, request: ReadRequest) -> bool:
        """Does the request go on in what is in memory of a compacted file or a foreign segment?"""
        entry = self._index.find(request.stream, request.offset)
        if entry is None or entry.lists_batches:
            return False
        if entry.is_foreign:
            return self.foreign.is_midway(entry, request.offset, self.leader_epoch(request.stream))
        return self.parquet.is_midway(entry, request.offset)

    def _take(
        self, stream: int, entry: IndexEntry, offset: int, limit: int, at_least_one: bool
    ) -> tuple[Slice, int] | None:
        layout = self.segments.layout(entry, stream, self.leader_epoch)
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
            try:
                found = await self._store.entries_above(stream, offset, _WINDOW)
            except MetadataError as error:
                raise LogUnavailable(f"the metadata store did not answer: {error}") from error
            entry = _holding(found, offset, without)
            if entry is not None:
                self._index.remember(stream, [versioned.value for versioned in found])
                return entry
            bounds = await self.refresh(stream, barrier=True)
            high_watermark = self._index.high_watermark(stream)
            head = None if high_watermark is None else high_watermark.head
            if head is not None and head.start <= offset < head.end and head.object_id not in without:
                return head
            if offset < bounds.start:
                raise OffsetOutOfRange(offset, bounds.start, bounds.end)
        raise ObjectCorrupt(f"stream {stream}: no readable index entry holds offset {offset}")

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
            if entry.is_foreign:
                self.foreign.read_ahead(entry, self.leader_epoch(stream))
                return
            size -= self.segments.read_ahead(self.segments.layout(entry, stream, self.leader_epoch))
            offset = entry.end

    async def read_batch(self, stream: int, entry: IndexEntry, place: int) -> memoryview:
        """One batch, for a look inside."""
        [view] = await self.segments.batches(
            self.segments.layout(entry, stream, self.leader_epoch), place, place + 1
        )
        return view

    async def read_elsewhere(self, request: ReadRequest, gone: IndexEntry) -> list[memoryview]:
        """The object of a (perhaps cached) entry is gone: its records were compacted into a file, or have
        expired. The index says which; entries whose objects are gone are passed over."""
        if gone.is_foreign:
            await self._must_be_replaced(request, gone)
        self._index.forget_entries(request.stream)
        without: frozenset[UUID] = frozenset()
        for _ in range(8):
            entry = await self.find(request.stream, request.offset, without or frozenset({gone.object_id}))
            try:
                if entry.is_parquet:
                    epoch = self.leader_epoch(request.stream)
                    taken = await self.parquet.read(entry, request.offset, request.max_bytes, True, epoch)
                    return taken.views
                if entry.is_foreign:  # what was aborted in it is part of the answer: only a plan says it
                    raise LogUnavailable(f"{gone.path}: the segment lies elsewhere by now: ask again")
                took = self._take(request.stream, entry, request.offset, request.max_bytes, True)
                assert took is not None
                return await self.segments.batches(took[0].layout, took[0].first, took[0].end)
            except ObjectMissing:
                without = without | {gone.object_id, entry.object_id}
        raise ObjectCorrupt(
            f"stream {request.stream}: the objects that held offset {request.offset} are gone"
        )

    async def _must_be_replaced(self, request: ReadRequest, gone: IndexEntry) -> None:
        """Raises `ForeignSegmentFault` if the index still names the segment: then its owner has taken it
        away, and nothing else has its records."""
        self._index.forget_entries(request.stream)
        if (await self.find(request.stream, request.offset)).object_id == gone.object_id:
            raise ForeignSegmentFault(f"{gone.path}: the segment is gone from its store")


def _holding(
    entries: list[Versioned[IndexEntry]], offset: int, without: frozenset[UUID]
) -> IndexEntry | None:
    for versioned in entries:
        entry = versioned.value
        if entry.start <= offset < entry.end and entry.object_id not in without:
            return entry
    return None
