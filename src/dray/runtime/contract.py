"""The seam between Dray and the outside world's time, chance and concurrency.

Nothing else in the package may call `time`, `random`, `uuid4`, `asyncio.sleep`, or start a
task or a thread: it asks the `Runtime` it was given. A simulation hands in one of its own, and a
whole cluster then runs on virtual time from one seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol, TypeVar
from uuid import UUID

from dray.runtime.background import BackgroundTasks

T = TypeVar("T")


class Runtime(Protocol):
    @property
    def random(self) -> Random: ...

    @property
    def background(self) -> BackgroundTasks:
        """What is known of the tasks in the background."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch: for timestamps that people and tables see."""

    def monotonic(self) -> float:
        """Seconds on a clock that never steps and that counts the time in which the machine was suspended,
        where there is one: for timeouts and measurements. Sleeping may leave that time out, so what must not
        last too long is judged by this clock when it is used."""

    def uuid(self) -> UUID: ...

    async def sleep(self, seconds: float) -> None: ...

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task that its caller awaits. For other tasks there are `keep_running` and `run_once`."""

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Run something that blocks (disk, compression) off the event loop."""
