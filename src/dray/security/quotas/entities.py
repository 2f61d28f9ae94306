"""Entities of quotas, as the wire has them: a name (None: the default) by the kind of entity."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from dray.security.quotas.limits import QuotaEntity

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
    return f"ClientQuotaEntity(entries={{{named}}})"


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
            return f"Unhandled client quota entity type: {kind}"
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
