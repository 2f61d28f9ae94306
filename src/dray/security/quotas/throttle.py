"""How long a client that is over its quota has to wait. Pure: times are milliseconds, given by the caller."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from dray.security.addresses import as_java_writes
from dray.security.quotas.limits import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    QuotaTable,
)
from dray.security.quotas.rates import WINDOW_MS, QuotaRate, TokenBucket

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
    """What is measured of each, the one that was used last at the end. Bounded."""

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
