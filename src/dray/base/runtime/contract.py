"""The seam between Dray and the outside world's time, chance and concurrency.

Nothing else in the package may call `time`, `random`, `uuid4`, `asyncio.sleep`, or start a
task or a thread: it asks the `Runtime` it was given. A simulation hands in one of its own, and a
whole cluster then runs on virtual time from one seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID

from dray.base.runtime.background import BackgroundTasks

DAY_MS: Final = 24 * 3_600_000

T = TypeVar("T")


class Runtime(Protocol):
    @property
    def random(self) -> Random: ...

    @property
    def background(self) -> BackgroundTasks:
        """The tasks in the background."""

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


# --- the clock by which things grow old
#
# A wall clock that is wrong makes everything look old: records, producers, offsets, files. So age is judged
# only by a clock that is not in doubt: rooms that let something expire ask it, and not the wall clock.


class ExpiryClock(Protocol):
    def now_ms(self) -> int | None:
        """Milliseconds since the epoch; None while the clock is doubted: then nothing is old. Asked anew
        whenever something is judged."""

    def likely_ms(self) -> int:
        """The time, as far as can be said: while the clock is doubted, by the clocks of the others. It is for
        times that are written down, and judged elsewhere by clocks that are in order."""


class UndoubtedClock:
    """The wall clock as it is, for tests and tools in which nothing can disagree with it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now_ms(self) -> int | None:
        return self._runtime.wall_ms()

    def likely_ms(self) -> int:
        return self._runtime.wall_ms()
