"""OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ended.

Nothing that was committed is ever truncated, so no epoch up to the topic's has an end below the log's: asked
for one, the answer is that epoch and the high watermark. With any lower end, a consumer of Java or librdkafka
would take its position for truncated and go back or reset. A topic has one epoch, mostly 0; consumers of a
log that began elsewhere come with earlier ones. Of a later epoch nothing is known here, which is answered
with -1 for both, as in Kafka: a consumer that comes with one has read another log. Only a client that claims
to know a later epoch as current is refused, with UNKNOWN_LEADER_EPOCH.

A log that another cluster still owns ends there, not where its mirror is: a consumer that comes from there is
ahead of that, and would take it for truncated. So it is told an end that no position is behind.
"""

from __future__ import annotations

import asyncio
from typing import Final

from dray.api.shared import Context, find_leading, forget_closed, handles, read_error
from dray.api.shared.checks import ACT_FOR_CLUSTER, DESCRIBE_TOPIC, Denial
from dray.log.types import LogError, StreamClosed
from dray.protocol import ErrorCode
from dray.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)

_ENDS_ELSEWHERE: Final = (1 << 63) - 1


@handles(
    OffsetForLeaderEpochRequest,
    2,
    4,
    checks={ACT_FOR_CLUSTER: Denial.OTHERWISE, DESCRIBE_TOPIC: Denial.PARTITION},
)
async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=list(await asyncio.gather(*(_look_up(context, topic) for topic in request.topics)))
    )


async def _look_up(context: Context, topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
    if not context.sees(ACT_FOR_CLUSTER) and not context.may(DESCRIBE_TOPIC, topic.topic):
        refused = [
            EpochEndOffset(partition=partition.partition, error_code=DESCRIBE_TOPIC.refusal)
            for partition in topic.partitions
        ]
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=refused)
    ends = await asyncio.gather(*(_end(context, topic.topic, partition) for partition in topic.partitions))
    return OffsetForLeaderTopicResult(topic=topic.topic, partitions=list(ends))


async def _end(context: Context, name: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    found = await find_leading(context, name, partition.partition)
    if isinstance(found, ErrorCode):
        return EpochEndOffset(partition=partition.partition, error_code=found)
    stream, epoch = found
    if partition.current_leader_epoch > epoch:
        return EpochEndOffset(partition=partition.partition, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    try:
        bounds = await context.services.log.bounds(stream)
    except LogError as error:
        if isinstance(error, StreamClosed):
            await forget_closed(context, name)
        return EpochEndOffset(partition=partition.partition, error_code=read_error(error))
    if not 0 <= partition.leader_epoch <= epoch:
        return EpochEndOffset(partition=partition.partition, leader_epoch=-1, end_offset=-1)
    origin = context.services.log.origin(stream)
    end = _ENDS_ELSEWHERE if origin is not None and origin.is_classic else bounds.end
    return EpochEndOffset(partition=partition.partition, leader_epoch=partition.leader_epoch, end_offset=end)
