"""The runtime of a simulated process: virtual time, seeded chance, a kill switch and a pause button.

Code that runs in its `context` is part of the process down to the last callback, whatever started it: it is
stopped by `pause` at whichever await it stands, and ended by `kill`.

Each process has its own clocks, and each is wrong in its own way. The time of the simulation is the true one:
stores and clients go by it; a process sees it through its clocks. Its wall clock may be ahead or behind,
drift, and jump. While its machine is suspended its monotonic clock goes on (CLOCK_BOOTTIME); while its host
has paused it, that clock stands still, and the wall clock with it or not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, NamedTuple, TypeVar, cast
from uuid import UUID

from dray.base.runtime import BackgroundTasks
from dray_simulation.kernel.loop import PROCESS, SimulationLoop

# --- clocks

EPOCH_MS: Final = 1_700_000_000_000


def true_time() -> float:
    """Seconds since the simulation began."""
    return asyncio.get_running_loop().time()


def true_wall_ms() -> int:
    return EPOCH_MS + int(true_time() * 1000)


class _StandStill(NamedTuple):
    since: float
    until: float


class ProcessClock:
    def __init__(self, ahead: float = 0.0, drift: float = 0.0) -> None:
        """`ahead` is how many seconds the wall clock is ahead, `drift` how many more it gains in a second."""
        self.ahead = ahead
        self.drift = drift
        self._monotonic_stood: list[_StandStill] = []
        self._wall_stood: list[_StandStill] = []

    def monotonic(self, now: float) -> float:
        """At a moment of the true time."""
        return now if not self._monotonic_stood else now - _missed(self._monotonic_stood, now)

    def wall_ms(self, now: float) -> int:
        seen = now - _missed(self._wall_stood, now)
        return EPOCH_MS + int((seen + self.ahead + self.drift * now) * 1000)

    def jump(self, seconds: float) -> None:
        """The wall clock is set to another time."""
        self.ahead += seconds

    def suspend(self, now: float, seconds: float) -> None:
        """The machine sleeps: both clocks go on, as CLOCK_BOOTTIME does."""

    def stand_still(self, now: float, seconds: float, *, wall_too: bool) -> None:
        """The process is paused by its host: it does not see how long. `wall_too`: its wall clock is not set
        right afterwards."""
        stood = _StandStill(now, now + seconds)
        self._monotonic_stood.append(stood)
        if wall_too:
            self._wall_stood.append(stood)

    def mend(self, now: float) -> None:
        """The wall clock is set right, and goes right."""
        self.drift = 0.0
        self.ahead = _missed(self._wall_stood, now)


def _missed(stood: list[_StandStill], now: float) -> float:
    return sum(min(now, each.until) - each.since for each in stood if each.since < now)


# --- a process

T = TypeVar("T")


class SimulatedRuntime:
    """One per simulated process.

    `kill` ends its tasks wherever they are, as a crash would. `pause` stops it wherever it is, as a long
    garbage collection or a suspended machine would: it neither sends nor hears until it goes on, and it
    goes on believing what it knew. Its clients of the stores ask `awake` before and after every call.
    """

    def __init__(self, seed: int, clock: ProcessClock | None = None) -> None:
        self.random = Random(seed)
        self.clock = clock or ProcessClock()
        self.failures: list[BaseException] = []
        self.background = BackgroundTasks(self.monotonic)
        self.background.subscribe(lambda _, error: self.failures.append(error))
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ordered: a set would not be replayable
        self._asleep_until = 0.0
        self._killed = False
        self._still = False
        self._loop: asyncio.AbstractEventLoop | None = None  # asked for the time more often than anything
        self._deferred: deque[asyncio.Handle] = deque()

    def wall_ms(self) -> int:
        return self.clock.wall_ms(self._now())

    def monotonic(self) -> float:
        return self.clock.monotonic(self._now())

    def _now(self) -> float:
        """The true time, which no process sees."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.awake()

    def context(self) -> Context:
        """A new context in which all that runs is part of this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return context

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._finished)
        if self._killed:
            task.cancel()  # nothing begins in a process that is gone
        return task

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """For the loop: a task that was started within this process, by whatever means. Its outcome is the
        business of the code that started it; only its end with the process is ours."""
        self._tasks[task] = None
        task.add_done_callback(self._forget)
        if self._killed:
            task.cancel()

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        await asyncio.sleep(self.random.random() * 0.001)
        return function(*arguments)

    def pause(self, seconds: float) -> None:
        self._asleep_until = max(self._asleep_until, self._now() + seconds)
        self._still = True
        asyncio.get_running_loop().call_at(self._asleep_until, self._go_on, context=Context())

    @property
    def standing_still(self) -> bool:
        """Until what was held up has been let go, and not only until its time: nothing overtakes it."""
        return self._still

    @property
    def dead(self) -> bool:
        return self._killed

    def defer(self, handle: asyncio.Handle) -> None:
        self._deferred.append(handle)

    def _go_on(self) -> None:
        """In the order in which it would have happened, before anything else of this moment."""
        if self._still and self._asleep_until <= self._now():
            self._still = False
            while self._deferred:
                handle = self._deferred.popleft()
                if not handle.cancelled():
                    handle._run()

    async def awake(self) -> None:
        if (left := self._asleep_until - self._now()) > 0:
            await asyncio.sleep(left)
            await self.awake()  # it may have been made to stand still again

    def kill(self) -> None:
        self._killed = True
        self._asleep_until = 0.0
        self._still = False
        loop = cast(SimulationLoop, asyncio.get_running_loop())
        while self._deferred:
            loop.again(self._deferred.popleft())
        for task in list(self._tasks):
            task.cancel()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failures.append(error)
