"""ListPartitionReassignments (46), version 0: there are never any, since no replica ever moves."""

from __future__ import annotations

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER, Denial
from dray.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, 0, 0, checks={DESCRIBE_CLUSTER: Denial.REQUEST})
async def handle(
    context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    if not context.may(DESCRIBE_CLUSTER):
        return ListPartitionReassignmentsResponse(
            error_code=DESCRIBE_CLUSTER.refusal, error_message=DESCRIBE_CLUSTER.reason
        )
    return ListPartitionReassignmentsResponse(error_message=None)
