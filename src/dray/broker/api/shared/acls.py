"""Things that the APIs of ACLs share: Kafka's numbers on the wire, and the answer of a broker without an
authorizer."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from dray.kafka.acls import AclBinding, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ErrorCode

DISABLED: Final = (
    ErrorCode.SECURITY_DISABLED,
    "No Authorizer is configured on the broker: every client may do everything.",
)

Kind = TypeVar("Kind", bound=IntEnum)


def known(kind: type[Kind], code: int) -> Kind:
    """UNKNOWN for a number that a newer Kafka has."""
    try:
        return kind(code)
    except ValueError:
        return kind(0)


def binding(
    kind: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    return AclBinding(
        known(AclResourceType, kind),
        known(PatternType, pattern),
        name,
        principal,
        host,
        known(AclOperation, operation),
        known(Permission, permission),
    )


def filter_of(
    kind: int,
    pattern: int,
    name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    return AclFilter(
        known(AclResourceType, kind),
        known(PatternType, pattern),
        name,
        principal,
        host,
        known(AclOperation, operation),
        known(Permission, permission),
    )
