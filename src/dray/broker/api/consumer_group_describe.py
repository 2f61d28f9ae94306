"""ConsumerGroupDescribe (69), versions 0 and 1: KIP-848 groups with their members, as they are now.

A classic group, or none, is GROUP_ID_NOT_FOUND; an empty group id INVALID_GROUP_ID; a group that reads a
topic that the client may not describe, TOPIC_AUTHORIZATION_FAILED.

- v1: which protocol a member speaks: always the consumer protocol, as groups do not mix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.broker.api.shared import NO_OPERATIONS, Context, handles
from dray.broker.api.shared.checks import DESCRIBE_GROUP, DESCRIBE_TOPIC, Denial
from dray.broker.groups import consumer
from dray.broker.groups.coordinator import GroupUnavailable, describe_consumer
from dray.kafka.acls import AclResourceType
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CONSUMER_PROTOCOL: Final = 1


@handles(
    ConsumerGroupDescribeRequest, 0, 1, checks={DESCRIBE_GROUP: Denial.GROUP, DESCRIBE_TOPIC: Denial.GROUP}
)
async def handle(context: Context, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    described = await context.large.gather(
        _describe(context, group_id, request.include_authorized_operations)
        for group_id in dict.fromkeys(request.group_ids)
    )
    return ConsumerGroupDescribeResponse(groups=described)


async def _describe(context: Context, group_id: str, operations: bool) -> DescribedGroup:
    if not context.may(DESCRIBE_GROUP, group_id):
        return DescribedGroup(group_id=group_id, error_code=DESCRIBE_GROUP.refusal, error_message=None)
    if not group_id:
        return DescribedGroup(group_id=group_id, error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = await describe_consumer(context.services.groups, group_id)
    except GroupUnavailable as refusal:
        return DescribedGroup(group_id=group_id, error_code=refusal.error, error_message=refusal.message)
    if not all(context.may(DESCRIBE_TOPIC, name) for name in _topics(group.members)):
        return DescribedGroup(
            group_id=group_id,
            error_code=DESCRIBE_TOPIC.refusal,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=[_member(member) for member in group.members],
        authorized_operations=context.operations(AclResourceType.GROUP, group_id)
        if operations
        else NO_OPERATIONS,
    )


def _topics(members: Iterable[consumer.ConsumerMemberDescription]) -> set[str]:
    return {
        topic.topic_name
        for member in members
        for assigned in (member.assignment, member.target_assignment)
        for topic in assigned
    }


def _member(member: consumer.ConsumerMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(member.assignment),
        target_assignment=_assignment(member.target_assignment),
        member_type=_CONSUMER_PROTOCOL,
    )


def _assignment(topics: Iterable[consumer.TopicPartitions]) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(
                topic_id=topic.topic_id, topic_name=topic.topic_name, partitions=list(topic.partitions)
            )
            for topic in topics
        ]
    )
