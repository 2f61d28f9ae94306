"""The runtime of a simulated process: virtual time, seeded chance, a kill switch and a pause button.

What is run in its `context` is part of the process down to the last callback, whatever started it: it is
stopped by `pause` at whichever await it stands, and ended by `kill`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from random import Random
from typing import Any, TypeVar, cast
from uuid import UUID

from dray.runtime import BackgroundTasks
from dray.simulation.kernel.clocks import ProcessClock
from dray.simulation.kernel.loop import PROCESS, SimulationLoop

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
        """For the loop: a task that was started within this process, by whatever means. What becomes of it
        is the business of the code that started it; only its end with the process is ours."""
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
