"""The runtime of a simulated process: virtual time, seeded chance, and a kill switch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar
from uuid import UUID

T = TypeVar("T")

_EPOCH_MS = 1_700_000_000_000


class SimulatedRuntime:
    """One per simulated process: `kill` ends its tasks wherever they are, as a crash would."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.failures: list[BaseException] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ordered: a set would not be replayable

    def wall_ms(self) -> int:
        return _EPOCH_MS + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        return task

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        await asyncio.sleep(self.random.random() * 0.001)
        return function(*arguments)

    def kill(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
