"""The bound on answers: those being made, those that wait for their turn, and those the peer has not taken.

The count of a connection is updated when the server sees it change. But a transport does not report what it
has sent, so a count may be too high, never too low. So all connections are looked at again now and then while
there is little room, and all the time while an answer waits for room.

Large answers ask beforehand: those of fetches, whose sizes are planned before a byte is read, and others as
they are encoded (`dray.broker.api.shared.large_answers`). Small ones are counted once they are made, and may
exceed the limit; then large ones wait.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

LOOK_SECONDS: Final = 0.1
"""While an answer waits, all connections are looked at again this often."""


class AnswerHolder(Protocol):
    """A connection, as the budget sees it."""

    def report_held(self) -> None: ...


class AnswerClaim:
    """A place in the queue for `size` bytes; `granted` is called once they are reserved."""

    __slots__ = ("granted", "size")

    def __init__(self, size: int, granted: Callable[[], None]) -> None:
        self.size = size
        self.granted = granted


class AnswerBudget:
    __slots__ = ("_asked", "_holders", "_waiting", "limit", "peak", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.peak = 0
        self._asked = 0  # since all connections were looked at
        self._holders: dict[AnswerHolder, None] = {}
        self._waiting: OrderedDict[AnswerClaim, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def missing(self) -> int:
        """How many bytes would have to be given back for all waiting answers."""
        wanted = sum(claim.size for claim in self._waiting)
        return max(0, wanted - (self.limit - self.used)) if wanted else 0

    def change(self, holder: AnswerHolder, before: int, after: int) -> None:
        """Update the count of a connection. It may exceed the limit, since the bytes are held already."""
        if after:
            self._holders[holder] = None
        else:
            self._holders.pop(holder, None)
        self.used += after - before
        self.peak = max(self.peak, self.used)
        if self._waiting and after < before:
            self._grant()

    def most(self) -> int:
        """The bytes that one more answer may be planned with: half of what is free, so that something is left
        for the next, however many peers do not read. Nothing while others wait (but one batch is always
        planned, and waits for its room if need be)."""
        if self._waiting:
            return 0
        if self.used * 2 > self.limit:
            self._look_sometimes()
        return max(0, (self.limit - self.used) // 2)

    def has_room(self, size: int) -> bool:
        """Is there room for `size` more bytes, and does no answer wait?"""
        if self._waiting:
            return False
        if self.used + size > self.limit:
            self._look_sometimes()
        return self.used + size <= self.limit

    def _look_sometimes(self) -> None:
        """Look at all connections once per as many calls as there are connections. So a call costs one look
        on average."""
        self._asked += 1
        if self._asked >= len(self._holders):
            self.look_again()

    def look_again(self) -> None:
        self._asked = 0
        for holder in list(self._holders):
            holder.report_held()

    def is_first(self, claim: AnswerClaim) -> bool:
        return next(iter(self._waiting), None) is claim

    def claim(self, size: int, granted: Callable[[], None]) -> AnswerClaim:
        """Queue up: first come, first served. A batch larger than the whole budget gets all of it."""
        claim = AnswerClaim(min(size, self.limit), granted)
        self._waiting[claim] = None
        return claim

    def withdraw(self, claim: AnswerClaim) -> None:
        del self._waiting[claim]
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            claim = next(iter(self._waiting))
            if self.used + claim.size > self.limit:
                break
            del self._waiting[claim]
            claim.granted()  # which counts it, by `change`


class Reservation:
    """The part of the budget that one request reserved for its answer. `changed` counts it among what the
    connection holds."""

    __slots__ = ("_budget", "_changed", "size")

    def __init__(self, budget: AnswerBudget, changed: Callable[[int], None]) -> None:
        self._budget = budget
        self._changed = changed
        self.size = 0

    def most(self) -> int:
        return self.size or self._budget.most()

    def take(self, size: int) -> bool:
        """Hold so much, instead of what it held before."""
        more = size - self.size
        if more > 0 and not self._budget.has_room(more):
            return False
        if more:
            self._hold(size)
        return True

    async def wait(self, size: int, seconds: float) -> bool:
        """Queue for so much (or for all there is), for so long; True once it is held."""
        self.take(0)
        budget = self._budget
        loop = asyncio.get_running_loop()
        granted = asyncio.Event()

        def grant() -> None:
            self._hold(claim.size)
            granted.set()

        claim = budget.claim(size, grant)
        deadline = loop.time() + seconds
        try:
            while not self.size and (left := deadline - loop.time()) > 0:
                with suppress(TimeoutError):
                    await asyncio.wait_for(granted.wait(), min(left, LOOK_SECONDS))
                if budget.is_first(claim):
                    budget.look_again()
        finally:
            if not self.size:
                budget.withdraw(claim)
        return self.size > 0

    def _hold(self, size: int) -> None:
        by, self.size = size - self.size, size
        self._changed(by)
