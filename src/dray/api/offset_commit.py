"""OffsetCommit (8), versions 2 to 10: how far a group has read.

Done when it is stored. From v10 topics are named by their ids (UNKNOWN_TOPIC_ID where there is none). The
generation is that of a classic member, or the epoch of a KIP-848 one (from v9); -1 commits for a group
without members, and makes a simple group where there is none. Refused partition by partition: topics and
partitions that do not exist, metadata that is too large. Refused as a whole: members, generations and epochs
that are not the group's.
"""

from __future__ import annotations

from typing import Final

from dray.api.context import Context
from dray.api.handler import handles
from dray.api.partitions import find_topic
from dray.groups import classic
from dray.groups.coordinator import Place, Refused
from dray.groups.offsets import CommittedOffset, metadata_fault
from dray.protocol import ErrorCode
from dray.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dray.topics import Topic, TopicsUnavailable

_BY_ID: Final = 10
_RETENTION_UNTIL: Final = 4


@handles(OffsetCommitRequest, 2, 10)
async def handle(context: Context, request: OffsetCommitRequest) -> OffsetCommitResponse:
    offsets: dict[Place, CommittedOffset] = {}
    response = OffsetCommitResponse()
    accepted: list[OffsetCommitResponsePartition] = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            found = await _find(context, topic, partition)
            if isinstance(found, ErrorCode):
                answer.error_code = found
            else:
                place = (found.name, partition.partition_index)
                offsets[place] = _offset(context, request, partition)
                accepted.append(answer)
            answers.append(answer)
        response.topics.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, answers))
    if offsets:
        error = await _commit(context, request, offsets)
        for answer in accepted:
            answer.error_code = error
    return response


async def _find(
    context: Context, topic: OffsetCommitRequestTopic, partition: OffsetCommitRequestPartition
) -> Topic | ErrorCode:
    """The topic of a partition that may be committed to, or why it may not."""
    by_id = context.version >= _BY_ID
    index = partition.partition_index
    try:
        found = await find_topic(context, topic.name, index, topic.topic_id if by_id else None)
    except TopicsUnavailable:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if found is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if found is None or found.stream_of(index) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fault = metadata_fault(partition.committed_metadata, context.services.groups.settings.largest_metadata)
    return found if fault is ErrorCode.NONE else fault


def _offset(
    context: Context, request: OffsetCommitRequest, partition: OffsetCommitRequestPartition
) -> CommittedOffset:
    return CommittedOffset.at(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata,
        context.services.runtime.wall_ms(),
        request.retention_time_ms if context.version <= _RETENTION_UNTIL else -1,
    )


async def _commit(
    context: Context, request: OffsetCommitRequest, offsets: dict[Place, CommittedOffset]
) -> ErrorCode:
    def commit_with(token: object) -> classic.Commit:
        return classic.Commit(
            token,
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            context.version,
            request.group_instance_id,
        )

    try:
        return await context.services.groups.commit(request.group_id, commit_with, offsets)
    except Refused as refusal:
        return refusal.error
