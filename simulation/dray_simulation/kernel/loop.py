"""An asyncio loop on virtual time: nothing waits, and one seed gives one run.

When every task waits for a timer, the clock jumps to the next one. When nothing is left to wait for, the
simulation is stuck, and says so instead of hanging.

Whatever runs in the context of a simulated process belongs to it, wherever it was started: a process that
stands still holds up every step of its own, and the timers of one that is dead never come. Servers and
connections are those of a simulated network, so the code under test opens them as it always does.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context, ContextVar
from math import floor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Process(Protocol):
    """The part of a simulated process that the loop must know."""

    @property
    def standing_still(self) -> bool: ...

    @property
    def dead(self) -> bool: ...

    def defer(self, handle: asyncio.Handle) -> None:
        """Run it when the process goes on, after what was deferred before."""

    def adopt(self, task: asyncio.Task[Any]) -> None: ...


class Network(Protocol):
    """The network on which a simulated process listens, and to which clients connect."""

    def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Any: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]: ...


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
"""The simulated process that the code at hand is part of; none for clients and for the world itself."""


class Stuck(Exception):
    """Every task waits for something that no task will do."""


class _NoSockets(selectors.BaseSelector):
    """Instead of waiting for sockets, moves the clock."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        # asyncio's own wake-up pipe, which only threads and signals would use.
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._keys[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck("nothing is scheduled and nothing is ready")
        self._loop.advance(timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class _Step(asyncio.Handle):
    """A step that waits while its process stands still."""

    __slots__ = ()

    def _run(self) -> None:
        process: Process | None = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is not None and process.standing_still:
            process.defer(self)
        else:
            super()._run()


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        process: Process | None = self._context.get(PROCESS)  # type: ignore[attr-defined]
        if process is None:
            super()._run()
        elif process.dead:
            self.cancel()
        elif process.standing_still:
            process.defer(self)
        else:
            super()._run()


class SimulationLoop(asyncio.SelectorEventLoop):
    """`network` is where servers and connections are made; without one there are none. `ticks` is how often
    a second the clock ticks, 0 for at any time: timers that wait for the same tick cost one turn of the
    loop."""

    network: Network | None = None
    ticks = 0

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_NoSockets(self))
        # The loop rounds timers to the clock's resolution; ours is exact.
        self._clock_resolution = 1e-9
        self.set_task_factory(_make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._virtual

    def advance(self, seconds: float) -> None:
        """To the next timer, exactly: a sum would miss it by a hair, and the waiter would wait again."""
        if seconds > 0:
            timers = self._scheduled  # type: ignore[attr-defined]
            self._virtual = timers[0].when() if timers else self._virtual + seconds

    def again(self, handle: asyncio.Handle) -> None:
        """Let a step that was deferred run now."""
        if not handle.cancelled():
            self._ready.append(handle)  # type: ignore[attr-defined]

    def _call_soon(
        self, callback: Callable[..., object], arguments: tuple[Any, ...], context: Context | None
    ) -> asyncio.Handle:
        handle = _Step(callback, arguments, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self.ticks:
            # The tick after it: on it would be too early by a rounding error, and a task that waits for a
            # deadline would find a moment left of it, again and again.
            when = (floor(when * self.ticks) + 1) / self.ticks
            if when <= self._virtual:  # the product was rounded down: 2.01 * 1000 is 2009.99...
                when = (round(self._virtual * self.ticks) + 1) / self.ticks
        timer = _Timer(when, callback, arguments, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    async def create_server(  # type: ignore[override]
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> Any:
        return self._network().listen(factory, host, port)

    async def create_connection(  # type: ignore[override]
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        return await self._network().connect(factory, host, port)

    def _network(self) -> Network:
        if self.network is None:
            raise OSError("this simulation has no network")
        return self.network


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: Context | None = None
) -> asyncio.Task[T]:
    task = asyncio.Task(coroutine, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.adopt(task)
    return task


def hear(future: asyncio.Future[Any]) -> None:
    """A callback for what may end with an error after nobody waits for it any more: the run has another one,
    or its client went away. Left alone, asyncio would complain later, in the middle of something else."""
    if not future.cancelled():
        future.exception()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run to the end on virtual time. Tasks that are left over are cancelled, and so are those that these
    start on their way out."""
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        return runner.run(_run_and_sweep(coroutine))


async def _run_and_sweep(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        return await coroutine
    finally:
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
