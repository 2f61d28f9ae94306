"""JoinGroup (11), versions 0 to 9: become a member of a classic group, or of its next generation.

The request is parked until the round is complete: all members are here, or their time is up. The leader's
answer lists the members. Refused: an empty group id, a session timeout out of range, protocols that the
others do not know, a group that is full, a group whose members speak the consumer protocol
(INCONSISTENT_GROUP_PROTOCOL).

- v4: a newcomer without an id is sent away with one first (MEMBER_ID_REQUIRED).
- v5: static members.
- v9: the answer may let a leader that comes back skip the assignment.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, ask_and_wait, client_host, handles, may_still_read
from dray.broker.api.shared.checks import READ_GROUP, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
)

_NULLABLE_FROM: Final = 7


@handles(JoinGroupRequest, 0, 9, checks={READ_GROUP: Denial.REQUEST})
async def handle(context: Context, request: JoinGroupRequest) -> JoinGroupResponse:
    if not context.may(READ_GROUP, request.group_id):
        return _refused(context)
    client_id = context.header.client_id or ""
    fresh_member_id = ""
    if not request.member_id:
        name = client_id if request.group_instance_id is None else request.group_instance_id
        fresh_member_id = f"{name}-{context.services.runtime.uuid()}"

    def event_with(token: object) -> classic.Join:
        return classic.Join(
            token,
            request.group_id,
            request.member_id,
            context.version,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocol_type,
            [(protocol.name, protocol.metadata) for protocol in request.protocols],
            instance_id=request.group_instance_id,
            client_id=client_id,
            client_host=client_host(context),
            fresh_member_id=fresh_member_id,
        )

    try:
        answer: classic.JoinAnswer = await ask_and_wait(context, request.group_id, event_with)
    except GroupUnavailable as refusal:
        return JoinGroupResponse(
            error_code=refusal.error,
            protocol_name=_protocol_name(context, None),
            member_id=request.member_id,
        )
    if not may_still_read(context, request.group_id):
        return _refused(context)
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=_protocol_name(context, answer.protocol_name),
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in answer.members
        ],
    )


def _refused(context: Context) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=READ_GROUP.refusal, protocol_name=_protocol_name(context, None))


def _protocol_name(context: Context, name: str | None) -> str | None:
    """Null if no protocol was chosen; older versions have an empty string for that."""
    return name if name is not None or context.version >= _NULLABLE_FROM else ""
