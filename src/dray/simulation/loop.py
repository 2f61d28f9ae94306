"""An asyncio loop on virtual time: nothing waits, and one seed gives one run.

When every task waits for a timer, the clock jumps to the next one. When nothing is left to wait for, the
simulation is stuck, and says so instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class Stuck(Exception):
    """Every task waits for something that nobody will do."""


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


class SimulationLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_NoSockets(self))
        # The loop rounds timers to the clock's resolution; ours is exact.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual

    def advance(self, seconds: float) -> None:
        if seconds > 0:
            self._virtual += seconds


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
