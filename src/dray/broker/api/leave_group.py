"""LeaveGroup (13), versions 0 to 5: members go, and need not be waited for.

Members of KIP-848 groups can be removed this way too. Refused: an empty group id, members that are not known,
an instance id that belongs to another member.

- v3: a request names many members, each answered by itself. An administrator may name a static one by its
  instance id alone.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import READ_GROUP, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_MANY_FROM: Final = 3


@handles(LeaveGroupRequest, 0, 5, checks={READ_GROUP: Denial.REQUEST})
async def handle(context: Context, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if not context.may(READ_GROUP, request.group_id):
        return LeaveGroupResponse(error_code=READ_GROUP.refusal)
    many = context.version >= _MANY_FROM
    members: list[tuple[str, str | None]] = [(request.member_id, None)]
    if many:
        members = [(member.member_id, member.group_instance_id) for member in request.members]

    def event_with(token: object) -> classic.Leave:
        return classic.Leave(token, request.group_id, members)

    try:
        answer: classic.LeaveAnswer = await context.services.groups.ask(request.group_id, event_with)
    except GroupUnavailable as refusal:
        return LeaveGroupResponse(error_code=refusal.error)
    if many:
        return LeaveGroupResponse(
            error_code=answer.error,
            members=[
                MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=error)
                for member_id, instance_id, error in answer.members
            ],
        )
    error = answer.error
    if error is ErrorCode.NONE:
        [(_, _, error)] = answer.members
    return LeaveGroupResponse(error_code=error)
