"""The fence of ACLs takes back what it has put up, and no ACL that was there before."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dray.client.acls import WireAcl
from dray.client.cluster import Cluster
from dray.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from dray.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from dray.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from dray.runtime import SystemRuntime
from dray.upstream.fences import AclFence, acls_before

TOPIC = "orders"
DENIAL = WireAcl(2, 3, TOPIC, "User:*", "*", 4, 2)
REST = WireAcl(2, 3, TOPIC, "User:*", "*", 2, 3)
OF_A_READER = WireAcl(2, 3, TOPIC, "User:reader", "*", 3, 3)
DENIAL_OF_ONE = WireAcl(2, 3, TOPIC, "User:guest", "*", 4, 2)


class AclCluster:
    """A cluster with ACLs of one topic, and nothing else."""

    def __init__(self, *acls: WireAcl) -> None:
        self.acls = set(acls)

    async def request(self, request: object) -> Any:
        if isinstance(request, CreateAclsRequest):
            for one in request.creations:
                self.acls.add(
                    WireAcl(
                        one.resource_type,
                        one.resource_pattern_type,
                        one.resource_name,
                        one.principal,
                        one.host,
                        one.operation,
                        one.permission_type,
                    )
                )
            return CreateAclsResponse(results=[AclCreationResult() for _ in request.creations])
        if isinstance(request, DeleteAclsRequest):
            for wanted in request.filters:
                self.acls.discard(
                    WireAcl(
                        wanted.resource_type_filter,
                        wanted.pattern_type_filter,
                        wanted.resource_name_filter,
                        wanted.principal_filter,
                        wanted.host_filter,
                        wanted.operation,
                        wanted.permission_type,
                    )
                )
            return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult() for _ in request.filters])
        assert isinstance(request, DescribeAclsRequest)
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    acl.resource_type,
                    acl.name or "",
                    acl.pattern_type,
                    [AclDescription(acl.principal or "", acl.host or "", acl.operation, acl.permission)],
                )
                for acl in self.acls
            ]
        )


@pytest.mark.parametrize(
    "before",
    [
        [],
        [OF_A_READER],
        [DENIAL],
        [DENIAL, OF_A_READER],
        [REST],
        [REST, DENIAL],
        [DENIAL_OF_ONE],
    ],
    ids=["none", "a reader", "the same", "the same and a reader", "all", "both", "one user"],
)
async def test_what_was_there_before_is_there_afterwards(before: list[WireAcl]) -> None:
    source = AclCluster(*before)
    cluster = cast(Cluster, source)
    noted = await acls_before(cluster, TOPIC)
    fence = AclFence(cluster, TOPIC, SystemRuntime(), noted.needs_rest, noted.is_denied)
    for _ in range(2):  # a successor repeats it
        await fence.put_up()
        assert DENIAL in source.acls
        assert REST in source.acls or before, "the first ACL of a topic cuts off nobody but writers"
    for _ in range(2):
        await fence.lift()
        assert source.acls == set(before)
