"""The bound on what request frames may occupy, shared by all connections of a server.

Bytes are reserved *before* a buffer is allocated, so the sum of all frame buffers never passes the
limit, however many producers push. Whoever finds no room waits its turn: strictly first come,
first served, so that a large frame is not overtaken by small ones forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Claim:
    """A place in the queue for `size` bytes; `granted` is called once they are reserved."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Callable[[], None]) -> None:
        self.size = size
        self.granted = granted


class MemoryBudget:
    __slots__ = ("_waiting", "limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._waiting: deque[Claim] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def try_reserve(self, size: int) -> bool:
        """Reserve now if there is room and nobody came earlier."""
        used = self.used + size
        if used > self.limit or self._waiting:
            return False
        self.used = used
        self.peak = max(self.peak, used)
        return True

    def claim(self, size: int, granted: Callable[[], None]) -> Claim:
        """Queue up; `granted` is called from a later `release` or `withdraw`, never from here."""
        if size > self.limit:
            raise ValueError(f"{size} bytes can never fit a budget of {self.limit}")
        claim = Claim(size, granted)
        self._waiting.append(claim)
        return claim

    def withdraw(self, claim: Claim) -> None:
        """Leave the queue before being granted; those behind may now fit."""
        self._waiting.remove(claim)
        self._grant()

    def release(self, size: int) -> None:
        self.used -= size
        if self.used < 0:
            raise AssertionError("released more than was reserved")
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        waiting = self._waiting
        while waiting and self.used + waiting[0].size <= self.limit:
            claim = waiting.popleft()
            self.used += claim.size
            self.peak = max(self.peak, self.used)
            claim.granted()
