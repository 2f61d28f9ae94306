"""ListPartitionReassignments (46), version 0: there are never any, since no replica ever moves."""

from __future__ import annotations

from dray.api.shared import Context, handles
from dray.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(ListPartitionReassignmentsRequest, 0, 0)
async def handle(
    _context: Context, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)
