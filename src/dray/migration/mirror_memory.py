"""What mirrors hold in memory, of one leader and of all.

A leader that has much to give is read in large answers: large objects are what makes a mirror fast. That
takes so much memory that only some leaders are read so at a time. The others are read in small answers
meanwhile, and those that have nothing more to give at once in very small ones. A process may mirror any
number of topics, each of any number of leaders: so a small answer has to have its room before it is asked
for, and keeps it until what came is in the log. Where there is no room, leaders wait for it in turn.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Final

LEAST_SMALL_BYTES: Final = 64 << 20
"""For all small answers, whatever the setting says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorLimits:
    """Of one leader. In memory are, at most: two answers that are read, what is gathered, and the commits
    under way. What is gathered, and each commit, is `object_bytes` and one answer; where answers are small,
    two of these."""

    answer_bytes: int = 16 << 20
    partition_bytes: int = 16 << 20  # an answer ends within a batch of each partition: that one comes again
    object_bytes: int = 12 << 20  # so much is committed at once, or
    small_answer_bytes: int = 1 << 20
    idle_answer_bytes: int = 64 << 10  # where the source is not known to have anything
    commits: int = 3  # under way: one is looked at, one uploaded, one committed
    linger_seconds: float = 1.0  # what has come in so long
    small_bytes: int = 256 << 10  # after an answer of less, the next one is asked for a little later
    small_seconds: float = 0.1
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
        """Wait until there is room, in turn. What is more than all the room has it when nothing else is
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
