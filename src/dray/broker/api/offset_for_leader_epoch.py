"""OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ended.

Nothing that was committed is ever truncated but by a restore of earlier metadata, which begins an epoch
(`log/life/lifecycle.py`). So no epoch from the last restore on has an end below the log's: asked for one, the
answer is that epoch and the high watermark. With any lower end, a consumer of Java or librdkafka takes its
position for truncated and goes back or resets, as it should after a restore. A topic has one epoch, mostly
0; consumers of a log that began elsewhere come with earlier ones. Of a later epoch nothing is known here,
which is answered with -1 for both, as in Kafka: a consumer that comes with one has read another log. Only a
client that claims to know a later epoch as current is refused, with UNKNOWN_LEADER_EPOCH.

A log that another cluster still owns ends there, not where its mirror is: a consumer that comes from there is
ahead of that, and would take it for truncated. So it is told an end that no position is behind.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from dray.base.runtime import gather_some, map_some
from dray.broker.api.shared import Context, find_leading, forget_closed, handles, read_error
from dray.broker.api.shared.checks import ACT_FOR_CLUSTER, DESCRIBE_TOPIC, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from dray.log.types import LogError, StreamClosed

_ENDS_ELSEWHERE: Final = (1 << 63) - 1


@handles(
    OffsetForLeaderEpochRequest,
    2,
    4,
    checks={ACT_FOR_CLUSTER: Denial.OTHERWISE, DESCRIBE_TOPIC: Denial.PARTITION},
)
async def handle(context: Context, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    names = list(dict.fromkeys(topic.topic for topic in request.topics))
    allowed = dict(zip(names, await map_some(lambda name: _may_describe(context, name), names), strict=True))
    ends = iter(
        await gather_some(
            _end(context, topic.topic, partition, allowed[topic.topic])
            for topic in request.topics
            for partition in topic.partitions
        )
    )
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=list(islice(ends, len(topic.partitions)))
            )
            for topic in request.topics
        ]
    )


def _may_describe(context: Context, name: str) -> bool:
    return context.sees(ACT_FOR_CLUSTER) or context.may(DESCRIBE_TOPIC, name)


async def _end(
    context: Context, name: str, partition: OffsetForLeaderPartition, allowed: bool
) -> EpochEndOffset:
    if not allowed:
        return EpochEndOffset(partition=partition.partition, error_code=DESCRIBE_TOPIC.refusal)
    found = await find_leading(context, name, partition.partition)
    if isinstance(found, ErrorCode):
        return EpochEndOffset(partition=partition.partition, error_code=found)
    stream, epoch = found
    if partition.current_leader_epoch > epoch:
        return EpochEndOffset(partition=partition.partition, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH)
    try:
        bounds = await context.services.log.bounds(stream)
        end = await context.services.log.end_of_epoch(stream, partition.leader_epoch, bounds.end)
    except LogError as error:
        if isinstance(error, StreamClosed):
            await forget_closed(context, name)
        return EpochEndOffset(partition=partition.partition, error_code=read_error(error))
    if not 0 <= partition.leader_epoch <= epoch:
        return EpochEndOffset(partition=partition.partition, leader_epoch=-1, end_offset=-1)
    origin = context.services.log.origin(stream)
    if origin is not None and origin.is_classic:
        end = _ENDS_ELSEWHERE
    return EpochEndOffset(partition=partition.partition, leader_epoch=partition.leader_epoch, end_offset=end)
