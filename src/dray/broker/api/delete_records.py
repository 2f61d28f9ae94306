"""DeleteRecords (21), versions 0 to 2: move the start of partitions forward.

Offset -1 means up to the high watermark; one beyond it, or any other negative one, is OFFSET_OUT_OF_RANGE. A
topic that is only compacted does not let its records be deleted (POLICY_VIOLATION), as in Kafka. Nor does one
that another cluster still owns: they would go here and stay there. That code, as clients do not try it again.
A partition that is named twice is done and answered once, with its last offset, as in Kafka.
"""

from __future__ import annotations

from itertools import islice

from dray.base.runtime import gather_some, map_some
from dray.broker.api.shared import Context, find_stream, forget_closed, handles, read_error
from dray.broker.api.shared.checks import DELETE_TOPIC, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from dray.log.origins import SourceOwnsLog
from dray.log.types import LogError, LogUnavailable, StreamClosed


@handles(DeleteRecordsRequest, 0, 2, checks={DELETE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update({one.partition_index: one for one in topic.partitions})
    may_delete = await map_some(lambda name: context.may(DELETE_TOPIC, name), asked)
    allowed = dict(zip(asked, may_delete, strict=True))

    async def delete(name: str, partition: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        if not allowed[name]:
            return DeleteRecordsPartitionResult(partition.partition_index, -1, DELETE_TOPIC.refusal)
        return await _delete_partition(context, request, name, partition)

    results = iter(
        await gather_some(
            delete(name, one) for name, partitions in asked.items() for one in partitions.values()
        )
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=name, partitions=list(islice(results, len(partitions))))
            for name, partitions in asked.items()
        ]
    )


async def _delete_partition(
    context: Context, request: DeleteRecordsRequest, name: str, partition: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    def failed(code: ErrorCode) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=partition.partition_index, low_watermark=-1, error_code=code
        )

    stream = await find_stream(context, name, partition.partition_index)
    if isinstance(stream, ErrorCode):
        return failed(stream)
    topic = context.services.topics.cached(name)
    if topic is not None and topic.settings.compacts and not topic.settings.deletes:
        return failed(ErrorCode.POLICY_VIOLATION)
    if partition.offset < -1:
        return failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        start = await context.within(
            request.timeout_ms, context.services.log.delete_records(stream, partition.offset)
        )
    except TimeoutError:
        return failed(ErrorCode.REQUEST_TIMED_OUT)
    except StreamClosed:
        await forget_closed(context, name)
        return failed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except SourceOwnsLog:
        return failed(ErrorCode.POLICY_VIOLATION)
    except LogUnavailable as error:
        context.logger().warning("records were not deleted", topic=name, error=str(error))
        return failed(ErrorCode.REQUEST_TIMED_OUT)  # it may have been done; asking again does no harm
    except LogError as error:
        return failed(read_error(error))
    return DeleteRecordsPartitionResult(partition_index=partition.partition_index, low_watermark=start)
