"""OffsetDelete (47), version 0: forget how far a group has read in some partitions.

Refused as a whole: a group that does not exist, and one with members whose subscriptions are not known
(NON_EMPTY_GROUP). Refused partition by partition: topics and partitions that do not exist, topics that the
group subscribes to (GROUP_SUBSCRIBED_TO_TOPIC). An offset that was never committed counts as deleted.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, find_topic, handles
from dray.broker.api.shared.checks import DELETE_GROUP, READ_TOPIC, Denial
from dray.broker.groups.coordinator import GroupUnavailable, Place, delete_offsets
from dray.broker.topics import TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handles(OffsetDeleteRequest, 0, 0, checks={DELETE_GROUP: Denial.REQUEST, READ_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    if not context.may(DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=DELETE_GROUP.refusal)
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    places = [
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    ]
    try:
        errors = {place: await _fault(context, place) for place in places}
        known = [place for place, error in errors.items() if error is ErrorCode.NONE]
        errors |= await delete_offsets(context.services.groups, request.group_id, known)
    except TopicsUnavailable:
        return OffsetDeleteResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    except GroupUnavailable as refusal:
        return OffsetDeleteResponse(error_code=refusal.error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[topic.name, partition.partition_index],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


async def _fault(context: Context, place: Place) -> ErrorCode:
    name, partition = place
    if not context.may(READ_TOPIC, name):
        return READ_TOPIC.refusal
    topic = await find_topic(context, name, partition)
    if topic is None or topic.stream_of(partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
