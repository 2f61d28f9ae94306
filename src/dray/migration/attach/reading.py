"""Reading a source: many small reads side by side, each bounded before it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from dray.migration.attach.found import MigrationRefused, naming
from dray.migration.formats import ForeignDamage, ForeignFault, walk_batches
from dray.migration.formats.batches import SegmentBatch
from dray.objects.contract import Buffer, ObjectError, ObjectInfo, ObjectMissing, ObjectStore, RangeOutside

AT_ONCE: Final = 64
"""Reads under way: at 20 ms each, three thousand a second."""

LARGEST_PART: Final = 32 << 20
"""Of an index, a checkpoint, a manifest or a snapshot. Kafka's own limit for an index is 10 MiB."""

LARGEST_TAIL: Final = 256 << 20
"""The most bytes to read of a segment to find its last batch. Kafka has a row of an index every 4 KiB."""

_LARGE: Final = 4 << 20

T = TypeVar("T")
S = TypeVar("S")


async def each_of(
    items: Sequence[S], work: Callable[[S], Awaitable[T]], done: Callable[[], None] = lambda: None
) -> list[T]:
    """The result of `work` for every item, in their order, with `AT_ONCE` under way. The first failure ends
    all."""
    found: dict[int, T] = {}
    waiting = list(enumerate(items))[::-1]

    async def worker() -> None:
        while waiting:
            number, item = waiting.pop()
            try:
                found[number] = await work(item)
            except BaseException:
                waiting.clear()
                raise
            done()

    ended = await asyncio.gather(*[worker() for _ in range(min(AT_ONCE, len(items)))], return_exceptions=True)
    for failure in ended:
        if failure is not None:
            raise failure
    return [found[number] for number in range(len(items))]


class SourceReader:
    """An object store that is only read. An error is one line with the object's name: it raises
    `MigrationRefused` and nothing else."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._large = asyncio.Semaphore(2)

    async def listed(self, prefix: str = "") -> list[ObjectInfo]:
        try:
            return [info async for info in self.store.list(prefix)]
        except ObjectError as error:
            raise MigrationRefused(f"the source cannot be listed: {error}") from error

    async def whole(self, info: ObjectInfo, most: int = LARGEST_PART) -> Buffer:
        if info.size > most:
            raise MigrationRefused(
                f"{info.path}: it has {info.size} bytes, and one of its kind has at most {most}"
            )
        return await self.range(info.path, 0, info.size) if info.size else b""

    async def range(self, path: str, start: int, length: int) -> Buffer:
        if length <= _LARGE:
            return await self._range(path, start, length)
        async with self._large:
            return await self._range(path, start, length)

    async def _range(self, path: str, start: int, length: int) -> Buffer:
        try:
            [found] = await self.store.get_ranges(path, [(start, length)])
        except ObjectMissing:
            raise MigrationRefused(f"{path}: it is not there any more") from None
        except RangeOutside as error:
            raise MigrationRefused(f"{error}: it is shorter than it was a moment ago") from None
        except ObjectError as error:
            raise MigrationRefused(f"the source cannot be read: {error}") from error
        return found

    async def batches(self, path: str, position: int, end: int, from_offset: int) -> list[SegmentBatch]:
        """The batches that lie in these bytes, each checked. Their positions count from the object's
        start."""
        with naming(path):
            if end - position > LARGEST_TAIL:
                raise ForeignDamage(f"{end - position} bytes without a row of an index", position)
            data = await self.range(path, position, end - position)
            try:
                found = list(walk_batches(data, from_offset=from_offset))
            except ForeignFault as fault:
                raise type(fault)(fault.reason, position + fault.position) from None
        return [each._replace(position=position + each.position) for each in found]
