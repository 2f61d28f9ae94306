"""Rates and buckets as Kafka measures them, and how long a client that is over its quota has to wait.

Times are milliseconds of a clock that never steps, given by the caller.
"""

from __future__ import annotations

import math
from typing import Final

SAMPLES: Final = 11
"""Ten whole windows and the current one: Kafka's `quota.window.num`."""
WINDOW_MS: Final = 1000


def _rounded(value: float) -> int:
    """As Java's Math.round."""
    return math.floor(value + 0.5)


class _Sample:
    __slots__ = ("begun", "last", "value")

    def __init__(self, now: int) -> None:
        self.reset(now)

    def reset(self, now: int) -> None:
        self.begun = self.last = now
        self.value = 0.0


class QuotaRate:
    """The sum of what was recorded in the last windows, per second. `used` is for its owner."""

    __slots__ = ("_current", "_samples", "used")

    def __init__(self) -> None:
        self.used = 0
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now: int) -> None:
        if not self._samples:
            self._samples.append(_Sample(now))
        sample = self._samples[self._current]
        if now - sample.begun >= WINDOW_MS:
            sample = self._advance(now)
        sample.value += value
        sample.last = now

    def _advance(self, now: int) -> _Sample:
        # One more than counts: it overlaps the end of the time that is looked at.
        self._current = (self._current + 1) % (SAMPLES + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now))
        else:
            self._samples[self._current].reset(now)
        return self._samples[self._current]

    def per_second(self, now: int) -> float:
        total, window = self._measure(now)
        return total / (window / 1000)

    def throttle_ms(self, limit: float, now: int) -> int:
        """How long nothing may be recorded until the rate is back at the limit; 0 if it is not above."""
        total, window = self._measure(now)
        rate = total / (window / 1000)
        if rate <= limit:
            return 0
        return _rounded((rate - limit) / limit * window)

    def _measure(self, now: int) -> tuple[float, int]:
        """What counts, and the milliseconds in which it was recorded: at least ten whole windows, as if the
        time before the first record had been quiet."""
        total = 0.0
        oldest = now
        for sample in self._samples:
            if now - sample.last >= SAMPLES * WINDOW_MS:
                sample.reset(now)
                continue
            total += sample.value
            oldest = min(oldest, sample.begun)
        elapsed = now - oldest
        whole = elapsed // WINDOW_MS
        if whole < SAMPLES - 1:
            elapsed += (SAMPLES - 1 - whole) * WINDOW_MS
        return total, max(elapsed, 1)


class TokenBucket:
    """Mutations: a burst of as many as the windows hold, refilled at the limit."""

    __slots__ = ("_filled", "_tokens", "used")

    def __init__(self) -> None:
        self.used = 0
        self._tokens = 0.0
        self._filled: int | None = None

    def _refill(self, limit: float, now: int) -> None:
        burst = SAMPLES * WINDOW_MS / 1000 * limit
        if self._filled is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now - self._filled) / 1000)
        self._filled = now

    def wait_ms(self, limit: float, now: int) -> int:
        """0 where something may be done, whatever it costs: what is too much is paid back later."""
        self._refill(limit, now)
        return 0 if self._tokens >= 0 else max(1, _rounded(-self._tokens / limit * 1000))

    def record(self, value: float, limit: float, now: int) -> None:
        self._refill(limit, now)
        self._tokens = min(SAMPLES * WINDOW_MS / 1000 * limit, self._tokens - value)
