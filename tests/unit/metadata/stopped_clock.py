"""A runtime whose clock stands still until a test moves it."""

from __future__ import annotations

from dray.base.runtime import SystemRuntime


class StoppedClock(SystemRuntime):
    def __init__(self, now: float = 1000.0) -> None:
        super().__init__(threads=1)
        self.now = now
        self.ahead = 0.0
        """By how many seconds the wall clock is ahead of the other."""

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round((self.now + self.ahead) * 1000)
