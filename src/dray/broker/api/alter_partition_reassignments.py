"""AlterPartitionReassignments (45), versions 0 and 1: replicas are where the object store has them.

The brokers that a partition lists are computed from the brokers that live, so a partition cannot be assigned.
A request for the brokers that it has already succeeds; any other is an INVALID_REPLICA_ASSIGNMENT that says
so. No reassignment is ever under way: a cancellation is NO_REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from dray.broker.api.shared import Context, Routes, find_topic, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.broker.topics import TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(AlterPartitionReassignmentsRequest, 0, 1, checks={ALTER_CLUSTER: Denial.REQUEST})
async def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    allowed = context.may(ALTER_CLUSTER)
    if not allowed:
        response.error_code, response.error_message = ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason
    for topic in request.topics:
        results = [
            await _reassign(context, topic.name, partition)
            if allowed
            else _answer(partition.partition_index, ALTER_CLUSTER.refusal, ALTER_CLUSTER.reason)
            for partition in topic.partitions
        ]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    return response


async def _reassign(
    context: Context, name: str, partition: ReassignablePartition
) -> ReassignablePartitionResponse:
    index = partition.partition_index
    try:
        topic = await find_topic(context, name, index)
    except TopicsUnavailable as error:
        return _answer(index, ErrorCode.REQUEST_TIMED_OUT, str(error))
    stream = None if topic is None else topic.stream_of(index)
    if topic is None or stream is None:
        return _answer(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such partition.")
    if partition.replicas is None:
        return _answer(index, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "Nothing is being reassigned.")
    present = Routes(context).replicas(topic)(stream)
    if partition.replicas == present:
        return _answer(index, ErrorCode.NONE, None)
    return _answer(
        index,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"Partitions cannot be assigned: the object store holds the records, and which brokers serve a "
        f"partition follows from which there are (now {present}).",
    )


def _answer(partition: int, code: ErrorCode, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(partition_index=partition, error_code=code, error_message=message)
