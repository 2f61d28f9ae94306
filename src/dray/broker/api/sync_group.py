"""SyncGroup (14), versions 0 to 5: the leader of a classic group says who gets what, the others ask for it.

Parked until the leader has spoken; members it said nothing about get nothing. Refused: a member that is not
known, another generation than the present one, another protocol than was chosen, and REBALANCE_IN_PROGRESS
when the next round has begun.

- v5: the protocol must be named.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, ask_and_wait, handles, may_still_read
from dray.broker.api.shared.checks import READ_GROUP, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM: Final = 5


@handles(SyncGroupRequest, 0, 5, checks={READ_GROUP: Denial.REQUEST})
async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.version >= _PROTOCOL_FROM and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    if not context.may(READ_GROUP, request.group_id):
        return SyncGroupResponse(error_code=READ_GROUP.refusal)

    def event_with(token: object) -> classic.Sync:
        return classic.Sync(
            token,
            request.group_id,
            request.member_id,
            request.generation_id,
            instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=[(one.member_id, one.assignment) for one in request.assignments],
        )

    try:
        answer: classic.SyncAnswer = await ask_and_wait(context, request.group_id, event_with)
    except GroupUnavailable as refusal:
        return SyncGroupResponse(error_code=refusal.error)
    if not may_still_read(context, request.group_id):
        return SyncGroupResponse(error_code=READ_GROUP.refusal)
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
