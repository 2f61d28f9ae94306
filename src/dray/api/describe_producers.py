"""DescribeProducers (61), version 0: the idempotent producers that each partition remembers.

The time of a producer is when its last batch was appended, where Kafka tells the batch's own time. There are
no transactions, so none has one open. A name that no topic can have is an INVALID_TOPIC_EXCEPTION.
"""

from __future__ import annotations

from dray.api.shared import Context, find_stream, handles, read_error
from dray.api.shared.checks import READ_TOPIC, Denial
from dray.log.types import LogError
from dray.protocol import ErrorCode
from dray.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dray.topics import InvalidTopicName
from dray.topics.names import check_name


@handles(DescribeProducersRequest, 0, 0, checks={READ_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: DescribeProducersRequest) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        described = [await _describe(context, topic.name, index) for index in topic.partition_indexes]
        response.topics.append(TopicResponse(name=topic.name, partitions=described))
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
