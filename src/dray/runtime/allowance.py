"""A bound on what threads hold in memory at once, in bytes: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from dray.runtime.contract import Runtime

T = TypeVar("T")


class Allowance:
    """What asks for more than there is gets all of it, alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def in_thread(self, runtime: Runtime, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Runs it in a thread once `size` bytes are free. They are given back when the thread is done, and
        not when the caller is cancelled: until then they are in use."""
        size = min(size, self.limit)
        await self._take(size)
        work = runtime.spawn(runtime.in_thread(function, *arguments), "within an allowance")

        def end(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()  # the caller's, if there still is one
            self._give_back(size)

        work.add_done_callback(end)
        return await asyncio.shield(work)

    async def _take(self, size: int) -> None:
        if not self._waiting and self.used + size <= self.limit:
            self.used += size
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # those behind it may fit
            else:
                self._give_back(size)
            raise

    def _give_back(self, size: int) -> None:
        self.used -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
            elif self.used + size <= self.limit:
                self._waiting.popleft()
                self.used += size
                granted.set_result(None)
            else:
                return
