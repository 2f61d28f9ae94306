"""DescribeProducers (61), version 0: the idempotent producers that each partition remembers.

The time of a producer is when its last batch was appended, where Kafka tells the batch's own time. There are
no transactions, so none has one open. A name that no topic can have is an INVALID_TOPIC_EXCEPTION. A
partition that is named twice is answered once.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, find_stream, handles, read_error
from dray.broker.api.shared.checks import READ_TOPIC, Denial
from dray.broker.topics import InvalidTopicName
from dray.broker.topics.names import check_name
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dray.log.types import LogError

_AT_A_TIME: Final = 8
"""A partition may have thousands of producers."""


@handles(DescribeProducersRequest, 0, 0, checks={READ_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    response = DescribeProducersResponse()
    for name, partitions in asked.items():
        work = (_describe(context, name, index) for index in partitions)
        described = await context.large.gather(work, _AT_A_TIME)
        if len(asked) > 1:
            await context.large.write(described)
        response.topics.append(TopicResponse(name=name, partitions=described))
    return response


async def _describe(context: Context, name: str, partition: int) -> PartitionResponse:
    try:
        check_name(name)
    except InvalidTopicName as error:
        return _failed(partition, ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
    if not context.may(READ_TOPIC, name):
        return _failed(partition, READ_TOPIC.refusal, READ_TOPIC.reason)
    stream = await find_stream(context, name, partition)
    if isinstance(stream, ErrorCode):
        return _failed(partition, stream, None)
    try:
        producers = await context.services.log.producers(stream)
    except LogError as error:
        context.cannot_read(f"{name}-{partition}", error)
        return _failed(partition, read_error(error), str(error))
    return PartitionResponse(
        partition_index=partition,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_ms,
                coordinator_epoch=-1,
            )
            for producer in producers
        ],
    )


def _failed(partition: int, code: ErrorCode, message: str | None) -> PartitionResponse:
    return PartitionResponse(partition_index=partition, error_code=code, error_message=message)
