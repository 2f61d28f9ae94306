"""Turns: how much is done on the event loop before others go on, and who is next at something scarce.

`Turns` bounds the work of one turn of the loop. `FairTurns` and `FairWork` serve those who wait by who they
are, and not in the order they came. `gather_some` and its like do much of the same: some of it at a time, so
that the loop has turns in between, and what waits takes no memory; if many ask at once, they share a turn.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeVar, overload

from dray.base.runtime.contract import Runtime


class Turns:
    """Work on the loop is paid for from `left`. If that is used up, the next one that has work waits for
    another turn of the loop. Each turn there is as much again: a callback is due after the first payment of a
    turn. Without it, a steady load of small work would have to wait now and then; and behind one request that
    waits, all that follow it on its connection do."""

    __slots__ = ("_renewal_due", "left", "limit")

    def __init__(self, limit: int) -> None:
        self._renewal_due = False
        self.limit = self.left = limit

    def pay(self, cost: int) -> None:
        self.left -= cost
        if not self._renewal_due:
            self._renewal_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renewal_due = False
        self.left = self.limit

    async def wait(self, runtime: Runtime) -> None:
        """Until something may be done. Those that wait go on in the order they came."""
        while self.left <= 0:
            self.pay(0)
            await runtime.sleep(0)


# --- turns by who waits for them


T = TypeVar("T")


class FairTurns:
    """At most `at_once` have a turn. `most_of`: how many of these an owner may have; 1 at least."""

    def __init__(self, at_once: int, most_of: Callable[[str], int] | None = None) -> None:
        self._at_once = at_once
        self._most_of = most_of or (lambda _owner: at_once)
        self._running: dict[str, int] = {}
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next first

    @property
    def running(self) -> int:
        return sum(self._running.values())

    def waiting_of(self, owner: str) -> int:
        return sum(not granted.cancelled() for granted in self._waiting.get(owner, ()))

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        await self._take(owner)
        try:
            yield
        finally:
            self._give_back(owner)

    async def _take(self, owner: str) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(granted)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # it is dropped there
            else:
                self._give_back(owner)
            raise

    def _give_back(self, owner: str) -> None:
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        self._grant()

    def _grant(self) -> None:
        while self.running < self._at_once and (owner := self._next()) is not None:
            self._waiting[owner].popleft().set_result(None)
            self._waiting.move_to_end(owner)
            self._running[owner] = self._running.get(owner, 0) + 1

    def _next(self) -> str | None:
        """Of those that wait, leaving out who has as many turns as they may."""
        for owner, line in list(self._waiting.items()):
            while line and line[0].cancelled():
                line.popleft()
            if not line:
                del self._waiting[owner]
            elif owner not in self._running or self._running[owner] < self._most_of(owner):
                return owner
        return None


class _WorkLines:
    """Waiting work, by the owner who asks for it."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # the next first

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, owner: str, work: Callable[[], None]) -> None:
        self._lines.setdefault(owner, deque()).append(work)

    def next(self) -> Callable[[], None]:
        owner, line = self._lines.popitem(last=False)
        work = line.popleft()
        if line:
            self._lines[owner] = line
        return work


class FairWork:
    """Work on the loop: so much in a turn of it, by turns of who asks for it. Without it, a turn is as long
    as there is work that anybody asked for, and all others wait for its end. Work that a turn has room for is
    done at once. Work that was begun goes before new work, so that little is in memory."""

    def __init__(self, per_turn: int) -> None:
        self._per_turn = self._left = per_turn
        self._begun = _WorkLines()
        self._new = _WorkLines()
        self._is_due = False

    @property
    def has_room(self) -> bool:
        """For new work in this turn."""
        return self._left > 0 and not self._new and not self._begun

    def pay(self, cost: int) -> None:
        """For work that is done in this turn."""
        self._left -= cost
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def put(self, owner: str, work: Callable[[], None]) -> None:
        """Have new work done, now or in a later turn; it pays for itself."""
        if self.has_room:
            work()
        else:
            self._wait(self._new, owner, work)

    async def do(self, owner: str, work: Callable[[], T]) -> T:
        """The result of new work that pays for itself."""
        if self.has_room:
            return work()
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._wait(self._new, owner, partial(_hand_out, outcome, work))
        return await outcome

    async def go_on(self, owner: str, cost: int) -> None:
        """Wait until there is room for more of what was begun. It is paid for then."""
        if self._left > 0 and not self._begun:
            self.pay(cost)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(self._begun, owner, partial(_hand_out, granted, partial(self.pay, cost)))
        await granted

    def _wait(self, lines: _WorkLines, owner: str, work: Callable[[], None]) -> None:
        lines.put(owner, work)
        self.pay(0)

    def _turn(self) -> None:
        self._is_due = False
        self._left = self._per_turn
        while self._left > 0 and (lines := self._begun or self._new):
            lines.next()()
        if self._begun or self._new:
            self.pay(0)


def _hand_out(outcome: asyncio.Future[T], work: Callable[[], T]) -> None:
    """Let the future have what comes of the work, unless who waited has left."""
    if outcome.done():
        return
    try:
        outcome.set_result(work())
    except Exception as error:
        outcome.set_exception(error)


# --- much of the same, some of it at a time


S = TypeVar("S")

AT_A_TIME: Final = 256
FEW: Final = 64
"""Pieces that no turn is asked for: a millisecond or so."""


class TurnShare(NamedTuple):
    """The work whose turns a request shares with others, and the owner who asked for it."""

    work: FairWork
    owner: str

    async def go_on(self, cost: int) -> None:
        await self.work.go_on(self.owner, cost)


current_share: ContextVar[TurnShare | None] = ContextVar("current_share", default=None)
"""Of the request that this task serves, where it is one of many pieces."""


@overload
async def gather_some(work: Iterable[Coroutine[Any, Any, T]], at_a_time: int = AT_A_TIME) -> list[T]: ...


@overload
async def gather_some(
    work: Iterable[Coroutine[Any, Any, T]], at_a_time: int = AT_A_TIME, *, return_exceptions: Literal[True]
) -> list[T | BaseException]: ...


async def gather_some(
    work: Iterable[Coroutine[Any, Any, Any]], at_a_time: int = AT_A_TIME, *, return_exceptions: bool = False
) -> list[Any]:
    """`asyncio.gather`, of so many at a time. A generator makes the coroutines as they are begun."""
    results: list[Any] = []
    waiting = iter(work)
    share = current_share.get()
    while some := list(islice(waiting, at_a_time)):
        if share is not None and len(some) > FEW:
            await share.go_on(len(some))
        results += await asyncio.gather(*some, return_exceptions=return_exceptions)
    return results


async def map_some(function: Callable[[S], T], items: Iterable[S], at_a_time: int = AT_A_TIME) -> list[T]:
    """As `gather_some`, of what does not wait: to ask for the rights to 20,000 names, and to note that there
    are none, takes a tenth of a second."""
    results: list[T] = []
    waiting = iter(items)
    share = current_share.get()
    while some := list(islice(waiting, at_a_time)):
        if share is not None and len(some) > FEW:
            await share.go_on(len(some))
        results += map(function, some)
        if len(some) == at_a_time:
            await asyncio.sleep(0)
    return results


async def side_by_side(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of all of `work`. If one raises, the others come to their end first: what they do is not
    left to go on by itself."""
    found = await gather_some(work, FEW, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found  # type: ignore[return-value]


async def in_turns(work: Generator[None, None, T]) -> T:
    """The result of `work`. When it yields, others have their turn."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await asyncio.sleep(0)
