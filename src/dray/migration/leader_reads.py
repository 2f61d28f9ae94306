"""The reads of one leader that are under way.

While the mirror catches up there are two, of different partitions, so that the leader has the next request
when it has sent an answer. A leader answers a connection's requests one after the other. So a second read is
sent only if some partition is known to have more: one that had to wait for records would hold up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from dray.client.cluster import Address
from dray.migration.mirror_memory import MirrorLimits, MirrorMemory
from dray.runtime import Runtime
from dray.upstream.mirror import MirrorAnswer, MirrorPlace

Answers = Mapping[int, MirrorAnswer]

MOST_READS: Final = 2


class PieceReader(Protocol):
    """`upstream.mirror.MirrorReader`."""

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]: ...

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace], most_bytes: int
    ) -> Answers: ...


class _Read(NamedTuple):
    places: dict[int, MirrorPlace]
    is_large: bool


class LeaderReads:
    def __init__(
        self,
        reader: PieceReader,
        runtime: Runtime,
        leader: Address,
        has_more: Callable[[int, int], bool],
        limits: MirrorLimits,
        memory: MirrorMemory,
    ) -> None:
        """`has_more`: is the source known to have something of a partition from an offset on?"""
        self._reader = reader
        self._runtime = runtime
        self._leader = leader
        self._has_more = has_more
        self._limits = limits
        self._memory = memory
        self._under_way: dict[asyncio.Task[Answers], _Read] = {}
        self.is_large = False
        """May its answers be large? Then it has a place in the memory."""

    def read_ahead(self, places: Mapping[int, MirrorPlace]) -> None:
        """Ask for what the source is known to have."""
        asked = {partition for each in self._under_way.values() for partition in each.places}
        free = {partition: place for partition, place in places.items() if partition not in asked}
        ready = sorted([each for each, place in free.items() if self._has_more(each, place.offset)])
        if not ready or len(self._under_way) == MOST_READS:
            return
        if not self._under_way and len(ready) > 1:
            second = {partition: free.pop(partition) for partition in ready[1::2]}
            self._begin(free)
            free = second
        self._begin(free)

    async def next(self, places: Mapping[int, MirrorPlace]) -> tuple[dict[int, MirrorPlace], Answers]:
        """The next answer, and what it was asked for. Raises what keeps the leader from answering."""
        self.read_ahead(places)
        if not self._under_way:
            self._begin(dict(places))
        await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        task = next(task for task in self._under_way if task.done())
        return self._under_way.pop(task).places, task.result()

    def _begin(self, places: dict[int, MirrorPlace]) -> None:
        is_large = self._is_behind(places)
        if is_large and not self.is_large:
            self.is_large = is_large = self._memory.take()
        most = self._limits.answer_bytes if is_large else self._limits.small_answer_bytes
        read = self._reader.read_each(self._leader, dict(places), most)
        task = self._runtime.spawn(read, f"mirror read of {self._leader}")
        self._under_way[task] = _Read(places, is_large)

    def _is_behind(self, places: Mapping[int, MirrorPlace]) -> bool:
        return any(self._has_more(partition, place.offset) for partition, place in places.items())

    def rest(self, places: Mapping[int, MirrorPlace]) -> None:
        """For a caller that holds little of what was read. Where the source has no more at once, another
        leader may be read in large answers."""
        if not self._is_behind(places) and not any(read.is_large for read in self._under_way.values()):
            self._let_go()

    def _let_go(self) -> None:
        if self.is_large:
            self.is_large = False
            self._memory.give_back()

    async def stop(self) -> None:
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        for task in self._under_way:
            if not task.cancelled():
                task.exception()  # seen
        self._under_way.clear()
        self._let_go()
