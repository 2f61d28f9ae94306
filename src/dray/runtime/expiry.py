"""The clock by which things grow old. Rooms that let something expire ask it, and not the wall clock.

A wall clock that is wrong makes everything look old: records, producers, offsets, files. So age is judged
only by a clock that is not in doubt.
"""

from __future__ import annotations

from typing import Protocol

from dray.runtime.contract import Runtime


class ExpiryClock(Protocol):
    def now_ms(self) -> int | None:
        """Milliseconds since the epoch; None while the clock is doubted: then nothing is old. Asked anew
        whenever something is judged."""


class UndoubtedClock:
    """The wall clock as it is, for tests and tools in which nothing can disagree with it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def now_ms(self) -> int | None:
        return self._runtime.wall_ms()
