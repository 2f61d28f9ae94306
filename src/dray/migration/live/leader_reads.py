"""The reads of one leader that are under way, and the memory that these may take, of one leader and of all.

While the mirror catches up there are two, of different partitions, so that the leader has the next request
when it has sent an answer. A leader answers a connection's requests one after the other. So a second read is
sent only if some partition is known to have more: one that had to wait for records would hold up the other.

A leader that has much to give is read in large answers: large objects are what makes a mirror fast. That
takes so much memory that only some leaders are read so at a time. The others are read in small answers
meanwhile, and those that have nothing more to give at once in very small ones. A process may mirror any
number of topics, each of any number of leaders: so a small answer has to have its room before it is asked
for, and keeps it until what came is in the log. If there is no room, leaders wait for it in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Address
from dray.migration.source.mirror import MirrorAnswer, MirrorPiece, MirrorPlace, MirrorReader

Answers = Mapping[int, MirrorAnswer]

MOST_READS: Final = 2


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
        reader: MirrorReader,
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
            answers = await self._reader.read_each(
                self._leader, dict(read.places), most, waits=not read.is_behind
            )
            size = size_of(answers)
        finally:
            self._memory.resize(most, size)
            read.reserved = 0
            self._held += size
        return answers

    def is_held_up(self, places: Mapping[int, MirrorPlace]) -> bool:
        """Would the next answer have to wait for room in memory? A caller that holds earlier answers must
        not: all might wait for each other."""
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
        """For a caller that holds little of what was read. If the source has no more at once, another leader
        may be read in large answers."""
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


# --- the memory of mirrors

LEAST_SMALL_BYTES: Final = 64 << 20
"""For all small answers, whatever the setting says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Of one leader. In memory are, at most: two answers that are read, what is gathered, and the commits
    under way. The gathered batches, and each commit, take `object_bytes` and one answer; if answers are
    small, two of these."""

    answer_bytes: int = 16 << 20
    partition_bytes: int = 16 << 20  # an answer ends within a batch of each partition: that one comes again
    object_bytes: int = 12 << 20  # so much is committed at once, or
    small_answer_bytes: int = 1 << 20
    idle_answer_bytes: int = 64 << 10  # where the source is not known to have anything
    commits: int = 3  # under way: one is looked at, one uploaded, one committed
    linger_seconds: float = 1.0  # what has come in so long
    pause_seconds: float = 0.2  # after a failure
    look_seconds: float = 15.0  # between two looks at what no batch tells: starts, and who owns the log

    @property
    def held_bytes(self) -> int:
        """By a leader that is read in large answers."""
        return 2 * self.answer_bytes + (1 + self.commits) * (self.object_bytes + self.answer_bytes)


class MirrorMemory:
    """Shared by all mirrors of a process: places for leaders that are read in large answers, and room for the
    answers of all others."""

    def __init__(self, places: int, small_bytes: int = LEAST_SMALL_BYTES) -> None:
        self._free = places
        self._room = small_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.small_bytes = small_bytes

    @classmethod
    def of(cls, size: int, limits: MirrorLimits) -> MirrorMemory:
        places = max(0, size - LEAST_SMALL_BYTES) // limits.held_bytes
        return cls(places, max(LEAST_SMALL_BYTES, size - places * limits.held_bytes))

    # --- large answers

    def take(self) -> bool:
        """Is there a place? Then it is the caller's, until it is given back."""
        if self._free <= 0:
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        self._free += 1

    # --- small answers

    @property
    def reserved(self) -> int:
        return self.small_bytes - self._room

    def reserve_now(self, size: int) -> bool:
        """Is there room for so many bytes, and does nobody wait for it? Then it is the caller's."""
        if self._waiting or not self._fits(size):
            return False
        self._room -= size
        return True

    async def reserve(self, size: int) -> None:
        """Wait until there is room, in turn. A size above all the room is granted when nothing else is
        held."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size)
            else:
                self._waiting = deque(each for each in self._waiting if each[1] is not granted)
                self._let_in()
            raise

    def resize(self, before: int, now: int) -> None:
        """An answer has come, and is of another size than was reserved. It is there: so it has its room, also
        where a single batch is larger."""
        self._room += before - now
        self._let_in()

    def release(self, size: int) -> None:
        self.resize(size, 0)

    def _fits(self, size: int) -> bool:
        return size <= self._room or not self.reserved

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, granted = self._waiting.popleft()
            if not granted.done():
                self._room -= size
                granted.set_result(None)
