"""Users, their rights and their quotas, through Kafka's APIs.

Arguments and results of ACLs are the numbers of the protocol. Entities of quotas are a name by the kind of
entity, None for the default. A password leaves this process salted and hashed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypeVar

from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.client.connection import Caller
from dray.kafka.client.errors import check
from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from dray.kafka.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from dray.kafka.quotas import Parts

# --- users


MECHANISMS: Mapping[str, tuple[int, str]] = {
    "SCRAM-SHA-256": (1, "sha256"),
    "SCRAM-SHA-512": (2, "sha512"),
}


async def list_users(caller: Caller) -> dict[str, dict[str, int]]:
    """Iterations, by user and mechanism."""
    response = await caller.request(DescribeUserScramCredentialsRequest(users=None))
    check("list users", response.error_code, response.error_message)
    names = {number: name for name, (number, _) in MECHANISMS.items()}
    return {
        result.user: {
            names.get(info.mechanism, str(info.mechanism)): info.iterations
            for info in result.credential_infos
        }
        for result in sorted(response.results, key=lambda result: result.user)
    }


async def put_user(
    caller: Caller, user: str, password: str, salts: Mapping[str, bytes], iterations: int
) -> None:
    """One request per mechanism: in one, a user may be named once only."""
    for mechanism, salt in salts.items():
        number, hash_name = MECHANISMS[mechanism]
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        upsertion = ScramCredentialUpsertion(
            name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        await _alter(caller, AlterUserScramCredentialsRequest(upsertions=[upsertion]))


async def delete_user(caller: Caller, user: str, mechanisms: Sequence[str]) -> None:
    for mechanism in mechanisms:
        deletion = ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0])
        await _alter(caller, AlterUserScramCredentialsRequest(deletions=[deletion]))


async def _alter(caller: Caller, request: AlterUserScramCredentialsRequest) -> None:
    response = await caller.request(request)
    for result in response.results:
        check(f"user {result.user}", result.error_code, result.error_message)


# --- ACLs


Kind = TypeVar("Kind", bound=IntEnum)


class WireAcl(NamedTuple):
    """A binding, or a filter: then 1 (ANY) and None leave open."""

    resource_type: int
    pattern_type: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int


def bindings_of(found: Iterable[WireAcl]) -> list[AclBinding]:
    """In order. Numbers that are not known here become UNKNOWN."""
    return sorted(
        AclBinding(
            _known(AclResourceType, one.resource_type),
            _known(PatternType, one.pattern_type),
            one.name or "",
            one.principal or "",
            one.host or "",
            _known(AclOperation, one.operation),
            _known(Permission, one.permission),
        )
        for one in found
    )


def _known(kind: type[Kind], code: int) -> Kind:
    return kind(code) if code in list(kind) else kind(0)


async def create_acls(caller: Caller, wanted: Sequence[WireAcl]) -> None:
    creations = [
        AclCreation(
            resource_type=one.resource_type,
            resource_name=one.name or "",
            resource_pattern_type=one.pattern_type,
            principal=one.principal or "",
            host=one.host or "",
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in wanted
    ]
    response = await caller.request(CreateAclsRequest(creations=creations))
    for result in response.results:
        check("create ACLs", result.error_code, result.error_message)


async def list_acls(caller: Caller, wanted: WireAcl) -> list[WireAcl]:
    response = await caller.request(
        DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
    )
    check("list ACLs", response.error_code, response.error_message)
    return [
        WireAcl(
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    ]


async def delete_acls(caller: Caller, *wanted: WireAcl) -> list[WireAcl]:
    """Those that were deleted. A controller of Kafka deletes them all at one moment."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=one.resource_type,
            resource_name_filter=one.name,
            pattern_type_filter=one.pattern_type,
            principal_filter=one.principal,
            host_filter=one.host,
            operation=one.operation,
            permission_type=one.permission,
        )
        for one in wanted
    ]
    response = await caller.request(DeleteAclsRequest(filters=filters))
    found = []
    for result in response.filter_results:
        check("delete ACLs", result.error_code, result.error_message)
        for acl in result.matching_acls:
            check("delete an ACL", acl.error_code, acl.error_message)
            found.append(
                WireAcl(
                    acl.resource_type,
                    acl.pattern_type,
                    acl.resource_name,
                    acl.principal,
                    acl.host,
                    acl.operation,
                    acl.permission_type,
                )
            )
    return found


# --- quotas


_EXACT, _DEFAULT = 0, 1


async def list_quotas(caller: Caller, wanted: Parts) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Those of all entities that have these names, and perhaps further ones."""
    components = [
        ComponentData(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in wanted.items()
    ]
    response = await caller.request(DescribeClientQuotasRequest(components))
    check("list quotas", response.error_code, response.error_message)
    return [
        (
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in response.entries or ()
    ]


async def alter_quotas(
    caller: Caller,
    changes: Sequence[tuple[Parts, Mapping[str, float | None]]],
    *,
    validate_only: bool = False,
) -> None:
    """None takes a quota away."""
    entries = [
        RequestedEntryData(
            [EntityData(kind, name) for kind, name in entity.items()],
            [OpData(key, value or 0.0, value is None) for key, value in quotas.items()],
        )
        for entity, quotas in changes
    ]
    response = await caller.request(AlterClientQuotasRequest(entries, validate_only))
    for entry in response.entries:
        check("alter quotas", entry.error_code, entry.error_message)
