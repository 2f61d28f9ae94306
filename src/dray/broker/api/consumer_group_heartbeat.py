"""ConsumerGroupHeartbeat (68), versions 0 and 1: the whole membership of a KIP-848 group in one request.

A member joins (epoch 0), lives, gives up partitions and leaves (epoch -1, or -2 to come back) by it, and
hears what it is assigned. Heartbeats that change nothing write nothing. Refused: malformed requests
(INVALID_REQUEST), assignors and members that are not known, epochs that are not the member's, a pattern that
is none, a classic group with members.

- v1: patterns, in RE2's syntax. Clients make their own member ids.
"""

from __future__ import annotations

from functools import partial

from dray.broker.api.shared import Check, Context, client_host, handles
from dray.broker.api.shared.checks import DESCRIBE_TOPIC, READ_GROUP, Denial
from dray.broker.cluster import uuid_text
from dray.broker.groups import consumer
from dray.broker.groups.assignors import Assignment as GroupAssignment
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


@handles(
    ConsumerGroupHeartbeatRequest, 0, 1, checks={READ_GROUP: Denial.REQUEST, DESCRIBE_TOPIC: Denial.REQUEST}
)
async def handle(context: Context, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    refused = _refused(context, request)
    if refused is not None:
        return ConsumerGroupHeartbeatResponse(error_code=refused.refusal, error_message=None)
    owned = request.topic_partitions
    beat = consumer.Heartbeat(
        request.group_id,
        request.member_id,
        request.member_epoch,
        context.version,
        context.header.client_id or "",
        client_host(context),
        fresh_member_id="" if request.member_id else uuid_text(context.services.runtime.uuid()),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        may_describe=None if context.access is None else partial(context.sees, DESCRIBE_TOPIC),
        owned=None if owned is None else [(topic.topic_id, topic.partitions) for topic in owned],
    )
    try:
        answer = await context.services.groups.consumer_heartbeat(beat)
    except GroupUnavailable as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.error, error_message=refusal.message)
    if isinstance(answer, consumer.Refusal):
        return ConsumerGroupHeartbeatResponse(error_code=answer.error, error_message=answer.message)
    return ConsumerGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else _assignment(answer.assignment),
    )


def _refused(context: Context, request: ConsumerGroupHeartbeatRequest) -> Check | None:
    if not context.may(READ_GROUP, request.group_id):
        return READ_GROUP
    if all(context.may(DESCRIBE_TOPIC, name) for name in set(request.subscribed_topic_names or ())):
        return None
    return DESCRIBE_TOPIC


def _assignment(assignment: GroupAssignment) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in assignment.items()
        ]
    )
