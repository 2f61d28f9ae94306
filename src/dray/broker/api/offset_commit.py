"""OffsetCommit (8), versions 2 to 10: how far a group has read.

Done when it is stored. The generation is that of a classic member; -1 commits for a group without members,
and makes a simple group where there is none. Refused partition by partition: topics and partitions that do
not exist, metadata that is too large. Refused as a whole: members, generations and epochs that are not the
group's.

- v9: the generation may be the epoch of a KIP-848 member.
- v10: topics are named by their ids (UNKNOWN_TOPIC_ID where there is none).
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, find_topic, handles
from dray.broker.api.shared.checks import READ_GROUP, READ_TOPIC, Denial
from dray.broker.groups import classic
from dray.broker.groups.coordinator import GroupUnavailable, Place
from dray.broker.groups.offsets import CommittedOffset, metadata_fault
from dray.broker.topics import Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_BY_ID: Final = 10
_RETENTION_UNTIL: Final = 4


@handles(OffsetCommitRequest, 2, 10, checks={READ_GROUP: Denial.PARTITION, READ_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets: dict[Place, CommittedOffset] = {}
    response = OffsetCommitResponse()
    accepted: list[OffsetCommitResponsePartition] = []
    may_read = context.may(READ_GROUP, request.group_id)
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        response.topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, answers))
        found = await _find(context, topic) if may_read else READ_GROUP.refusal
        for partition in topic.partitions:
            answer = OffsetCommitResponsePartition(
                partition.partition_index, _fault(context, found, partition)
            )
            answers.append(answer)
            if isinstance(found, Topic) and not answer.error_code:
                offsets[found.name, partition.partition_index] = _offset(context, request, partition, found)
                accepted.append(answer)
    if offsets:
        error = await _commit(context, request, offsets)
        for answer in accepted:
            answer.error_code = error
    return response


async def _find(context: Context, topic: OffsetCommitRequestTopic) -> Topic | ErrorCode:
    by_id = context.version >= _BY_ID
    if not by_id and not context.may(READ_TOPIC, topic.name):
        return READ_TOPIC.refusal
    last = max((partition.partition_index for partition in topic.partitions), default=-1)
    try:
        found = await find_topic(context, topic.name, last, topic.topic_id if by_id else None)
    except TopicsUnavailable:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if by_id and not context.may(READ_TOPIC, found.name):
        return READ_TOPIC.refusal
    return found


def _fault(context: Context, found: Topic | ErrorCode, partition: OffsetCommitRequestPartition) -> ErrorCode:
    """Why this partition cannot be committed to, if it cannot."""
    if not isinstance(found, Topic):
        return found
    if found.stream_of(partition.partition_index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return metadata_fault(partition.committed_metadata, context.services.groups.settings.largest_metadata)


def _offset(
    context: Context, request: OffsetCommitRequest, partition: OffsetCommitRequestPartition, topic: Topic
) -> CommittedOffset:
    return CommittedOffset.at(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
        context.services.runtime.wall_ms(),
        request.retention_time_ms if context.version <= _RETENTION_UNTIL else -1,
        topic.topic_id,
    )


async def _commit(
    context: Context, request: OffsetCommitRequest, offsets: dict[Place, CommittedOffset]
) -> ErrorCode:
    def commit_with(token: object) -> classic.CommitCheck:
        return classic.CommitCheck(
            token,
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            context.version,
            request.group_instance_id,
        )

    try:
        return await context.services.groups.commit(request.group_id, commit_with, offsets)
    except GroupUnavailable as refusal:
        return refusal.error
