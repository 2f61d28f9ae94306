"""Metadata (3), versions 0 to 13: the brokers, and the topics with their partitions' leaders.

- No list of topics means all of them.
- A topic that is there and that this build cannot read is named with LEADER_NOT_AVAILABLE, also among all.
- A topic that the client may not describe is TOPIC_AUTHORIZATION_FAILED, be it there or not, without an id;
  asked for by its id, without a name; among all, it is left out. So is one that it may not create.
- An unknown topic is created with the broker's defaults if broker and request allow it, and the answer
  already describes it. Otherwise UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for a name that no
  topic can have, and for those in which Kafka keeps its own state: on that code clients stop and say so,
  where they would go on asking for a topic that is unknown.
- Every broker serves every partition. The leader named is the broker with affinity for the partition's
  domain, in the client's zone. The object store replicates; the replicas named are as many as were asked for,
  the leaders of other zones first, where a consumer may be sent by its rack. The leader epoch is always 0.
- A client that names its zone in its `client.id` sees the brokers of that zone, if there are any, and one of
  each other zone, which leads nothing: the client can ask it when its own zone fails. `routing.strict_zones`
  leaves those out.
- The controller named is this broker, or else one that the client sees: any can do what controllers do.

Versions:

- v0: an empty list of topics means all of them.
- v4: the request says whether a topic may be created.
- v8: authorized operations, where a client asks for them.
- v10: the answer has the topics' ids. A request by id is an INVALID_REQUEST.
- v12: topics may be asked for by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dray.base.runtime import gather_some
from dray.broker.api.shared import Context, Routes, handles, topic_error
from dray.broker.api.shared.checks import (
    CREATE_IN_CLUSTER,
    CREATE_TOPIC,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC,
    Denial,
)
from dray.broker.api.shared.partitions import may_create
from dray.broker.api.shared.quotas import NEVER_STRICT, MutationQuota
from dray.broker.topics import InvalidTopicName, Topic, TopicError, TopicsUnavailable
from dray.broker.topics.names import check_name, check_not_internal, is_internal
from dray.kafka.acls import AclResourceType
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PARTS_A_TURN: Final = 500
"""Topics and partitions: some milliseconds."""

_BY_ID: Final = 12
_EXPLAINED: Final = "topics of Kafka itself that were asked for"


@handles(
    MetadataRequest,
    0,
    13,
    checks={
        DESCRIBE_TOPIC: Denial.TOPIC,
        CREATE_IN_CLUSTER: Denial.OTHERWISE,
        CREATE_TOPIC: Denial.TOPIC,
        DESCRIBE_CLUSTER: Denial.FIELD,
    },
)
async def handle(context: Context, request: MetadataRequest) -> MetadataResponse:
    services = context.services
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        found: list[Topic | MetadataResponseTopic] = [
            topic for topic in services.topics.all_cached() if context.sees(DESCRIBE_TOPIC, topic.name)
        ]
        found += [
            _unknown(ErrorCode.LEADER_NOT_AVAILABLE, name)
            for name in services.topics.unreadable()
            if context.sees(DESCRIBE_TOPIC, name)
        ]
    else:
        found = await _find_all(context, request, asked)
    routes = Routes(context)
    with_operations = request.include_topic_authorized_operations
    topics: list[MetadataResponseTopic] = []
    for some in _in_steps(found):
        described = [_described(context, one, routes, with_operations) for one in some]
        if len(some) < len(found):
            await context.large.write(described)
        topics += described
    response = MetadataResponse(
        brokers=_brokers(context, routes),
        cluster_id=services.cluster.cluster_id,
        controller_id=routes.controller,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = (
            context.operations(AclResourceType.CLUSTER) if context.may(DESCRIBE_CLUSTER) else 0
        )
    return response


def _in_steps(
    found: list[Topic | MetadataResponseTopic],
) -> Iterator[list[Topic | MetadataResponseTopic]]:
    """As many as are described in one turn of the event loop."""
    step: list[Topic | MetadataResponseTopic] = []
    parts = 0
    for one in found:
        step.append(one)
        parts += 1 + (len(one.streams) if isinstance(one, Topic) else 0)
        if parts >= PARTS_A_TURN:
            yield step
            step, parts = [], 0
    if step:
        yield step


def _brokers(context: Context, routes: Routes) -> list[MetadataResponseBroker]:
    brokers = []
    for broker in routes.brokers():
        listener = broker.at(context.connection.listener)
        brokers.append(
            MetadataResponseBroker(
                node_id=broker.broker_id, host=listener.host, port=listener.port, rack=broker.rack
            )
        )
    return brokers


async def _find_all(
    context: Context, request: MetadataRequest, asked: list[MetadataRequestTopic]
) -> list[Topic | MetadataResponseTopic]:
    """Find the topics that were asked for, each once. As in Kafka, if any is asked for by id, those asked for
    by name are ignored."""
    by_id = {one.topic_id: one for one in asked if one.topic_id != ZERO_UUID}
    if by_id and context.version >= _BY_ID:
        return await gather_some(_find_by_id(context, one) for one in by_id.values())
    by_name = {one.name: one for one in asked}
    return await gather_some(_find(context, request, one) for one in by_name.values())


async def _find(
    context: Context, request: MetadataRequest, asked: MetadataRequestTopic
) -> Topic | MetadataResponseTopic:
    """A topic by its name, created if need be."""
    topics, name = context.services.topics, asked.name
    if name is None or (context.version < _BY_ID and asked.topic_id != ZERO_UUID):
        return _unknown(ErrorCode.INVALID_REQUEST, name or "")
    if not context.may(DESCRIBE_TOPIC, name):
        return MetadataResponseTopic(error_code=DESCRIBE_TOPIC.refusal, name=name)
    creates = context.services.topics.options.auto_create and request.allow_auto_topic_creation
    try:
        topic = topics.cached(name)
        if topic is None:
            check_name(name)
            topic = await topics.refresh(name)
        if topic is None and creates and not may_create(context, name):
            return _unknown(CREATE_TOPIC.refusal, name)
        if topic is None:
            check_not_internal(name)
        if topic is None and creates:
            topic = await topics.ensure(name)
            MutationQuota(context, strict_since=NEVER_STRICT).admits(len(topic.streams))
    except TopicsUnavailable as error:
        context.logger().warning("a topic could not be looked up", topic=name, error=str(error))
        return _unknown(ErrorCode.LEADER_NOT_AVAILABLE, name)  # clients ask again, after a pause
    except TopicError as error:
        if isinstance(error, InvalidTopicName) and creates and not may_create(context, name):
            return _unknown(CREATE_TOPIC.refusal, name)
        if is_internal(name):
            _explain(context, name, error)
        return _unknown(topic_error(error), name)
    return _unknown(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name) if topic is None else topic


def _explain(context: Context, name: str, error: TopicError) -> None:
    """Log why a topic was refused, since the answer has only a code. Logged once, as some clients keep
    asking."""
    explained = context.connection.state.setdefault(_EXPLAINED, set())
    if name not in explained:
        explained.add(name)
        context.logger().info("a topic that only Kafka has was asked for", topic=name, reason=str(error))


async def _find_by_id(context: Context, asked: MetadataRequestTopic) -> Topic | MetadataResponseTopic:
    """A topic by its id. It is never created: an id is of one topic only."""
    try:
        topic = await context.services.topics.get_by_id(asked.topic_id)
    except TopicsUnavailable:
        return MetadataResponseTopic(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE, name=None, topic_id=asked.topic_id
        )
    if topic is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
        )
    if not context.may(DESCRIBE_TOPIC, topic.name):
        return MetadataResponseTopic(error_code=DESCRIBE_TOPIC.refusal, name=None, topic_id=asked.topic_id)
    return topic


def _unknown(code: ErrorCode, name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name))


def _described(
    context: Context, found: Topic | MetadataResponseTopic, routes: Routes, with_operations: bool
) -> MetadataResponseTopic:
    topic = _describe(found, routes) if isinstance(found, Topic) else found
    if with_operations and topic.name is not None and topic.error_code != DESCRIBE_TOPIC.refusal:
        topic.topic_authorized_operations = context.operations(AclResourceType.TOPIC, topic.name)
    return topic


def _describe(topic: Topic, routes: Routes) -> MetadataResponseTopic:
    replicas = routes.replicas(topic)
    partitions = []
    for index, stream in enumerate(topic.streams):
        nodes = replicas(stream)
        partitions.append(
            MetadataResponsePartition(
                partition_index=index,
                leader_id=nodes[0],
                leader_epoch=topic.leader_epoch,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
        )
    return MetadataResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
    )
