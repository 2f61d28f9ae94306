"""Kafka's quotas: which of them applies to a client, with whom it shares it, and their entities on the wire.

Kafka's order: the most specific entity that has the quota wins, and a client is measured together with
those that the entity does not tell apart: a user's quota is shared by all its client ids, a user-and-client
quota by none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple

from dray.base.runtime import cut
from dray.kafka.acls import as_java_writes

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
        return f"Invalid configuration key {cut(key)}"
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


_MOST_REMEMBERED: Final = 10_000


class QuotaTable:
    """The limits of each entity, and those that apply to a client. An answer is remembered until something
    changes: a request then costs one look-up."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None) -> None:
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        self._spellings: dict[str, set[QuotaEntity]] = {}
        """By the address, as Java writes it: entities are kept as they were written, and hold anyway."""
        self._times: Counter[str] = Counter()
        self._remembered: dict[tuple[str, str, str], QuotaLimit | None] = {}
        self.keys: frozenset[str] = frozenset()
        """Which quotas are set for anybody. Empty: nothing has to be measured."""
        for entity, held in (quotas or {}).items():
            self.put(entity, held)

    def put(self, entity: QuotaEntity, quotas: Mapping[str, float]) -> None:
        """In the place of what the entity had."""
        self._times.subtract(self._quotas.get(entity, {}).keys())
        self._times.update(quotas.keys())
        self._quotas[entity] = dict(quotas)
        if (address := _address_of(entity)) is not None:
            self._spellings.setdefault(address, set()).add(entity)
        self._changed()

    def remove(self, entity: QuotaEntity) -> None:
        self._times.subtract(self._quotas.pop(entity, {}).keys())
        if (address := _address_of(entity)) is not None:
            spellings = self._spellings.get(address, set())
            spellings.discard(entity)
            if not spellings:
                self._spellings.pop(address, None)
        self._changed()

    def _changed(self) -> None:
        self._remembered.clear()
        self.keys = frozenset(key for key, times in self._times.items() if times > 0)

    def items(self) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        return list(self._quotas.items())

    def of(self, entity: QuotaEntity) -> Mapping[str, float]:
        return self._quotas.get(entity, {})

    def limit(self, key: str, user: str, client_id: str) -> QuotaLimit | None:
        """None where nothing is set for this client."""
        if key not in self.keys:
            return None
        asked = key, user, client_id
        try:
            return self._remembered[asked]
        except KeyError:
            if len(self._remembered) >= _MOST_REMEMBERED:  # clients choose their ids
                self._remembered.clear()
            found = self._remembered[asked] = self._find(key, user, client_id)
            return found

    def _find(self, key: str, user: str, client_id: str) -> QuotaLimit | None:
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
        """Connections a second from this address, as Java writes it. Of several spellings the least holds."""
        if CONNECTION_CREATION_RATE not in self.keys:
            return None
        spellings = self._spellings.get(address, ())
        own = [self.of(entity).get(CONNECTION_CREATION_RATE) for entity in spellings]
        default = self.of(QuotaEntity(ip=(DEFAULT,))).get(CONNECTION_CREATION_RATE)
        return min((rate for rate in own if rate is not None), default=default)


def _address_of(entity: QuotaEntity) -> str | None:
    if entity.ip is None or entity.ip[0] is None:
        return None
    return as_java_writes(entity.ip[0])


# --- entities on the wire
#
# A name (None: the default) by the kind of entity.


KINDS: Final = ("client-id", "user", "ip")
"""In the order in which Kafka names them in answers."""

LONGEST_NAME: Final = 1024
"""In characters. Kafka has no limit; a name is part of a key."""

Parts = Mapping[str, str | None]


def parts_of(entity: QuotaEntity) -> dict[str, str | None]:
    named = zip(KINDS, (entity.client_id, entity.user, entity.ip), strict=True)
    return {kind: name[0] for kind, name in named if name is not None}


def entity_of(parts: Parts) -> QuotaEntity:
    def named(kind: str) -> tuple[str | None] | None:
        return (parts[kind],) if kind in parts else None

    return QuotaEntity(named("user"), named("client-id"), named("ip"))


def shown(parts: Parts) -> str:
    """As Kafka prints an entity in its errors."""
    named = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{cut(named)}}})"


def text_of_change(parts: Parts, changes: Mapping[str, float | None]) -> str:
    """For the audit log: whose quotas, and what becomes of them. None: taken away."""
    whose = ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in parts.items())
    made = [f"{key} {'removed' if value is None else f'= {value:g}'}" for key, value in changes.items()]
    return f"quotas of {whose}: {', '.join(made)}"


def fault_of(parts: Parts) -> str | None:
    """Why there is no such entity, in Kafka's words."""
    if not parts:
        return "Invalid empty client quota entity"
    for kind, name in parts.items():
        if kind not in KINDS:
            return f"Unhandled client quota entity type: {cut(kind)}"
        if name == "":
            return f"Empty {kind} not supported"
        if name is not None and len(name) > LONGEST_NAME:
            return f"The name of the {kind} is longer than {LONGEST_NAME} characters"
    if "ip" not in parts:
        return None
    if len(parts) > 1:
        return "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
    return None if _is_address(parts["ip"]) else f"{parts['ip']} is not a valid IP or resolvable host."


def _is_address(name: str | None) -> bool:
    """Only addresses. Kafka also takes the names of hosts, which every broker resolves for itself."""
    if name is None:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return "%" not in name
