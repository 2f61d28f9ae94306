"""DescribeTopicPartitions (75), version 0: topics and their partitions, page by page.

Topics come in the order of their names; none named means all. A page holds as many partitions as the request
and this broker allow, at least one; where there is more, the cursor says where to go on. A cursor with a
negative partition, or for a topic that the request does not name, is an INVALID_REQUEST of every topic named.
"""

from __future__ import annotations

from dray.base.runtime import map_some
from dray.broker.api.shared import Context, Routes, handles
from dray.broker.api.shared.checks import DESCRIBE_TOPIC, Denial
from dray.broker.topics import InvalidTopicName, Topic, TopicsUnavailable
from dray.broker.topics.names import check_name, is_internal
from dray.kafka.acls import AclResourceType
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@handles(DescribeTopicPartitionsRequest, 0, 0, checks={DESCRIBE_TOPIC: Denial.TOPIC})
async def handle(
    context: Context, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    everything = not request.topics
    topics = context.services.topics
    names = {topic.name for topic in request.topics} or {
        *(topic.name for topic in topics.all_cached()),
        *topics.unreadable(),
    }
    if not _is_valid(request, names):
        refused = [_refused(name, ErrorCode.INVALID_REQUEST) for name in sorted(names) if not everything]
        return DescribeTopicPartitionsResponse(topics=refused)
    cursor = request.cursor
    first, skip = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = context.services.settings.describe_partition_limit
    remaining = max(min(limit, request.response_partition_limit), 1)
    routes = Routes(context)
    response = DescribeTopicPartitionsResponse()
    asked = sorted(name for name in names if name >= first)
    may_see = context.sees if everything else context.may
    answers = await map_some(lambda name: may_see(DESCRIBE_TOPIC, name), asked)
    seen = [name for name, sees in zip(asked, answers, strict=True) if sees]
    for name in seen:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = await _find(context, name)
        if isinstance(topic, ErrorCode):
            if not everything or topic is ErrorCode.LEADER_NOT_AVAILABLE:
                response.topics.append(_refused(name, topic))
            continue
        begin = skip if name == first else 0
        end = min(begin + remaining, len(topic.streams))
        described = _describe(topic, begin, end, routes)
        described.topic_authorized_operations = context.operations(AclResourceType.TOPIC, name)
        response.topics.append(described)
        if end < len(topic.streams):
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(end - begin, 0)
    if not everything:
        visible = set(seen)
        response.topics += [_forbidden(name) for name in asked if name not in visible]
    return response


def _is_valid(request: DescribeTopicPartitionsRequest, names: set[str]) -> bool:
    cursor = request.cursor
    if cursor is None:
        return True
    return cursor.partition_index >= 0 and (not request.topics or cursor.topic_name in names)


async def _find(context: Context, name: str) -> Topic | ErrorCode:
    try:
        check_name(name)
        topic = await context.services.topics.get(name)
    except InvalidTopicName:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    except TopicsUnavailable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _forbidden(name: str) -> DescribeTopicPartitionsResponseTopic:
    """Whether it is there is not said, nor looked up."""
    return DescribeTopicPartitionsResponseTopic(error_code=DESCRIBE_TOPIC.refusal, name=name)


def _describe(topic: Topic, begin: int, end: int, routes: Routes) -> DescribeTopicPartitionsResponseTopic:
    replicas = routes.replicas(topic)
    partitions = []
    for index in range(begin, end):
        nodes = replicas(topic.streams[index])
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                partition_index=index,
                leader_id=nodes[0],
                leader_epoch=topic.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=partitions,
    )
