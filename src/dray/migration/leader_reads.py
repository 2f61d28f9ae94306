"""The reads of one leader that are under way.

While the mirror catches up there are two, of different partitions, so that the leader has the next request
when it has sent an answer. A leader answers a connection's requests one after the other. So a second read is
sent only if some partition is known to have more: one that had to wait for records would hold up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from dray.client.cluster import Address
from dray.migration.mirror_memory import MirrorLimits, MirrorMemory
from dray.runtime import Runtime
from dray.upstream.mirror import MirrorAnswer, MirrorPiece, MirrorPlace

Answers = Mapping[int, MirrorAnswer]

MOST_READS: Final = 2


class PieceReader(Protocol):
    """`upstream.mirror.MirrorReader`."""

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]: ...

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace], most_bytes: int
    ) -> Answers: ...


@dataclass(slots=True)
class _Read:
    places: dict[int, MirrorPlace]
    is_behind: bool  # whether the source was known to have more
    is_large: bool
    has_room: bool = True  # whether it need not wait for room in memory, or has not any more
    reserved: int = 0  # what it has of that until its answer is there


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
        self._was_behind = False
        self._held = 0  # of small answers: what has come and was not given back
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
        read = self._under_way.pop(task)
        self._was_behind = read.is_behind
        return read.places, task.result()

    def _begin(self, places: dict[int, MirrorPlace]) -> None:
        is_behind = self.is_behind(places)
        # A small answer first: what came in a moment is mostly no more than that.
        if is_behind and self._was_behind and not self.is_large:
            self.is_large = self._memory.take()
        read = _Read(places, is_behind, is_behind and self.is_large)
        limits = self._limits
        if read.is_large:
            reading = self._reader.read_each(self._leader, dict(places), limits.answer_bytes)
        else:
            most = limits.small_answer_bytes if is_behind else limits.idle_answer_bytes
            read.has_room = self._memory.reserve_now(most)
            read.reserved = most if read.has_room else 0
            reading = self._read_small(read, most)
        task = self._runtime.spawn(reading, f"mirror read of {self._leader}")
        self._under_way[task] = read

    async def _read_small(self, read: _Read, most: int) -> Answers:
        if not read.has_room:
            await self._memory.reserve(most)
            read.has_room, read.reserved = True, most
        size = 0
        try:
            answers = await self._reader.read_each(self._leader, dict(read.places), most)
            size = size_of(answers)
        finally:
            self._memory.resize(most, size)
            read.reserved = 0
            self._held += size
        return answers

    def is_held_up(self, places: Mapping[int, MirrorPlace]) -> bool:
        """Would the next answer have to wait for room in memory? Who holds what came before must not: all
        might wait for each other."""
        if not self._under_way:
            self._begin(dict(places))
        return not any(read.has_room for read in self._under_way.values())

    def give_back(self, size: int) -> None:
        """So much of what was read is not in memory any more."""
        done = min(size, self._held)
        self._held -= done
        self._memory.release(done)

    def is_behind(self, places: Mapping[int, MirrorPlace]) -> bool:
        """Is the source known to have more?"""
        return any(self._has_more(partition, place.offset) for partition, place in places.items())

    def rest(self, places: Mapping[int, MirrorPlace]) -> None:
        """For a caller that holds little of what was read. Where the source has no more at once, another
        leader may be read in large answers."""
        if not self.is_behind(places) and not any(read.is_large for read in self._under_way.values()):
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
        self._memory.release(sum([read.reserved for read in self._under_way.values()]))  # of those not begun
        self._under_way.clear()
        self._let_go()
        self.give_back(self._held)


def size_of(answers: Answers) -> int:
    return sum([len(each.batches) for each in answers.values() if isinstance(each, MirrorPiece)])
