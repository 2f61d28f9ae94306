"""The two waits of a fetch: for a stream to grow, and for stores that are not ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar


class Waiter:
    """One poll: told of every stream of its own that grew since it began."""

    def __init__(self) -> None:
        self.woken: set[int] = set()
        self._future: asyncio.Future[None] | None = None

    def wake(self, stream: int) -> None:
        self.woken.add(stream)
        self._finish()

    def take(self) -> set[int]:
        woken, self.woken = self.woken, set()
        return woken

    async def wait(self, seconds: float) -> None:
        """Until one of the streams has grown, or the time has passed."""
        if self.woken:
            return
        loop = asyncio.get_running_loop()
        self._future = loop.create_future()
        timer = loop.call_later(seconds, self._finish)
        try:
            await self._future
        finally:
            timer.cancel()
            self._future = None

    def _finish(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)


class Wakeups:
    def __init__(self) -> None:
        self._waiting: dict[int, dict[Waiter, None]] = {}
        self.count = 0
        """So many polls sleep."""

    def waits(self, stream: int) -> bool:
        return stream in self._waiting

    def streams(self) -> list[int]:
        return list(self._waiting)

    @contextmanager
    def waiting(self, streams: Iterable[int]) -> Iterator[Waiter]:
        waiter = Waiter()
        streams = list(streams)
        for stream in streams:
            self._waiting.setdefault(stream, {})[waiter] = None
        try:
            yield waiter
        finally:
            for stream in streams:
                waiters = self._waiting.get(stream)
                if waiters is not None:
                    waiters.pop(waiter, None)
                    if not waiters:
                        del self._waiting[stream]

    async def sleep(self, waiter: Waiter, seconds: float) -> None:
        self.count += 1
        try:
            await waiter.wait(seconds)
        finally:
            self.count -= 1

    def wake(self, stream: int) -> None:
        for waiter in self._waiting.get(stream, ()):
            waiter.wake(stream)


# --- for stores that are not ours
#
# The store of another system is beyond this cluster's care: it may be slow, or not answer at all. A fetch
# waits for it as long as it has nothing else to answer, and then a moment longer for what comes at the same
# time. A partition whose records have not come by then is answered without records. Its read goes on, and
# the client's next fetch finds what it brought, or meets its error.


ALONE_SECONDS: Final = 5.0
"""While there is nothing else to answer. Clients give up a request after 30."""

BESIDE_SECONDS: Final = 0.2
"""Once there is something: an object store of the usual kind has answered by then."""

T = TypeVar("T")


class PatientReads(Generic[T]):
    """Reads that are under way from the moment at which this is made. `is_answer`: is a result worth
    answering the client?"""

    def __init__(
        self, reads: Sequence[Coroutine[Any, Any, T]], is_answer: Callable[[T], bool] = lambda _: True
    ) -> None:
        self._tasks = [asyncio.ensure_future(read) for read in reads]
        self._is_answer = is_answer

    async def results(self, *, beside: bool) -> list[T | None]:
        """In their order; None for what has not come in time. `beside`: is there something to answer
        already?"""
        waiting = set(self._tasks)
        try:
            deadline = asyncio.get_running_loop().time() + ALONE_SECONDS
            while waiting and not beside:
                left = deadline - asyncio.get_running_loop().time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                beside = any(self._is_answer(task.result()) for task in done)
            if waiting and beside:
                await asyncio.wait(waiting, timeout=BESIDE_SECONDS)
            return [task.result() if task.done() else None for task in self._tasks]
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Of reads that others share, only the waiting ends."""
        for task in self._tasks:
            task.cancel()
