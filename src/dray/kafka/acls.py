"""Kafka's ACLs: a binding says that a principal, from a host, may or may not do an operation on what a
pattern names.

The numbers are those of Kafka's protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv6Address
from typing import Final, NamedTuple

CLUSTER_NAME: Final = "kafka-cluster"
"""The one name of the resource CLUSTER."""
ANYTHING: Final = "*"
"""As a literal name, any resource; as a host, any host."""


class AclResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_O = AclOperation

SUPPORTED: Final[Mapping[AclResourceType, tuple[AclOperation, ...]]] = {
    AclResourceType.TOPIC: (
        *(_O.READ, _O.WRITE, _O.CREATE, _O.DELETE, _O.ALTER, _O.DESCRIBE),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ),
    AclResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        *(_O.CREATE, _O.ALTER, _O.DESCRIBE, _O.CLUSTER_ACTION),
        *(_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE),
    ),
    AclResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    AclResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations on each kind of resource: the bits of the fields that say what a client may do."""


class AclBinding(NamedTuple):
    resource_type: AclResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: Permission


def text_of(each: AclBinding | AclFilter) -> str:
    """For people, as one line."""
    name = "any" if each.name is None else repr(each.name)
    return (
        f"{each.permission.name} {each.principal or 'any'} from {each.host or 'any'} {each.operation.name} "
        f"{each.resource_type.name} {each.pattern_type.name} {name}"
    )


LONGEST_PART: Final = 1024
"""The longest name, principal or host in a binding, in bytes: a binding is a key of the metadata store."""


def fault_of(binding: AclBinding) -> str | None:
    """Why a binding cannot be created, or None."""
    kind, pattern, name, principal, host, operation, permission = binding
    if kind in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        return f"Invalid resourceType {kind.name}"
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {pattern.name}"
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        return f"Invalid operation {operation.name}"
    if permission not in (Permission.ALLOW, Permission.DENY):
        return f"Invalid permissionType {permission.name}"
    if not name:
        return "Resource name should not be empty"
    if kind is AclResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if ":" not in principal:
        return "Could not parse the principal: no colon separates its type from its name, as in User:alice"
    if not host:
        return "The host should not be empty: an address, or * for any"
    if any(len(part.encode()) > LONGEST_PART for part in (name, principal, host)):
        return f"A name, principal or host is longer than {LONGEST_PART} bytes"
    return None


class AclFilter(NamedTuple):
    """None, ANY and, for patterns, MATCH leave open."""

    resource_type: AclResourceType = AclResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: Permission = Permission.ANY

    @property
    def is_unknown(self) -> bool:
        return 0 in (self.resource_type, self.pattern_type, self.operation, self.permission)

    def matches(self, binding: AclBinding) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, binding.resource_type)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self._matches_pattern(binding)
        )

    def _matches_pattern(self, binding: AclBinding) -> bool:
        wanted, name = self.pattern_type, self.name
        if wanted not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if name is None:
            return True
        if wanted is not PatternType.MATCH:
            return name == binding.name
        if binding.pattern_type is PatternType.LITERAL:
            return binding.name in (name, ANYTHING)
        return name.startswith(binding.name)


# --- one spelling for each address
#
# Java's, since that is what Kafka compares hosts of ACLs by.


def as_java_writes(text: str) -> str:
    """An IPv6 address in eight numbers, none of them left out, and an IPv4 address in IPv6's clothes as IPv4.
    A text that is no address stays as it is."""
    if ":" not in text:  # most, and at once
        return text
    try:
        address = IPv6Address(text)
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    numbers = ":".join(f"{address.packed[at] << 8 | address.packed[at + 1]:x}" for at in range(0, 16, 2))
    return numbers if address.scope_id is None else f"{numbers}%{address.scope_id}"
