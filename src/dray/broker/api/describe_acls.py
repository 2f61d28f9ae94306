"""DescribeAcls (29), versions 1 to 3; SECURITY_DISABLED on a broker without an authorizer.

A filter with a number 0 (UNKNOWN) is no request: as with Kafka, the connection ends.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, RefuseConnection, handles
from dray.broker.api.shared.acls import DISABLED, filter_of
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.broker.security.acls.decision import matching
from dray.kafka.acls import AclBinding
from dray.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DescribeAclsRequest, 1, 3, checks={DESCRIBE_CLUSTER: Denial.REQUEST})
async def handle(context: Context, request: DescribeAclsRequest) -> DescribeAclsResponse:
    wanted = filter_of(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    if 0 in (
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    ):
        raise RefuseConnection("DescribeAcls with an UNKNOWN element in its filter")
    acls = context.services.acls
    if acls is None:
        return DescribeAclsResponse(error_code=DISABLED[0], error_message=DISABLED[1])
    if not context.may(DESCRIBE_CLUSTER):
        return DescribeAclsResponse(
            error_code=DESCRIBE_CLUSTER.refusal, error_message=DESCRIBE_CLUSTER.reason
        )
    return await acls.look_through(lambda bindings: _described(matching(bindings, wanted)))


def _described(bindings: list[AclBinding]) -> DescribeAclsResponse:
    response = DescribeAclsResponse(error_message=None)
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for found in sorted(bindings):
        place = found.resource_type, found.pattern_type, found.name
        resource = resources.get(place)
        if resource is None:
            resource = resources[place] = DescribeAclsResource(
                resource_type=found.resource_type, resource_name=found.name, pattern_type=found.pattern_type
            )
            response.resources.append(resource)
        resource.acls.append(AclDescription(found.principal, found.host, found.operation, found.permission))
    return response
