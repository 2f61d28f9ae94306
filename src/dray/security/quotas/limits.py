"""Which quota applies to a client, and with whom it shares it.

Kafka's order: the most specific entity that has the quota wins, and a client is measured together with
those that the entity does not tell apart: a user's quota is shared by all its client ids, a user-and-client
quota by none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dray.security.quotas.rates import SAMPLES, WINDOW_MS, QuotaRate, TokenBucket

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

DEFAULT: Final = None
"""As the name in an entity: any that has none of its own."""

_MOST_LONG: Final = float(2**63 - 1)
_MOST_INT: Final = float(2**31 - 1)

# By quota: the most it may be, and whether it has to be whole.
_CLIENT_KEYS: Final[Mapping[str, tuple[float, bool]]] = {
    PRODUCER_BYTE_RATE: (_MOST_LONG, True),
    CONSUMER_BYTE_RATE: (_MOST_LONG, True),
    REQUEST_PERCENTAGE: (float("inf"), False),
    CONTROLLER_MUTATION_RATE: (float("inf"), False),
}
_ADDRESS_KEYS: Final[Mapping[str, tuple[float, bool]]] = {CONNECTION_CREATION_RATE: (_MOST_INT, True)}


class QuotaEntity(NamedTuple):
    """Which of the three are named: a tuple with the name, where None is the default; or no tuple."""

    user: tuple[str | None] | None = None
    client_id: tuple[str | None] | None = None
    ip: tuple[str | None] | None = None


def fault_of_value(entity: QuotaEntity, key: str, value: float) -> str | None:
    """Why this entity cannot have this quota, in Kafka's words."""
    keys = _CLIENT_KEYS if entity.ip is None else _ADDRESS_KEYS
    if key not in keys:
        return f"Invalid configuration key {key}"
    most, whole = keys[key]
    if not value > 0:
        return f"Quota {key} must be greater than 0"
    if value > most:
        return f"Proposed value for {key} is too large for {'an INT' if most == _MOST_INT else 'a LONG'}."
    if whole and abs(value % 1.0) > 1e-6:
        return f"{key} cannot be a fractional value."
    return None


@dataclass(frozen=True, slots=True)
class QuotaLimit:
    """`shared_by` is the same for clients that are measured together."""

    value: float
    shared_by: tuple[str, str]


class QuotaTable:
    """What is set for which entity. A new one takes its place when anything changes."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        self._quotas = dict(quotas or {})
        self.keys: frozenset[str] = frozenset(key for held in self._quotas.values() for key in held)

    def items(self) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        return list(self._quotas.items())

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._quotas.get(entity, {})

    def limit(self, key: str, user: str, client_id: str) -> QuotaLimit | None:
        """None where nothing is set for this client."""
        if key not in self.keys:
            return None
        both, user_alone, client_alone = (user, client_id), (user, ""), ("", client_id)
        for entity, shared_by in (
            (QuotaEntity((user,), (client_id,)), both),
            (QuotaEntity((user,), (DEFAULT,)), both),
            (QuotaEntity((user,)), user_alone),
            (QuotaEntity((DEFAULT,), (client_id,)), both),
            (QuotaEntity((DEFAULT,), (DEFAULT,)), both),
            (QuotaEntity((DEFAULT,)), user_alone),
            (QuotaEntity(None, (client_id,)), client_alone),
            (QuotaEntity(None, (DEFAULT,)), client_alone),
        ):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                return QuotaLimit(value, shared_by)
        return None

    def connection_rate(self, address: str) -> float | None:
        """Connections a second from this address."""
        if CONNECTION_CREATION_RATE not in self.keys:
            return None
        own = self._quotas.get(QuotaEntity(ip=(address,)), {}).get(CONNECTION_CREATION_RATE)
        default = self._quotas.get(QuotaEntity(ip=(DEFAULT,)), {}).get(CONNECTION_CREATION_RATE)
        return default if own is None else own


_MOST_MEASURED: Final = 10_000


class Throttle:
    """Measures clients against their quotas. One per broker: so many brokers, so many times the quota."""

    def __init__(self) -> None:
        self.table = QuotaTable()
        self._rates: dict[tuple[str, tuple[str, str]], QuotaRate] = {}
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def record(self, key: str, user: str, client_id: str, value: float, now: int) -> int:
        """How many milliseconds the client has to wait, after this much more."""
        limit = self.table.limit(key, user, client_id)
        if limit is None:
            return 0
        rate = self._rate(key, limit.shared_by)
        rate.record(value, now)
        wait = rate.throttle_ms(limit.value, now)
        return min(wait, WINDOW_MS) if key == REQUEST_PERCENTAGE else wait

    def take_back(self, key: str, user: str, client_id: str, value: float, now: int) -> None:
        """What was recorded and then not sent: a fetch over its quota is answered empty."""
        limit = self.table.limit(key, user, client_id)
        if limit is not None:
            self._rate(key, limit.shared_by).record(-value, now)

    def most_at_once(self, key: str, user: str, client_id: str) -> float | None:
        """More than this in one answer would be over the quota even after ten quiet seconds."""
        limit = self.table.limit(key, user, client_id)
        return None if limit is None else limit.value * (SAMPLES - 1) * WINDOW_MS / 1000

    def mutate(self, user: str, client_id: str, count: float, now: int, *, strict: bool = True) -> int:
        """0 where the mutations may be done, and are recorded. Else how long to wait; a strict quota refuses
        them, one for older clients lets them through and has the client wait."""
        limit = self.table.limit(CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return 0
        bucket = self._buckets.pop(limit.shared_by, None) or TokenBucket()
        _bound(self._buckets)
        self._buckets[limit.shared_by] = bucket
        wait = bucket.wait_ms(limit.value, now)
        if wait and strict:
            return wait
        bucket.record(count, limit.value, now)
        return 0 if strict else bucket.wait_ms(limit.value, now)

    def _rate(self, key: str, shared_by: tuple[str, str]) -> QuotaRate:
        rate = self._rates.pop((key, shared_by), None) or QuotaRate()
        _bound(self._rates)
        self._rates[key, shared_by] = rate
        return rate


def _bound(measured: dict[Any, Any]) -> None:
    """Bound how many clients are measured, since clients choose their ids. The one that was quiet for longest
    is dropped first."""
    while len(measured) >= _MOST_MEASURED:
        del measured[next(iter(measured))]
