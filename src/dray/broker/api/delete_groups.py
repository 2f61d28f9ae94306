"""DeleteGroups (42), versions 0 to 2: groups go, with their offsets.

Each group is answered by itself: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND where there is
none.
"""

from __future__ import annotations

from dray.base.runtime import gather_some
from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DELETE_GROUP, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


@handles(DeleteGroupsRequest, 0, 2, checks={DELETE_GROUP: Denial.GROUP})
async def handle(context: Context, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    once = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await gather_some(_delete(context, group_id) for group_id in once))


async def _delete(context: Context, group_id: str) -> DeletableGroupResult:
    if not context.may(DELETE_GROUP, group_id):
        return DeletableGroupResult(group_id=group_id, error_code=DELETE_GROUP.refusal)
    try:
        verdict: classic.ErrorAnswer = await context.services.groups.ask(group_id, classic.DeleteGroup)
    except GroupUnavailable as refusal:
        return DeletableGroupResult(group_id=group_id, error_code=refusal.error)
    return DeletableGroupResult(group_id=group_id, error_code=verdict.error)
