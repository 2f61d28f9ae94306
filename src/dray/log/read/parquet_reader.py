"""Reading batches back from compacted files, a row group at a time.

An entry knows where its file's footer and row groups are, so a cold read is two requests at once: the footer
and the row group. The rows are put together to Kafka batches again, in a fixed way, so that every consumer
of a stream asks for the same ones: a row group is read and decoded once, off the event loop, then shared.
The next ones are read ahead. Both caches are bounded: decoded row groups by their bytes, footers by theirs.

If records were compacted away by key, a batch has holes, and carries no producer. An answer that comes to the
end of an entry ends there, even if the last records are gone (`kafka/records/filler.py`): otherwise a
consumer would ask for them for ever.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from dray.base.runtime import Runtime
from dray.kafka.records import HEADER_SIZE, LEADER_EPOCH, encode, filler
from dray.log.entries import IndexEntry
from dray.log.parquet.reader import Footer, ParquetCorrupt, find_time, greatest_time
from dray.log.parquet.statistics import RowGroup
from dray.log.read.doubts import Doubts
from dray.log.read.parquet_cache import Batches, FooterCache, GroupCache, GroupKey, LayoutCache
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt, TimestampedOffset
from dray.objects.contract import Buffer, ObjectError, ObjectMissing, ObjectStore, RangeOutside

if TYPE_CHECKING:
    import pyarrow


# The size of a batch at most: several fit into the least that consumers usually ask for.
BATCH_BYTES: Final = 128 << 10

_LOADS_AT_ONCE: Final = 4
_FOOTER_WEIGHT: Final = 8  # decoded, a footer takes about so many times its bytes

T = TypeVar("T")


class RowGroupBatches(NamedTuple):
    views: list[memoryview]
    size: int
    finished: bool  # the whole rest of the entry
    near_end: bool  # what is to be read ahead lies in the next entry, too


class ParquetReader:
    def __init__(
        self,
        objects: ObjectStore,
        runtime: Runtime,
        cache_bytes: int,
        footer_cache_bytes: int,
        groups_ahead: int,
        doubts: Doubts,
    ) -> None:
        self._doubts = doubts
        self._objects = objects
        self._runtime = runtime
        self.cache_bytes = cache_bytes
        self._ahead = groups_ahead
        self._layouts = LayoutCache()
        self._cached = GroupCache(cache_bytes)
        self._loading: dict[GroupKey, asyncio.Task[Batches]] = {}
        self._expected = 0  # bytes that the row groups being read ahead will take
        self._footers = FooterCache(footer_cache_bytes)
        self._slots = asyncio.Semaphore(_LOADS_AT_ONCE)

    # --- without reading

    def groups(self, entry: IndexEntry) -> list[RowGroup]:
        return self._layouts.get(entry)

    @property
    def size(self) -> int:
        """Bytes kept: row groups, footers and layouts."""
        return self._cached.size + self._footers.size + self._layouts.size

    def forget_idle(self) -> None:
        """Drop what was not used between the last three calls."""
        self._cached.forget_idle()
        self._footers.forget_idle()
        if self.is_empty:
            self._layouts.clear()

    @property
    def is_empty(self) -> bool:
        """Nothing is in memory."""
        return not self._cached

    def is_midway(self, entry: IndexEntry, offset: int) -> bool:
        """Is `offset` inside of a row group that is in memory, and not its first?"""
        groups = self.groups(entry)
        number = _holding(groups, offset)
        if number == len(groups):
            return False
        return offset > groups[number].first_offset and (entry.object_id, number) in self._cached

    def group_bytes(self, entry: IndexEntry, offset: int) -> int:
        """About what the row group that holds `offset` takes in memory."""
        groups = self.groups(entry)
        number = _holding(groups, offset)
        return groups[number].raw_bytes if number < len(groups) else HEADER_SIZE

    def estimate(self, entry: IndexEntry, offset: int) -> int:
        """About what the batches from `offset` to the end of the entry take. Never nothing."""
        groups = self.groups(entry)
        number = _holding(groups, offset)
        if number == len(groups):
            return HEADER_SIZE
        group = groups[number]
        offsets = group.last_offset - group.first_offset + 1
        left = group.last_offset + 1 - max(offset, group.first_offset)
        size = group.raw_bytes * left // offsets
        return max(1, size + sum([following.raw_bytes for following in groups[number + 1 :]]))

    # --- reading

    async def read(
        self,
        entry: IndexEntry,
        offset: int,
        limit: int,
        at_least_one: bool,
        leader_epoch: int = LEADER_EPOCH,
    ) -> RowGroupBatches:
        """Batches from the one that holds `offset`, or the first behind it, as many as fit. If they come to
        the end of the entry, they reach its last offset.

        Raises `ObjectMissing` when the file is gone: the caller looks further in the index.
        """
        groups = self.groups(entry)
        number = _holding(groups, offset)
        views: list[memoryview] = []
        size = 0
        while number < len(groups):
            batches = await self._batches(entry, number, leader_epoch)
            view, finished = batches.take(offset, limit - size, at_least_one and not views)
            if view:
                views.append(view)
                size += len(view)
            if not finished:
                break
            self._cached.finish((entry.object_id, number))
            number += 1
        self._read_ahead(entry, number + 1, leader_epoch)
        finished = number == len(groups)
        if finished and entry.last_record < entry.end - 1:
            if size + HEADER_SIZE <= limit or (at_least_one and not views):
                views.append(memoryview(filler(entry.end - 1, leader_epoch)))
                size += HEADER_SIZE
            else:
                finished = False
        return RowGroupBatches(views, size, finished, number + self._ahead >= len(groups))

    def read_ahead(self, entry: IndexEntry, leader_epoch: int = LEADER_EPOCH) -> None:
        """The first row groups of a file that a consumer will come to."""
        self._read_ahead(entry, 0, leader_epoch)

    def _read_ahead(self, entry: IndexEntry, first: int, leader_epoch: int) -> None:
        """Read ahead as far as there is room beside the row groups in use."""
        groups = self.groups(entry)
        for following in range(first, min(first + self._ahead, len(groups))):
            key = (entry.object_id, following)
            if key in self._cached or key in self._loading:
                continue
            size = groups[following].raw_bytes
            if self._cached.size - self._cached.finished_size + self._expected + size > self.cache_bytes:
                return
            self._expected += size
            self._load(entry, following, leader_epoch, ahead=True).add_done_callback(
                partial(self._arrived, size)
            )

    def _arrived(self, size: int, _: asyncio.Task[Batches]) -> None:
        self._expected -= size

    async def _batches(self, entry: IndexEntry, number: int, leader_epoch: int) -> Batches:
        key = (entry.object_id, number)
        batches = self._cached.get(key)
        if batches is not None:
            return batches
        loading = self._loading.get(key)
        if loading is None:
            loading = self._load(entry, number, leader_epoch)
        return await asyncio.shield(loading)

    def _load(
        self, entry: IndexEntry, number: int, leader_epoch: int, ahead: bool = False
    ) -> asyncio.Task[Batches]:
        key = (entry.object_id, number)
        loading = asyncio.get_running_loop().create_task(
            self._open(entry, number, partial(_rebuild, leader_epoch))
        )
        self._loading[key] = loading
        loading.add_done_callback(lambda task: self._loaded(key, task, ahead))
        return loading

    def _loaded(self, key: GroupKey, task: asyncio.Task[Batches], ahead: bool) -> None:
        del self._loading[key]
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            # A read that waits gets the error. Nothing waits for a read ahead, so unforeseen errors are
            # reported.
            if not isinstance(error, (LogError, ObjectError)):
                self._runtime.background.report("read compacted files", error)
            return
        self._cached.put(key, task.result(), ahead)

    async def _open(
        self, entry: IndexEntry, number: int, look: Callable[[pyarrow.RecordBatch, RowGroup], T]
    ) -> T:
        """Run `look` on the rows of a row group, in a thread, and return its result."""
        place = self.groups(entry)[number].position
        while True:
            await self._doubts.turn(entry.path, place)
            try:
                found = await self._open_once(entry, number, look)
            except (ObjectCorrupt, LogUnavailable) as error:
                if isinstance(error, ObjectCorrupt):
                    self._footers.forget(entry.object_id)  # without a checksum: it may be what is damaged
                told = self._doubts.failed(entry.path, place, error)
                if told is None:
                    continue
                raise told from error
            self._doubts.sound(entry.path, place)
            return found

    async def _open_once(
        self, entry: IndexEntry, number: int, look: Callable[[pyarrow.RecordBatch, RowGroup], T]
    ) -> T:
        group = self.groups(entry)[number]
        async with self._slots:
            # Both requests always run to their end, so that the error of one does not hide what the other
            # found.
            footer, data = await asyncio.gather(
                self._footer(entry), self._range(entry, group.position, group.length), return_exceptions=True
            )
            for failure in (data, footer):
                if isinstance(failure, BaseException):
                    raise failure
            assert isinstance(footer, Footer)
            assert not isinstance(data, BaseException)
            try:
                return await self._runtime.in_thread(_look_into_group, footer, number, group, data, look)
            except ParquetCorrupt as error:
                text = f"{entry.path}: {error}"
                raise ObjectCorrupt(text, path=entry.path, place=group.position) from error

    async def _footer(self, entry: IndexEntry) -> Footer:
        loading = self._footers.get(entry.object_id)
        if loading is None:
            task = asyncio.get_running_loop().create_task(
                _answered(read_footer(self._objects, self._runtime, entry))
            )
            loading = self._footers.put(entry.object_id, task, entry.footer_length * _FOOTER_WEIGHT)
        return await asyncio.shield(loading)

    async def _range(self, entry: IndexEntry, position: int, length: int) -> Buffer:
        return await _answered(read_range(self._objects, entry, position, length))

    # --- by time

    async def first_at_or_after(
        self, entry: IndexEntry, start: int, timestamp: int
    ) -> TimestampedOffset | None:
        """The first record of the entry from `start` on whose time is at least `timestamp`."""
        for number, group in enumerate(self.groups(entry)):
            if group.last_offset < start or group.max_timestamp < timestamp:
                continue
            found = await self._open(entry, number, lambda rows, _: find_time(rows, start, timestamp))
            if found is not None:
                return TimestampedOffset(*found)
        return None

    async def greatest(self, entry: IndexEntry, start: int) -> TimestampedOffset | None:
        """The first record of the entry from `start` on that has their greatest time."""
        best: TimestampedOffset | None = None
        for number, group in enumerate(self.groups(entry)):
            if group.last_offset < start:
                continue
            if best is None or group.max_timestamp > best.timestamp:
                found = await self._open(entry, number, lambda rows, _: greatest_time(rows, start))
                if best is None or found[1] > best.timestamp:
                    best = TimestampedOffset(*found)
        return best


def _holding(groups: list[RowGroup], offset: int) -> int:
    """The row group that holds an offset, or the first behind it; as many as there are where none is."""
    return bisect_left(groups, offset, key=lambda group: group.last_offset)


def _look_into_group(
    footer: Footer,
    number: int,
    group: RowGroup,
    data: Buffer,
    look: Callable[[pyarrow.RecordBatch, RowGroup], T],
) -> T:
    rows = footer.read_group(
        number, group.position, data, group.first_offset, group.record_count, group.last_offset
    )
    return look(rows, group)


def _rebuild(leader_epoch: int, rows: pyarrow.RecordBatch, group: RowGroup) -> Batches:
    from dray.kafka.records.arrow import from_arrow

    data = encode(
        from_arrow(rows), leader_epoch=leader_epoch, batch_bytes=BATCH_BYTES, sparse=not group.is_dense
    )
    return Batches(data)


async def _answered(reading: Coroutine[Any, Any, T]) -> T:
    """`ObjectMissing` passes through: the file was merged or has expired, and the caller looks further."""
    try:
        return await reading
    except ObjectMissing:
        raise
    except ObjectError as error:
        raise LogUnavailable(f"the object store did not answer: {error}") from error


# --- ranges of the objects that index entries name, for fetches and for compaction


async def read_range(objects: ObjectStore, entry: IndexEntry, position: int, length: int) -> Buffer:
    """Bytes of an entry's object, or of what the entry carries. Raises `ObjectCorrupt` for an object that
    ends before its entry says, and otherwise the store's own errors."""
    if entry.is_carried:
        return memoryview(entry.data)[position : position + length]
    try:
        [data] = await objects.get_ranges(entry.path, [(position, length)])
    except RangeOutside as error:
        text = f"{entry.path} is shorter than its index entry says: {error}"
        raise ObjectCorrupt(text, path=entry.path, place=position) from error
    return data


async def read_footer(objects: ObjectStore, runtime: Runtime, entry: IndexEntry) -> Footer:
    """The footer of an entry's Parquet file: one request, since the entry knows where it is."""
    size, length = entry.file_size, entry.footer_length
    data = await read_range(objects, entry, size - length, length)
    try:
        return await runtime.in_thread(Footer, data, size)
    except ParquetCorrupt as error:
        raise ObjectCorrupt(f"{entry.path}: {error}", path=entry.path, place=size - length) from error
