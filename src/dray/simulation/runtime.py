"""The runtime of a simulated process: virtual time, seeded chance, a kill switch and a pause button."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

_EPOCH_MS = 1_700_000_000_000


class SimulatedRuntime:
    """One per simulated process.

    `kill` ends its tasks wherever they are, as a crash would. `pause` stops it wherever it is, as a long
    garbage collection or a suspended machine would: it neither sends nor hears until it goes on, and it
    goes on believing what it knew. Its clients of the stores ask `awake` before and after every call.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.failures: list[BaseException] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ordered: a set would not be replayable
        self._asleep_until = 0.0
        self._killed = False

    def wall_ms(self) -> int:
        return wall_ms()

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.awake()

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        if self._killed:
            task.cancel()  # nothing begins in a process that is gone
        return task

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        await asyncio.sleep(self.random.random() * 0.001)
        return function(*arguments)

    def pause(self, seconds: float) -> None:
        self._asleep_until = max(self._asleep_until, self.monotonic() + seconds)

    async def awake(self) -> None:
        if (left := self._asleep_until - self.monotonic()) > 0:
            await asyncio.sleep(left)
            await self.awake()  # it may have been made to stand still again

    def kill(self) -> None:
        self._killed = True
        for task in list(self._tasks):
            task.cancel()

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)


def wall_ms() -> int:
    """The one wall clock of a simulation."""
    return _EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
