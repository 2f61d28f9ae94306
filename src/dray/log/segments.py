"""Reading batches back from WAL objects, in segments of about a mebibyte.

An entry's batches are cut into segments in a fixed way, so that every consumer of a stream asks for the
same ones: a segment is read once, checked, patched, and then shared. The next one is read ahead.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.log.entries import BatchReference, IndexEntry
from dray.log.types import LogUnavailable, ObjectCorrupt
from dray.objects.contract import ObjectError, ObjectMissing, ObjectStore, RangeOutside
from dray.records import crc32c, patch_all
from dray.runtime import Runtime

SEGMENT_BYTES: Final = 1 << 20
LEADER_EPOCH: Final = 0

_LAYOUTS: Final = 512
_LENGTH_MAGIC_CRC = Struct(">i4xbI")  # from byte 8: length, then leader epoch, magic and the CRC
_MAGIC: Final = 2  # not covered by the CRC, as are the base offset and the epoch, which are patched anyway
_CRC_FROM: Final = 21
_PREFIX: Final = 12


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
        self._loading: dict[_Key, asyncio.Task[memoryview]] = {}
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

    def read_ahead(self, entry: IndexEntry, stream: int, number: int = 0) -> None:
        key = (entry.wal_id, stream, number)
        if key not in self._cached and key not in self._loading:
            self._load(entry, stream, self.layout(entry, stream), number)

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
    ) -> asyncio.Task[memoryview]:
        key = (entry.wal_id, stream, number)
        loading = asyncio.get_running_loop().create_task(self._read(entry, layout, number))
        self._loading[key] = loading
        loading.add_done_callback(lambda task: self._loaded(key, task))
        return loading

    def _loaded(self, key: _Key, task: asyncio.Task[memoryview]) -> None:
        del self._loading[key]
        if task.cancelled() or task.exception() is not None:
            return  # whoever waits for it gets the error; a read ahead is for nobody yet
        data = task.result()
        self._cached[key] = data
        self._size += len(data)
        while self._size > self._cache_bytes and self._cached:
            self._size -= len(self._cached.popitem(last=False)[1])

    async def _read(self, entry: IndexEntry, layout: EntryLayout, number: int) -> memoryview:
        segment = layout.segments[number]
        try:
            [data] = await self._objects.get_ranges(entry.path, [(segment.position, segment.length)])
        except ObjectMissing:
            raise
        except RangeOutside as error:
            raise ObjectCorrupt(f"{entry.path} is shorter than its index entry says") from error
        except ObjectError as error:
            raise LogUnavailable(f"the object store did not answer: {error}") from error
        view = memoryview(data)
        places: list[tuple[int, int]] = []
        for place in range(segment.first, segment.end):
            reference = layout.references[place]
            at = reference.position - segment.position
            self._check(entry, view[at : at + reference.length], reference)
            places.append((at, layout.starts[place]))
        patch_all(data, places, LEADER_EPOCH)
        return view

    @staticmethod
    def _check(entry: IndexEntry, batch: memoryview, reference: BatchReference) -> None:
        length, magic, crc = _LENGTH_MAGIC_CRC.unpack_from(batch, 8)
        if length != reference.length - _PREFIX or magic != _MAGIC or crc32c(batch[_CRC_FROM:]) != crc:
            raise ObjectCorrupt(
                f"{entry.path}: the batch at byte {reference.position} is not what was stored"
            )
