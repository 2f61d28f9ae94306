"""One slow request in a thousand is nobody's problem: what takes longer than usual is asked once more.

A request that hangs, on a connection that died or in a store that lost it, would hold up whoever waits for it
until the client's own timeout, half a minute. So after a time that follows its size and what such requests
took lately, the same is asked a second time, and the first good answer counts ("there is none" is one). The
first request stays, since it may be merely slow; the second is replaced by a fresh one from time to time, so
that some request is always young: once a store that hung is well again, it is found out within
`_LONGEST_PACE`.

Only for what may be done twice: reads, and puts of the same bytes at the same path. It never asks more than
two at a time, and in good weather hardly ever a second one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LEAST_SECONDS: Final = 0.5
_MOST_SECONDS: Final = 10.0
_LONGEST_PACE: Final = 1.5
_UNKNOWN_SECONDS: Final = 1.0
_UNKNOWN_BYTES_PER_SECOND: Final = 4 << 20
_SMALLEST: Final = 16  # sizes below 2 ** 16 bytes take the same time


class UsualTimes:
    """How long requests of about a size take: mean and mean deviation, of which the last few count most (as
    TCP has it)."""

    def __init__(self) -> None:
        self._by_size: dict[int, tuple[float, float]] = {}  # by the number of bits of the size

    def patience(self, size: int) -> float:
        """How long to wait before a request is slow."""
        known = self._by_size.get(max(size.bit_length(), _SMALLEST))
        if known is None:
            return _UNKNOWN_SECONDS + size / _UNKNOWN_BYTES_PER_SECOND
        mean, deviation = known
        return min(max(1.5 * (mean + 4 * deviation), _LEAST_SECONDS), _MOST_SECONDS)

    def took(self, size: int, seconds: float) -> None:
        place = max(size.bit_length(), _SMALLEST)
        known = self._by_size.get(place)
        if known is None:
            self._by_size[place] = seconds, seconds / 2
            return
        mean, deviation = known
        error = seconds - mean
        self._by_size[place] = mean + error / 8, deviation + (abs(error) - deviation) / 4


class Race(Generic[T]):
    """A request and those that are made in its place. `answer` is the first good one, or that there is no
    such object; without any, the first request's error. Cancelling it cancels them all."""

    __slots__ = (
        "_began",
        "_clock",
        "_first",
        "_pace",
        "_second",
        "_size",
        "_start",
        "_timer",
        "_times",
        "answer",
    )

    def __init__(
        self, start: Callable[[], asyncio.Future[T]], size: int, times: UsualTimes, clock: Callable[[], float]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[T] = loop.create_future()
        self.answer.add_done_callback(self._end)
        self._start, self._size, self._times, self._clock = start, size, times, clock
        self._began: dict[asyncio.Future[T], float] = {}
        self._second: asyncio.Future[T] | None = None
        self._first = self._ask()
        self._pace = times.patience(size)
        self._timer = loop.call_later(self._pace, self._late)

    def _ask(self) -> asyncio.Future[T]:
        request = self._start()
        self._began[request] = self._clock()
        request.add_done_callback(self._answered)
        return request

    def _late(self) -> None:
        """Nothing has come yet: ask (again) in the first request's place."""
        if self._second is not None:
            self._began.pop(self._second, None)
            self._second.cancel()
        self._second = self._ask()
        self._pace = min(2 * self._pace, max(self._pace, _LONGEST_PACE))
        self._timer = asyncio.get_running_loop().call_later(self._pace, self._late)

    def _answered(self, request: asyncio.Future[T]) -> None:
        began = self._began.pop(request, None)
        if request.cancelled() or began is None:
            return
        error = request.exception()
        if self.answer.done():
            return
        if error is None:
            self._times.took(self._size, self._clock() - began)
            self.answer.set_result(request.result())
        elif request is self._first or isinstance(error, FileNotFoundError):  # an answer, too
            self.answer.set_exception(error)

    def _end(self, _: asyncio.Future[T]) -> None:
        self._timer.cancel()
        for request in list(self._began):
            request.cancel()
