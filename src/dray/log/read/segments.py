"""Reading batches back from WAL objects, in segments of about a mebibyte.

An entry's batches are cut into segments in a fixed way, so that every consumer of a stream asks for the
same ones: a segment is read once, checked, patched, and then shared. Memory is bounded by bytes: the buffers
that hold segments, and the layouts that say where batches lie.

An object holds the batches of many streams side by side, and a consumer of one often reads its neighbours
too. So all segments of an object that are wanted in the same turn of the event loop are read in one call, and
checked by the thread that read them.

Carried batches are in memory already: they are checked and patched at each read, since they are small, and no
copy is kept.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from dray.base.runtime import Runtime, run_once
from dray.kafka.records import LEADER_EPOCH, restore
from dray.log.entries import IndexEntry
from dray.log.read.doubts import Doubts
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore, OwnBuffer, RangeOutside

SEGMENT_BYTES: Final = 1 << 20

LAYOUT_BYTES: Final = 32 << 20
"""The most bytes that all layouts take together."""

_BATCH_BYTES: Final = 6 * 8  # three numbers in the layout, three in its segment
_SEGMENT_BYTES: Final = 400
_LAYOUT_BYTES: Final = 1000


class Block:
    """A buffer that was read in one call, and the segments in it. It is in memory as long as any of them
    is, so they come and go together."""

    __slots__ = ("segments", "size", "unserved", "used")

    def __init__(self, size: int, used: int) -> None:
        self.size = size
        self.used = used
        self.unserved = 0  # segments
        self.segments: list[Segment] = []


class Segment:
    """Adjoining batches of an entry, and their bytes while they are in memory."""

    __slots__ = ("block", "data", "end", "epoch", "first", "length", "loading", "loads", "places", "position")

    def __init__(
        self, first: int, end: int, position: int, length: int, places: array[int], epoch: int
    ) -> None:
        self.first = first  # batches first up to, not including, end
        self.end = end
        self.position = position
        self.length = length
        self.places = places  # of each batch: position in the segment, length, base offset
        self.epoch = epoch  # of the leader, which its batches are served with
        self.data: memoryview | None = None
        self.block: Block | None = None  # where there is data
        self.loading: asyncio.Future[memoryview] | None = None
        self.loads = 0  # since it was last served


class EntryLayout:
    """An entry's batches, decoded once for all who read them."""

    __slots__ = (
        "carried",
        "lengths",
        "path",
        "positions",
        "segment_ends",
        "segments",
        "size",
        "starts",
        "used",
    )

    def __init__(self, entry: IndexEntry, epoch: int = LEADER_EPOCH) -> None:
        self.path = entry.path or entry.place
        self.carried = entry.data if entry.is_carried else None
        self.starts, self.positions, self.lengths = [array("q", column) for column in entry.places()]
        self.used = 0
        self.segments: list[Segment] = []
        first, last = 0, len(self.starts) - 1
        for place, (position, length) in enumerate(zip(self.positions, self.lengths, strict=True)):
            size = position + length - self.positions[first]
            if size >= SEGMENT_BYTES or place == last:
                self.segments.append(self._segment(first, place + 1, size, epoch))
                first = place + 1
        self.segment_ends = array("q", [segment.end for segment in self.segments])
        self.size = _LAYOUT_BYTES + _SEGMENT_BYTES * len(self.segments) + _BATCH_BYTES * len(self.starts)
        self.size += len(entry.data)

    def _segment(self, first: int, end: int, size: int, epoch: int) -> Segment:
        begin = self.positions[first]
        places = array("q", bytes(3 * 8 * (end - first)))
        places[0::3] = array("q", [position - begin for position in self.positions[first:end]])
        places[1::3] = self.lengths[first:end]
        places[2::3] = self.starts[first:end]
        return Segment(first, end, begin, size, places, epoch)

    def place_of(self, offset: int) -> int:
        """Which batch holds `offset`."""
        return bisect_right(self.starts, offset) - 1

    def segment_of(self, place: int) -> int:
        return bisect_right(self.segment_ends, place)

    def views(self, segment: Segment, data: memoryview, first: int, end: int) -> list[memoryview]:
        """The batches `first` up to, not including, `end`, as far as they lie in the segment."""
        begin = segment.position
        return [
            data[self.positions[place] - begin : self.positions[place] - begin + self.lengths[place]]
            for place in range(max(first, segment.first), min(end, segment.end))
        ]


class SegmentReader:
    def __init__(self, objects: ObjectStore, runtime: Runtime, cache_bytes: int, doubts: Doubts) -> None:
        self._doubts = doubts
        self._objects = objects
        self._runtime = runtime
        self._cache_bytes = cache_bytes
        self._layouts: OrderedDict[tuple[str | UUID, int, int], EntryLayout] = OrderedDict()
        self._layouts_size = 0
        self._kept: OrderedDict[Block, None] = OrderedDict()  # served: the longest unused first
        self._ahead: OrderedDict[Block, None] = OrderedDict()  # not all of it was served yet: these go last
        self._ahead_size = 0
        self._wanted: dict[str, list[Segment]] = {}  # by the object's path, in this turn of the loop
        self._size = 0
        self._coming = 0  # bytes of segments that are being read
        self._round = 0

    @property
    def size(self) -> int:
        """Bytes kept: buffers and layouts."""
        return self._size + self._layouts_size

    def layout(
        self, entry: IndexEntry, stream: int, epoch_of: Callable[[int], int] = lambda _: LEADER_EPOCH
    ) -> EntryLayout:
        """`epoch_of` says what the batches of a stream are served with."""
        # With its start: should a store ever let an append in twice, each copy is served at its own offset.
        key = (entry.path or entry.object_id, stream, entry.start)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = EntryLayout(entry, epoch_of(stream))
            self._layouts_size += layout.size
            while self._layouts_size > LAYOUT_BYTES and len(self._layouts) > 1:
                self._drop_layout()
        else:
            self._layouts.move_to_end(key)
        layout.used = self._round
        return layout

    def _drop_layout(self) -> None:
        """Drop the layout that was unused for longest. Its segments can no longer be found, and their memory
        is freed as others come."""
        self._layouts_size -= self._layouts.popitem(last=False)[1].size

    def forget_idle(self) -> None:
        """Drop what was not used between the last three calls."""
        while self._layouts and next(iter(self._layouts.values())).used < self._round - 1:
            self._drop_layout()
        for blocks in (self._kept, self._ahead):
            while blocks and next(iter(blocks)).used < self._round - 1:
                self._drop_block(blocks)
        self._round += 1

    def ready(self, layout: EntryLayout, first: int, end: int) -> list[memoryview] | None:
        """The batches `first` up to, not including, `end` of an entry, ready to be served, if all of them are
        in memory. This starts the reads of those that are not."""
        views: list[memoryview] = []
        complete = True
        number = layout.segment_of(first)
        at = first
        while at < end:
            segment = layout.segments[number]
            data = segment.data if layout.carried is None else _restored_carried(layout, segment)
            if data is None:
                complete = False
                if segment.loading is None and layout.carried is None:
                    self._load(layout, segment)
            elif complete:
                self._use(segment)
                views += layout.views(segment, data, first, end)
            at = segment.end
            number += 1
        return views if complete else None

    async def batches(self, layout: EntryLayout, first: int, end: int) -> list[memoryview]:
        """The same, waited for. Raises `ObjectMissing` when the object is gone: the caller looks further in
        the index."""
        views = self.ready(layout, first, end)
        if views is not None:
            return views
        views = []
        for segment in layout.segments[layout.segment_of(first) : layout.segment_of(end - 1) + 1]:
            views += layout.views(segment, await self._data(layout, segment), first, end)
        return views

    def has_room(self, size: int) -> bool:
        """May so much be read without pushing out what was read and not served yet?"""
        return self._ahead_size + self._coming + size <= self._cache_bytes

    def read_ahead(self, layout: EntryLayout, size: int, first: int = 0) -> int:
        """Start reading the segments from `first` on that will be wanted next, about so many bytes. How many
        bytes these are."""
        found = 0
        for number in range(first, len(layout.segments)):
            if found >= size:
                break
            segment = layout.segments[number]
            if segment.data is None and segment.loading is None and layout.carried is None:
                self._load(layout, segment)
            found += segment.length
        return found

    def is_coming(self, layout: EntryLayout, first: int, end: int) -> bool:
        """Will these batches be in memory when the client asks again? If so, it may be answered without them,
        but only once: a segment that was read and dropped before it was served, or could not be read, has to
        be waited for."""
        numbers = range(layout.segment_of(first), layout.segment_of(end - 1) + 1)
        return all(layout.segments[number].loads <= 1 for number in numbers)

    def _use(self, segment: Segment) -> None:
        block = segment.block
        if block is not None:
            block.used = self._round
            block.unserved -= segment.loads > 0
            if block in self._ahead and not block.unserved:
                del self._ahead[block]
                self._ahead_size -= block.size
                self._kept[block] = None
            elif not block.unserved:
                self._kept.move_to_end(block)
        segment.loads = 0

    async def _data(self, layout: EntryLayout, segment: Segment) -> memoryview:
        if layout.carried is not None:
            segment.loads = 0
            carried = _restored_carried(layout, segment)
            if carried is None:
                raise ObjectCorrupt(f"{layout.path}: what it carries is not what was stored")
            return carried
        if segment.data is None:
            segment.loads = 0
            loading = segment.loading
            if loading is None:
                loading = self._load(layout, segment)
            data = await asyncio.shield(loading)  # others wait for it too
        else:
            data = segment.data
        self._use(segment)
        return data

    def _load(self, layout: EntryLayout, segment: Segment) -> asyncio.Future[memoryview]:
        loop = asyncio.get_running_loop()
        loading: asyncio.Future[memoryview] = loop.create_future()
        segment.loading = loading
        segment.loads += 1
        self._coming += segment.length
        loading.add_done_callback(partial(self._came, segment.length))
        if not self._wanted:
            loop.call_soon(self._read_wanted)
        self._wanted.setdefault(layout.path, []).append(segment)
        return loading

    def _came(self, size: int, _: asyncio.Future[memoryview]) -> None:
        self._coming -= size

    def _read_wanted(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for path, segments in wanted.items():
            doubted = [segment for segment in segments if (path, segment.position) in self._doubts]
            for segment in doubted:
                run_once(self._runtime, "read segments", self._read, path, [segment])
            if len(doubted) < len(segments):
                sound = [segment for segment in segments if segment not in doubted]
                run_once(self._runtime, "read segments", self._read, path, sound)

    async def _read(self, path: str, segments: list[Segment]) -> None:
        """Read segments in one call. Those that have to be read again are read one by one, each in its turn,
        so that each gets its own answer."""
        try:
            if len(segments) == 1:
                await self._doubts.turn(path, segments[0].position)
            again = await self._read_together(path, segments)
        except BaseException as error:  # cancelled, or a fault of ours: no read may wait for ever
            for segment in segments:
                _fail(segment, LogUnavailable(f"{path} was not read: {error!r}"))
            raise
        for segment in again:
            run_once(self._runtime, "read segments", self._read, path, [segment])

    async def _read_together(self, path: str, segments: list[Segment]) -> list[Segment]:
        """Those that are to be read again, before anybody is told."""
        ranges = [(segment.position, segment.length) for segment in segments]
        try:
            answers = await self._objects.with_ranges(path, ranges, partial(_restored, path, segments))
        except ObjectMissing as error:
            self._doubts.suspect(path)
            for segment in segments:
                _fail(segment, error)  # the reader looks further in the index
            return []
        except ObjectError as error:
            if len(segments) > 1:
                return segments
            return self._failed(path, segments[0], _read_error(path, segments[0], error))
        blocks: dict[int, Block] = {}  # by the buffer that their segments lie in
        again: list[Segment] = []
        for segment, answer in zip(segments, answers, strict=True):
            if isinstance(answer, ObjectCorrupt):
                again += self._failed(path, segment, answer)
                continue
            self._doubts.sound(path, segment.position)
            block = blocks.get(id(answer.obj))
            if block is None:
                block = blocks[id(answer.obj)] = Block(memoryview(answer.obj).nbytes, self._round)
            self._fill(block, segment, answer)
        for block in blocks.values():
            self._keep(block)
        return again

    def _failed(self, path: str, segment: Segment, error: LogError) -> list[Segment]:
        """The segment, if it is to be read again before anybody is told."""
        told = self._doubts.failed(path, segment.position, error)
        if told is None:
            return [segment]
        _fail(segment, told)
        return []

    @staticmethod
    def _fill(block: Block, segment: Segment, data: memoryview) -> None:
        loading, segment.loading = segment.loading, None
        if loading is not None and not loading.done():
            loading.set_result(data)
        segment.data, segment.block = data, block
        block.segments.append(segment)
        block.unserved += segment.loads > 0

    def _keep(self, block: Block) -> None:
        self._size += block.size
        if block.unserved:
            self._ahead[block] = None
            self._ahead_size += block.size
        else:
            self._kept[block] = None
        while self._size > self._cache_bytes:
            self._drop_block(self._kept or self._ahead)

    def _drop_block(self, blocks: OrderedDict[Block, None]) -> None:
        block, _ = blocks.popitem(last=False)
        self._size -= block.size
        if blocks is self._ahead:
            self._ahead_size -= block.size
        for segment in block.segments:
            segment.data = segment.block = None


def _fail(segment: Segment, problem: Exception) -> None:
    """Reads that wait for the segment get the error. The next read loads it anew."""
    loading, segment.loading = segment.loading, None
    if loading is not None and not loading.done():
        loading.set_exception(problem)
        loading.exception()  # a read ahead has no waiting read, and asyncio would report its error


def _restored_carried(layout: EntryLayout, segment: Segment) -> memoryview | None:
    """Carried batches, as they are served. None if they are not sound: a read that waits for it says so."""
    assert layout.carried is not None
    buffer = bytearray(layout.carried[segment.position : segment.position + segment.length])
    if restore(buffer, segment.places, segment.epoch) >= 0:
        segment.loads += 1
        return None
    return memoryview(buffer)


def _restored(
    path: str, segments: Sequence[Segment], buffers: Sequence[OwnBuffer]
) -> list[memoryview | ObjectCorrupt]:
    """Every segment as it is served, or what is wrong with it."""
    answers: list[memoryview | ObjectCorrupt] = []
    for segment, buffer in zip(segments, buffers, strict=True):
        unsound = restore(buffer, segment.places, segment.epoch)
        if unsound < 0:
            answers.append(memoryview(buffer))
        else:
            position = segment.position + segment.places[3 * unsound]
            text = f"{path}: the batch at byte {position} is not what was stored"
            answers.append(ObjectCorrupt(text, path=path, place=position))
    return answers


def _read_error(path: str, segment: Segment, error: ObjectError) -> LogError:
    """The log's error for a failed read."""
    problem: LogError
    if isinstance(error, RangeOutside):
        place = segment.position
        problem = ObjectCorrupt(f"{path} is shorter than its index entry says", path=path, place=place)
    else:
        problem = LogUnavailable(f"the object store did not answer: {error}")
    problem.__cause__ = error
    return problem
