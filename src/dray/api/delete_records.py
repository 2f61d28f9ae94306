"""DeleteRecords (21), versions 0 to 2: move the start of partitions forward.

Offset -1 means up to the high watermark; one beyond it, or any other negative one, is OFFSET_OUT_OF_RANGE. A
topic that is only compacted does not let its records be deleted (POLICY_VIOLATION), as in Kafka. Nor does one
that another cluster still owns: they would go here and stay there. That code, as clients do not try it again.
"""

from __future__ import annotations

import asyncio

from dray.api.shared import Context, find_stream, forget_closed, handles, read_error
from dray.api.shared.checks import DELETE_TOPIC, Denial
from dray.log.origins import SourceOwnsLog
from dray.log.types import LogError, LogUnavailable, StreamClosed
from dray.protocol import ErrorCode
from dray.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)


@handles(DeleteRecordsRequest, 0, 2, checks={DELETE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=list(await asyncio.gather(*(_delete(context, request, topic) for topic in request.topics)))
    )


async def _delete(
    context: Context, request: DeleteRecordsRequest, topic: DeleteRecordsTopic
) -> DeleteRecordsTopicResult:
    if not context.may(DELETE_TOPIC, topic.name):
        refused = [
            DeleteRecordsPartitionResult(partition.partition_index, -1, DELETE_TOPIC.refusal)
            for partition in topic.partitions
        ]
        return DeleteRecordsTopicResult(name=topic.name, partitions=refused)
    results = await asyncio.gather(
        *(_delete_partition(context, request, topic.name, partition) for partition in topic.partitions)
    )
    return DeleteRecordsTopicResult(name=topic.name, partitions=list(results))


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
