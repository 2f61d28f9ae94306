"""AlterPartitionReassignments (45), versions 0 and 1: replicas are where the object store has them.

The brokers that a partition lists are computed from the brokers that live, so a partition cannot be assigned.
A request for the brokers that it has already succeeds, and so does one that changes how many a topic shows:
fewer or more of them, as many for each of its partitions. Any other is an INVALID_REPLICA_ASSIGNMENT that
says so. No reassignment is ever under way: a cancellation is NO_REASSIGNMENT_IN_PROGRESS.

- v1: a request may say that the number must stay.
"""

from __future__ import annotations

from dray.base.runtime import map_some
from dray.broker.api.shared import Context, Routes, broker_ids, find_topic, handles, topic_error
from dray.broker.api.shared.checks import ALTER_CLUSTER, Denial
from dray.broker.topics import TopicError, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
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
        if allowed and (count := await _count_for_all(context, topic)) is not None:
            code, message = await _show(context, topic.name, count, request.allow_replication_factor_change)
            results = [_answer(each.partition_index, code, message) for each in topic.partitions]
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    return response


async def _count_for_all(context: Context, asked: ReassignableTopic) -> int | None:
    """How many replicas the topic is to show from now on, where each of its partitions is to have as many:
    some of those that it shows, its leader among them, or more. None where anything would have to move."""
    try:
        topic = await find_topic(context, asked.name, 0)
    except TopicsUnavailable:
        return None
    wanted = {each.partition_index: each.replicas or [] for each in asked.partitions}
    counts = {len(set(nodes)) for nodes in wanted.values()}
    if topic is None or wanted.keys() != set(range(len(topic.streams))) or len(counts) != 1:
        return None
    present = await map_some(Routes(context).replicas(topic), topic.streams)
    there = broker_ids(context)

    def fits(partition: int) -> bool:
        nodes, now = set(wanted[partition]), set(present[partition])
        return present[partition][0] in nodes and nodes <= there and (nodes < now or nodes > now)

    return counts.pop() if all(await map_some(fits, wanted)) else None


async def _show(context: Context, name: str, count: int, may_change: bool) -> tuple[ErrorCode, str | None]:
    if not may_change:
        return ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor would change."
    try:
        await context.services.topics.show_replicas(name, count)
    except TopicError as error:
        return topic_error(error), str(error)
    return ErrorCode.NONE, None


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
