"""Reading batches back from WAL objects, in segments of about a mebibyte.

An entry's batches are cut into segments in a fixed way, so that every consumer of a stream asks for the
same ones: a segment is read once, checked, patched, and then shared.

An object holds the batches of many streams side by side, and who reads one of them often reads its neighbours
as well: what is asked of one object in the same turn of the event loop is read in one call.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.log.entries import BatchReference, IndexEntry
from dray.log.types import LogUnavailable, ObjectCorrupt
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore, OwnBuffer, RangeOutside
from dray.records import crc32c, patch_all
from dray.runtime import Runtime

SEGMENT_BYTES: Final = 1 << 20
LEADER_EPOCH: Final = 0

_LAYOUTS: Final = 512
_LENGTH_MAGIC_CRC = Struct(">i4xbI")  # from byte 8: length, then leader epoch, magic and the CRC
_MAGIC: Final = 2  # not covered by the CRC, as are the base offset and the epoch, which are patched anyway
_CRC_FROM: Final = 21
_PREFIX: Final = 12
_WORTH_A_THREAD: Final = 128 << 10


class Segment(NamedTuple):
    first: int  # batches first up to, not including, end
    end: int
    position: int
    length: int


class EntryLayout:
    """An entry's batches, decoded once while somebody reads them."""

    __slots__ = ("references", "segment_ends", "segments", "starts")

    def __init__(self, entry: IndexEntry) -> None:
        self.starts: list[int] = []
        self.references: list[BatchReference] = []
        for offset, reference in entry.batches():
            self.starts.append(offset)
            self.references.append(reference)
        self.segments: list[Segment] = []
        first = 0
        for place, reference in enumerate(self.references):
            position = self.references[first].position
            length = reference.position + reference.length - position
            if length >= SEGMENT_BYTES or place == len(self.references) - 1:
                self.segments.append(Segment(first, place + 1, position, length))
                first = place + 1
        self.segment_ends = [segment.end for segment in self.segments]

    def place_of(self, offset: int) -> int:
        """Which batch holds `offset`."""
        return bisect_right(self.starts, offset) - 1

    def segment_of(self, place: int) -> int:
        return bisect_right(self.segment_ends, place)


_Key = tuple[UUID, int, int]  # object, start offset of the entry, number of the segment


class SegmentReader:
    def __init__(self, objects: ObjectStore, runtime: Runtime, cache_bytes: int) -> None:
        self._objects = objects
        self._runtime = runtime
        self._cache_bytes = cache_bytes
        self._layouts: OrderedDict[tuple[UUID, int], EntryLayout] = OrderedDict()
        self._cached: OrderedDict[_Key, memoryview] = OrderedDict()
        self._loading: dict[_Key, asyncio.Future[memoryview]] = {}
        self._wanted: dict[str, list[_Load]] = {}  # by the object's path, in this turn of the loop
        self._size = 0

    def layout(self, entry: IndexEntry, stream: int) -> EntryLayout:
        key = (entry.wal_id, stream)
        layout = self._layouts.get(key)
        if layout is None:
            layout = self._layouts[key] = EntryLayout(entry)
            if len(self._layouts) > _LAYOUTS:
                self._layouts.popitem(last=False)
        return layout

    async def batches(
        self, entry: IndexEntry, stream: int, first: int, end: int, read_ahead: bool = True
    ) -> list[memoryview]:
        """The batches `first` up to, not including, `end` of an entry, ready to be served.

        Raises `ObjectMissing` when the object is gone: the caller looks further in the index.
        """
        layout = self.layout(entry, stream)
        views: list[memoryview] = []
        number = layout.segment_of(first)
        while first < end:
            segment = layout.segments[number]
            data = await self._segment(entry, stream, layout, number)
            for reference in layout.references[first : min(end, segment.end)]:
                at = reference.position - segment.position
                views.append(data[at : at + reference.length])
            first = segment.end
            number += 1
        if read_ahead and number < len(layout.segments):
            self.read_ahead(entry, stream, number)
        return views

    def read_ahead(self, entry: IndexEntry, stream: int, number: int = 0) -> int:
        """Have a segment ready for who asks next; its length."""
        layout = self.layout(entry, stream)
        key = (entry.wal_id, stream, number)
        if key not in self._cached and key not in self._loading:
            self._load(entry, stream, layout, number)
        return layout.segments[number].length

    async def _segment(self, entry: IndexEntry, stream: int, layout: EntryLayout, number: int) -> memoryview:
        key = (entry.wal_id, stream, number)
        data = self._cached.get(key)
        if data is not None:
            self._cached.move_to_end(key)
            return data
        loading = self._loading.get(key)
        if loading is None:
            loading = self._load(entry, stream, layout, number)
        return await asyncio.shield(loading)

    def _load(
        self, entry: IndexEntry, stream: int, layout: EntryLayout, number: int
    ) -> asyncio.Future[memoryview]:
        key = (entry.wal_id, stream, number)
        loop = asyncio.get_running_loop()
        loading: asyncio.Future[memoryview] = loop.create_future()
        self._loading[key] = loading
        loading.add_done_callback(partial(self._loaded, key))
        if not self._wanted:
            loop.call_soon(self._read_wanted)
        self._wanted.setdefault(entry.path, []).append(_Load(layout, layout.segments[number], loading))
        return loading

    def _loaded(self, key: _Key, loading: asyncio.Future[memoryview]) -> None:
        del self._loading[key]
        if loading.exception() is not None:
            return  # whoever waits for it gets the error; a read ahead is for nobody yet
        data = loading.result()
        self._cached[key] = data
        self._size += len(data)
        while self._size > self._cache_bytes and self._cached:
            self._size -= len(self._cached.popitem(last=False)[1])

    def _read_wanted(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for path, loads in wanted.items():
            self._runtime.spawn(self._read(path, loads), "read-segments")

    async def _read(self, path: str, loads: list[_Load]) -> None:
        """Read them in one call, or one by one where that failed: each gets an answer of its own."""
        try:
            buffers = await self._objects.get_ranges(path, [load.range for load in loads])
        except ObjectError as error:
            if len(loads) > 1:
                for load in loads:
                    await self._read(path, [load])
            else:
                loads[0].loading.set_exception(_told(path, error))
            return
        except BaseException as error:  # cancelled, or a fault of ours: nobody may wait for ever
            for load in loads:
                load.loading.set_exception(LogUnavailable(f"{path} was not read: {error!r}"))
            raise
        for load, view, problem in await self._check_all(path, loads, buffers):
            if problem is None:
                load.loading.set_result(view)
            else:
                load.loading.set_exception(problem)

    async def _check_all(self, path: str, loads: list[_Load], buffers: Sequence[OwnBuffer]) -> list[_Checked]:
        """A thread's work, if it is much: the bytes come from the disk, and have to be looked at all."""
        if sum(map(len, buffers)) < _WORTH_A_THREAD:
            return _checked(path, loads, buffers)
        return await self._runtime.in_thread(_checked, path, loads, buffers)


class _Load(NamedTuple):
    """A segment that is being read."""

    layout: EntryLayout
    segment: Segment
    loading: asyncio.Future[memoryview]

    @property
    def range(self) -> tuple[int, int]:
        return self.segment.position, self.segment.length


_Checked = tuple[_Load, memoryview, ObjectCorrupt | None]


def _checked(path: str, loads: list[_Load], buffers: Sequence[OwnBuffer]) -> list[_Checked]:
    """Every segment as it is served, or what is wrong with it."""
    checked: list[_Checked] = []
    for load, data in zip(loads, buffers, strict=True):
        view, problem = memoryview(data), None
        places: list[tuple[int, int]] = []
        for place in range(load.segment.first, load.segment.end):
            reference = load.layout.references[place]
            at = reference.position - load.segment.position
            if not _is_sound(view[at : at + reference.length], reference):
                problem = ObjectCorrupt(
                    f"{path}: the batch at byte {reference.position} is not what was stored"
                )
                break
            places.append((at, load.layout.starts[place]))
        else:
            patch_all(view, places, LEADER_EPOCH)
        checked.append((load, view, problem))
    return checked


def _is_sound(batch: memoryview, reference: BatchReference) -> bool:
    length, magic, crc = _LENGTH_MAGIC_CRC.unpack_from(batch, 8)
    return bool(length == reference.length - _PREFIX and magic == _MAGIC) and crc32c(batch[_CRC_FROM:]) == crc


def _told(path: str, error: ObjectError) -> Exception:
    """What the log says of a failed read. A missing object is the reader's to judge: it looks further."""
    told: Exception
    if isinstance(error, ObjectMissing):
        return error
    if isinstance(error, RangeOutside):
        told = ObjectCorrupt(f"{path} is shorter than its index entry says")
    else:
        told = LogUnavailable(f"the object store did not answer: {error}")
    told.__cause__ = error
    return told
