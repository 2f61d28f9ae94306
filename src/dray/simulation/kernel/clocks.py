"""The clocks of simulated processes: each its own, and each wrong in its own way.

The time of the simulation is the true one. Stores and clients go by it; a process sees it through its clocks.
Its wall clock may be ahead or behind, drift, and jump. While its machine is suspended its monotonic clock
goes on (CLOCK_BOOTTIME); while its host has paused it, that clock stands still, and the wall clock with it
or not.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

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
