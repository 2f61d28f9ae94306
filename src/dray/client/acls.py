"""ACLs through Kafka's APIs. What is asked and answered are the numbers of the protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dray.client.connection import Caller
from dray.client.errors import check
from dray.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.protocol.messages.describe_acls import DescribeAclsRequest


class WireAcl(NamedTuple):
    """A binding, or a filter: then 1 (ANY) and None leave open."""

    resource_type: int
    pattern_type: int
    name: str | None
    principal: str | None
    host: str | None
    operation: int
    permission: int


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
