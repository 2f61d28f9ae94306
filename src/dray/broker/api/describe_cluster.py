"""DescribeCluster (60), versions 0 to 2: the cluster's id and its brokers.

The controller named is this broker.

- v1: an endpoint type. There are no controllers apart from brokers: asked for those, the answer is
  MISMATCHED_ENDPOINT_TYPE; any other type is UNSUPPORTED_ENDPOINT_TYPE.
- v2: whether a broker is fenced. None ever is.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.kafka.acls import AclResourceType
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, 0, 2, checks={DESCRIBE_CLUSTER: Denial.FIELD})
async def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        return _failed(request, ErrorCode.MISMATCHED_ENDPOINT_TYPE, "This is a broker, and no controller.")
    if request.endpoint_type != _BROKERS:
        return _failed(
            request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unknown endpoint type {request.endpoint_type}"
        )
    services = context.services
    response = DescribeClusterResponse(
        cluster_id=services.cluster.cluster_id, controller_id=services.membership.me.broker_id
    )
    for broker in services.membership.brokers():
        listener = broker.at(context.connection.listener)
        response.brokers.append(
            DescribeClusterBroker(
                broker_id=broker.broker_id, host=listener.host, port=listener.port, rack=broker.rack
            )
        )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            context.operations(AclResourceType.CLUSTER) if context.may(DESCRIBE_CLUSTER) else 0
        )
    return response


def _failed(request: DescribeClusterRequest, code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        error_code=code, error_message=message, endpoint_type=request.endpoint_type
    )
