"""A runtime whose clock stands still until a test moves it."""

from __future__ import annotations

from dray.runtime import SystemRuntime


class StoppedClock(SystemRuntime):
    def __init__(self, now: float = 1000.0) -> None:
        super().__init__(threads=1)
        self.now = now

    def monotonic(self) -> float:
        return self.now
