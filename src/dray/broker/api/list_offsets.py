"""ListOffsets (2), versions 1 to 11: the offset that goes with a time, or with a name for one.

A time stands for the first record at or after it; offset -1 where there is none. These are names:

- -1: the end, which is the high watermark whatever the isolation level: there are no transactions.
- -2: the start.
- -3 (v7): the record with the largest timestamp.
- -4 (v8): the start of what is local, which is the start; of an attached topic, where its source's tier ends.
- -5 (v9): the last offset that is tiered: that of an attached topic. Nothing else is: offset -1.
- -6 (v11): the start of what is yet to be tiered. Nothing is: offset -1.

A name that a version does not know is UNSUPPORTED_VERSION; a partition named twice is INVALID_REQUEST. A
store that is away is KAFKA_STORAGE_ERROR, on which clients ask again; damage is CORRUPT_MESSAGE, on which
most do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from itertools import islice
from typing import Final

from dray.base.runtime import gather_some, map_some
from dray.broker.api.shared import (
    Context,
    find_leading,
    forget_closed,
    handles,
    is_told_elsewhere,
    read_error,
    repeated,
)
from dray.broker.api.shared.checks import DESCRIBE_TOPIC, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.log.types import LogError, StreamClosed


class _Named(IntEnum):
    """Timestamps that are names."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_KNOWN_FROM: Final[Mapping[int, int]] = {
    _Named.LATEST: 1,
    _Named.EARLIEST: 1,
    _Named.MAX_TIMESTAMP: 7,
    _Named.EARLIEST_LOCAL: 8,
    _Named.LATEST_TIERED: 9,
    _Named.EARLIEST_PENDING_UPLOAD: 11,
}

_KNOWS_STORAGE_ERROR: Final = 4


@handles(ListOffsetsRequest, 1, 11, checks={DESCRIBE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
    twice = repeated(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )

    names = list(dict.fromkeys(topic.name for topic in request.topics))
    allowed = dict(
        zip(names, await map_some(lambda name: context.may(DESCRIBE_TOPIC, name), names), strict=True)
    )

    async def one(name: str, partition: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        if not allowed[name]:
            return _failed(partition, DESCRIBE_TOPIC.refusal)
        if (name, partition.partition_index) in twice:
            return _failed(partition, ErrorCode.INVALID_REQUEST)
        return await _look_up(context, name, partition)

    found = iter(
        await gather_some(one(topic.name, asked) for topic in request.topics for asked in topic.partitions)
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=topic.name, partitions=list(islice(found, len(topic.partitions))))
            for topic in request.topics
        ]
    )


async def _look_up(
    context: Context, name: str, partition: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    if partition.timestamp < 0 and context.version < _KNOWN_FROM.get(partition.timestamp, 99):
        return _failed(partition, ErrorCode.UNSUPPORTED_VERSION)
    found = await find_leading(context, name, partition.partition_index)
    if isinstance(found, ErrorCode):
        return _failed(partition, found)
    stream, epoch = found
    if partition.current_leader_epoch > epoch:
        return _failed(partition, ErrorCode.UNKNOWN_LEADER_EPOCH)
    try:
        offset, timestamp = await _offset_for(context, stream, partition.timestamp)
    except StreamClosed:
        await forget_closed(context, name)
        return _failed(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except LogError as error:
        log = context.logger()
        is_told = context.cannot_read(f"{name}-{partition.partition_index}", error)
        say = log.debug if is_told or is_told_elsewhere(error) else log.warning
        say("an offset could not be looked up", stream=stream, error=str(error))
        code = read_error(error, knows_storage_error=context.version >= _KNOWS_STORAGE_ERROR)
        return _failed(partition, code)
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=-1 if offset < 0 else epoch,
    )


async def _offset_for(context: Context, stream: int, timestamp: int) -> tuple[int, int]:
    """The offset and its record's timestamp, -1 for either where there is none."""
    log = context.services.log
    match timestamp:
        case _Named.LATEST:
            return (await log.bounds(stream)).end, -1
        case _Named.EARLIEST:
            return (await log.bounds(stream)).start, -1
        case _Named.EARLIEST_LOCAL | _Named.LATEST_TIERED:
            start, origin = (await log.bounds(stream)).start, log.origin(stream)
            tier_end = -1 if origin is None else origin.tier_end
            if timestamp == _Named.EARLIEST_LOCAL:
                return max(start, tier_end), -1
            return tier_end - 1 if tier_end > start else -1, -1
        case _Named.EARLIEST_PENDING_UPLOAD:
            return -1, -1
        case _Named.MAX_TIMESTAMP:
            found = await log.find_max_timestamp(stream)
        case _:
            found = await log.find_timestamp(stream, timestamp)
    return (-1, -1) if found is None else (found.offset, found.timestamp)


def _failed(partition: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
