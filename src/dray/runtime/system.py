"""The real runtime: the machine's clocks, the operating system's randomness, asyncio's tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import Any, Final, TypeVar
from uuid import UUID

from dray.runtime.background import BackgroundTasks
from dray.runtime.identifiers import random_uuid

T = TypeVar("T")

# Linux stops CLOCK_MONOTONIC while the machine is suspended: a session would seem to live on by that much.
# (The CLOCK_MONOTONIC of macOS goes on.)
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemRuntime:
    def __init__(self, threads: int = 48) -> None:
        # More than the uploads that all domains may have in flight: reads must not wait for them.
        self.random: Random = SystemRandom()
        self.background = BackgroundTasks(self.monotonic)
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="dray")
        self._tasks: set[asyncio.Task[Any]] = set()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.clock_gettime(_CLOCK)

    def uuid(self) -> UUID:
        return random_uuid()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        # A failure of a task that is never awaited is reported by asyncio, when the task is collected.
        task.add_done_callback(self._tasks.discard)
        return task

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function, *arguments)

    def close(self) -> None:
        self._executor.shutdown(wait=True)
