"""Heartbeat (12), versions 0 to 4: a member of a classic group lives, and hears whether it must join again.

Answered from memory: nothing is written. REBALANCE_IN_PROGRESS means that the member must join the next
generation. Unknown members and generations are refused.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import READ_GROUP, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, 0, 4, checks={READ_GROUP: Denial.REQUEST})
async def handle(context: Context, request: HeartbeatRequest) -> HeartbeatResponse:
    if not context.may(READ_GROUP, request.group_id):
        return HeartbeatResponse(error_code=READ_GROUP.refusal)

    def event_with(token: object) -> classic.Heartbeat:
        return classic.Heartbeat(
            token, request.group_id, request.member_id, request.generation_id, request.group_instance_id
        )

    try:
        verdict: classic.ErrorAnswer = await context.services.groups.ask(request.group_id, event_with)
    except GroupUnavailable as refusal:
        return HeartbeatResponse(error_code=refusal.error)
    return HeartbeatResponse(error_code=verdict.error)
