"""Rates and buckets as Kafka measures them, and how long a client that is over its quota has to wait.

Pure: times are milliseconds of a clock that never steps, given by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from dray.kafka.acls import as_java_writes
from dray.kafka.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    QuotaTable,
)

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
        """The sum of the samples that count, and the milliseconds in which they were recorded: at least ten
        whole windows, as if the time before the first record had been quiet."""
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


# --- how long to wait

MOST_MEASURED: Final = 10_000
"""Of each kind, since clients choose their ids. The one that was quiet for longest is forgotten first."""
FORGOTTEN_AFTER_MS: Final = 60 * 60 * 1000
"""As in Kafka. Rates are over after eleven seconds; only mutations for which a client would have to wait for
longer than this are forgiven."""


class FetchVerdict(NamedTuple):
    wait_ms: int
    empty: bool
    """The records are not sent, and not counted: the client asks for them again."""


_SENT: Final = FetchVerdict(0, False)


class Throttle:
    """Measures clients against their quotas. One per broker: with three brokers a client has three times its
    quota, as in Kafka."""

    def __init__(self, table: QuotaTable | None = None) -> None:
        self.table = QuotaTable() if table is None else table
        self._rates: _Measured[tuple[str, tuple[str, str]], QuotaRate] = _Measured(QuotaRate)
        self._buckets: _Measured[tuple[str, str], TokenBucket] = _Measured(TokenBucket)
        self._addresses: _Measured[str, QuotaRate] = _Measured(QuotaRate)

    def record(self, key: str, user: str, client_id: str, value: float, now: int) -> int:
        """How many milliseconds the client has to wait, after this much more."""
        limit = self.table.limit(key, user, client_id)
        if limit is None:
            return 0
        rate = self._rates.of((key, limit.shared_by), now)
        rate.record(value, now)
        wait = rate.throttle_ms(limit.value, now)
        return min(wait, WINDOW_MS) if key == REQUEST_PERCENTAGE else wait

    def fetch(self, user: str, client_id: str, size: int, now: int) -> FetchVerdict:
        """Whether an answer of this size may be sent; what is sent is recorded. A client that was quiet for
        all the windows is sent even what is too much, and waits afterwards: a batch that is larger than the
        quota of ten seconds would never be sent else."""
        limit = self.table.limit(CONSUMER_BYTE_RATE, user, client_id)
        if limit is None:
            return _SENT
        rate = self._rates.of((CONSUMER_BYTE_RATE, limit.shared_by), now)
        quiet = rate.per_second(now) == 0
        rate.record(size, now)
        wait = rate.throttle_ms(limit.value, now)
        if wait and not quiet:
            rate.record(-size, now)
            return FetchVerdict(wait, True)
        return FetchVerdict(wait, False)

    def most_at_once(self, key: str, user: str, client_id: str) -> float | None:
        """One window's worth. Kafka allows ten in one answer, which a client is never refused after ten quiet
        seconds; but then it waits for twenty, and gets half of its quota."""
        limit = self.table.limit(key, user, client_id)
        return None if limit is None else limit.value * WINDOW_MS / 1000

    def mutate(self, user: str, client_id: str, count: float, now: int, *, strict: bool = True) -> int:
        """0 where the mutations may be done, and are recorded. Else how long to wait; a strict quota refuses
        them, one for older clients lets them through and has the client wait."""
        limit = self.table.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return 0
        bucket = self._buckets.of(limit.shared_by, now)
        wait = bucket.wait_ms(limit.value, now)
        if wait and strict:
            return wait
        bucket.record(count, limit.value, now)
        return 0 if strict else bucket.wait_ms(limit.value, now)

    def connect(self, address: str, now: int) -> int:
        """0 where a new connection may be used, and is recorded. Else for how long it is held before it is
        closed, a window at most: a client that is refused at once would come again at once."""
        address = as_java_writes(address)
        limit = self.table.connection_rate(address)
        if limit is None:
            return 0
        rate = self._addresses.of(address, now)
        rate.record(1, now)
        wait = rate.throttle_ms(limit, now)
        if wait:
            rate.record(-1, now)
        return min(wait, WINDOW_MS)


class _Dated(Protocol):
    used: int


Name = TypeVar("Name", bound=Hashable)
Kind = TypeVar("Kind", bound=_Dated)


class _Measured(Generic[Name, Kind]):
    """The measurements of each, the one that was used last at the end. Bounded."""

    def __init__(self, make: Callable[[], Kind]) -> None:
        self._make = make
        self._held: dict[Name, Kind] = {}

    def __len__(self) -> int:
        return len(self._held)

    def of(self, name: Name, now: int) -> Kind:
        held = self._held
        found = held.pop(name, None)
        if found is None:
            found = self._make()
            while held and (len(held) >= MOST_MEASURED or self._is_forgotten(now)):
                del held[next(iter(held))]
        found.used = now
        held[name] = found
        return found

    def _is_forgotten(self, now: int) -> bool:
        oldest = next(iter(self._held.values()))
        return now - oldest.used >= FORGOTTEN_AFTER_MS
