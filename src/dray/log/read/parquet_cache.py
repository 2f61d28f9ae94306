"""A broker's caches of compacted files: row groups put together to Kafka batches, and footers."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from typing import Final, TypeAlias
from uuid import UUID

from dray.kafka.records import read_header
from dray.log.entries import IndexEntry
from dray.log.parquet.reader import Footer
from dray.log.parquet.statistics import RowGroup

GroupKey: TypeAlias = tuple[UUID, int]  # file, number of the row group

_FILE_BYTES: Final = 400
_GROUP_BYTES: Final = 350


class Batches:
    """The batches of a row group in one buffer, where each begins, and its last offset: a batch that comes
    after a hole begins later than the one before it ends."""

    __slots__ = ("data", "lasts", "positions", "size", "used")

    def __init__(self, data: bytearray) -> None:
        self.data = memoryview(data)
        self.lasts = array("q")
        self.positions = array("q", [0])
        at = 0
        while at < len(data):
            header = read_header(data, at)
            self.lasts.append(header.base_offset + header.last_offset_delta)
            at += header.size
            self.positions.append(at)
        self.size = len(data)  # the positions are small beside batches that fill `BATCH_BYTES`
        self.used = 0

    def take(self, offset: int, limit: int, at_least_one: bool) -> tuple[memoryview, bool]:
        """From the batch that holds `offset`, or the first behind it, as many as fit; and whether these were
        all that follow."""
        first = bisect_left(self.lasts, offset)
        if first == len(self.lasts):
            return self.data[:0], True
        end = bisect_right(self.positions, self.positions[first] + limit) - 1
        end = max(end, first + 1 if at_least_one else first)  # a negative limit leaves nothing
        return self.data[self.positions[first] : self.positions[end]], end == len(self.lasts)


class GroupCache:
    """Drops the least useful row groups first: those that a consumer has read to the end, then those that
    were read ahead and not asked for yet, then those that were not asked for in the longest time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._finished: OrderedDict[GroupKey, Batches] = OrderedDict()
        self._ahead: OrderedDict[GroupKey, Batches] = OrderedDict()
        self._in_use: OrderedDict[GroupKey, Batches] = OrderedDict()
        self._round = 0
        self.size = 0
        self.finished_size = 0

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._in_use or key in self._ahead or key in self._finished

    def __len__(self) -> int:
        return len(self._in_use) + len(self._ahead) + len(self._finished)

    def get(self, key: GroupKey) -> Batches | None:
        batches = self._take(key)
        if batches is not None:
            self._in_use[key] = batches  # as the one that was used last
            batches.used = self._round
        return batches

    def put(self, key: GroupKey, batches: Batches, ahead: bool) -> None:
        (self._ahead if ahead else self._in_use)[key] = batches
        batches.used = self._round
        self.size += batches.size
        while self.size > self._limit and len(self):
            self._drop_one()

    def finish(self, key: GroupKey) -> None:
        """A consumer has read the row group to its end."""
        batches = self._take(key)
        if batches is not None:
            self._finished[key] = batches
            self.finished_size += batches.size

    def _take(self, key: GroupKey) -> Batches | None:
        batches = self._finished.pop(key, None)
        if batches is not None:
            self.finished_size -= batches.size
            return batches
        return self._in_use.pop(key, None) or self._ahead.pop(key, None)

    def forget_idle(self) -> None:
        """Row groups that were not used between the last three calls."""
        for kind in (self._finished, self._ahead, self._in_use):
            for key, batches in list(kind.items()):
                if batches.used < self._round - 1:
                    self._take(key)
                    self.size -= batches.size
        self._round += 1

    def _drop_one(self) -> None:
        if self._finished:
            _, dropped = self._finished.popitem(last=False)
            self.finished_size -= dropped.size
        elif self._ahead:
            _, dropped = self._ahead.popitem()
        else:
            _, dropped = self._in_use.popitem(last=False)
        self.size -= dropped.size


class FooterCache:
    """Footers of files, loaded or being loaded. The least recently used are dropped first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[UUID, tuple[asyncio.Task[Footer], int]] = OrderedDict()
        self._used: dict[UUID, int] = {}
        self._round = 0
        self.size = 0

    def get(self, file: UUID) -> asyncio.Task[Footer] | None:
        known = self._known.get(file)
        if known is None:
            return None
        self._known.move_to_end(file)
        self._used[file] = self._round
        return known[0]

    def put(self, file: UUID, task: asyncio.Task[Footer], size: int) -> asyncio.Task[Footer]:
        self._known[file] = task, size
        self._used[file] = self._round
        self.size += size
        while self.size > self._limit and len(self._known) > 1:
            self._drop(next(iter(self._known)))
        task.add_done_callback(lambda done: self._read(file, done))
        return task

    def forget(self, file: UUID) -> None:
        if file in self._known:
            self._drop(file)

    def _read(self, file: UUID, task: asyncio.Task[Footer]) -> None:
        known = self._known.get(file)
        if (task.cancelled() or task.exception() is not None) and known is not None and known[0] is task:
            self._drop(file)  # the next read tries again

    def forget_idle(self) -> None:
        """Footers that were not used between the last three calls."""
        while self._known and self._used[file := next(iter(self._known))] < self._round - 1:
            self._drop(file)
        self._round += 1

    def _drop(self, file: UUID) -> None:
        del self._used[file]
        self.size -= self._known.pop(file)[1]


class LayoutCache:
    """The places of row groups in files, as their entries say. The least recently used are dropped first."""

    def __init__(self, limit: int = 16 << 20) -> None:
        self._limit = limit
        self._known: OrderedDict[UUID, list[RowGroup]] = OrderedDict()
        self.size = 0

    def get(self, entry: IndexEntry) -> list[RowGroup]:
        groups = self._known.get(entry.object_id)
        if groups is not None:
            self._known.move_to_end(entry.object_id)
            return groups
        groups = self._known[entry.object_id] = entry.row_groups()
        self.size += _layout_bytes(groups)
        while self.size > self._limit and len(self._known) > 1:
            self.size -= _layout_bytes(self._known.popitem(last=False)[1])
        return groups

    def clear(self) -> None:
        """Drop all layouts: they are cheap to make again."""
        self._known.clear()
        self.size = 0


def _layout_bytes(groups: list[RowGroup]) -> int:
    return _FILE_BYTES + _GROUP_BYTES * len(groups)
