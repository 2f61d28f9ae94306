"""Values that are read once, and shared by all who ask for them while they are kept."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class _SharedRead(Generic[T]):
    __slots__ = ("size", "task", "used")

    def __init__(self, task: asyncio.Task[T], used: int) -> None:
        self.task = task
        self.used = used
        self.size = 0


class SharedReads(Generic[K, T]):
    """Those that were not used for longest are dropped first. A read that failed is not kept."""

    def __init__(self, limit: int, size_of: Callable[[T], int]) -> None:
        self._limit = limit
        self._size_of = size_of
        self._reads: OrderedDict[K, _SharedRead[T]] = OrderedDict()
        self._round = 0
        self.size = 0

    def __contains__(self, key: K) -> bool:
        return key in self._reads

    def ready(self, key: K) -> T | None:
        """The kept result of a read, without starting one."""
        found = self._reads.get(key)
        if found is None or not found.task.done() or found.task.cancelled() or found.task.exception():
            return None
        return found.task.result()

    async def get(self, key: K, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.shield(self.start(key, read))  # others wait for it too

    def start(self, key: K, read: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        found = self._reads.get(key)
        if found is None:
            task = asyncio.get_running_loop().create_task(read())
            found = self._reads[key] = _SharedRead(task, self._round)
            task.add_done_callback(lambda done: self._done(key, done))
        else:
            self._reads.move_to_end(key)
            found.used = self._round
        return found.task

    def _done(self, key: K, task: asyncio.Task[T]) -> None:
        known = self._reads.get(key)
        if task.cancelled() or task.exception() is not None:
            if known is not None and known.task is task:
                del self._reads[key]  # the next one who asks reads it anew
            return
        if known is None or known.task is not task:
            return
        known.size = self._size_of(task.result())
        self.size += known.size
        for oldest in list(self._reads):
            if self.size <= self._limit:
                break
            self._drop(oldest)

    def forget_idle(self) -> None:
        """Drop what was not used between the last three calls."""
        for key, known in list(self._reads.items()):
            if known.used < self._round - 1:
                self._drop(key)
        self._round += 1

    def _drop(self, key: K) -> None:
        if self._reads[key].task.done():
            self.size -= self._reads.pop(key).size
