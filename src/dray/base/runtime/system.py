"""The real runtime: the machine's clocks, the operating system's randomness and memory, asyncio's tasks."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from threading import Thread
from typing import Any, Final, TypeVar
from uuid import UUID

from dray.base.runtime.background import BackgroundTasks

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

    def closes(self, seconds: float) -> bool:
        """Close it. False where a thread is not at its end by then: it may wait for something that never
        answers, and the interpreter would wait for it."""
        closing = Thread(target=self.close, daemon=True)
        closing.start()
        closing.join(seconds)
        return not closing.is_alive()


class RuntimeInPlace(SystemRuntime):
    """A runtime for processes in which nobody waits for the event loop, and each step is so short that the
    way to a thread and back would cost more."""

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)


# --- random ids
#
# Randomness of the operating system is fetched for many at once: fetching it lets go of Python's lock. A
# thread that waits for it then runs, and the caller waits for its turn: that took a seventh of the time of
# a small append. A child process that was forked must never give out the ids that its parent will give out.


_ID_BYTES: Final = 16
_AT_ONCE: Final = 256

_pool: list[bytes] = []


def random_uuid() -> UUID:
    """Version 4. Any thread may call it: what two threads do to the pool at once is atomic."""
    try:
        found = _pool.pop()
    except IndexError:
        found, *others = _fetch()
        _pool.extend(others)
    return UUID(bytes=found, version=4)


def _fetch() -> list[bytes]:
    fetched = os.urandom(_ID_BYTES * _AT_ONCE)
    return [fetched[start : start + _ID_BYTES] for start in range(0, len(fetched), _ID_BYTES)]


os.register_at_fork(after_in_child=_pool.clear)


# --- memory that the process no longer uses
#
# Brokers tell glibc never to trim its heap by itself (`docs/design/0003`): under load that costs a third of
# the work of producing. When caches were emptied because they were not used, there is no such load, and the
# system may have the memory.


def give_back() -> bool:
    """False where the allocator knows no such call (musl, macOS). Not for the event loop: the whole heap is
    looked through."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    trim(0)
    return True
