"""CreateTopics (19), versions 2 to 7.

Each topic is created or refused by itself, with Kafka's codes and texts; a name that the request holds twice
is an INVALID_REQUEST. Replication factors and manual assignments (to live brokers) are checked for sense. How
many replicas are asked for is remembered and shown, as far as there are brokers, so that tools find what they
asked for; what replicates is the object store. Validate-only goes through every check and creates nothing. A
creation that outlasts the request's timeout is REQUEST_TIMED_OUT, and goes on. A quota counts partitions.

- v5: the answer describes the topic and its configs, to a client that may describe those.
- v6: what is above the client's quota is refused. Before, it is done, and the client waits.
- v7: the answer has the topic's id.
"""

from __future__ import annotations

from dray.base.runtime import gather_some
from dray.broker.api.shared import (
    Context,
    Routes,
    broker_ids,
    describe_created,
    handles,
    repeated,
    topic_error,
)
from dray.broker.api.shared.checks import CREATE_IN_CLUSTER, CREATE_TOPIC, DESCRIBE_TOPIC_CONFIGS, Denial
from dray.broker.api.shared.partitions import may_create
from dray.broker.api.shared.quotas import EXCEEDED, MutationQuota
from dray.broker.topics import NewTopic, TopicError
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


@handles(
    CreateTopicsRequest,
    2,
    7,
    checks={
        CREATE_IN_CLUSTER: Denial.OTHERWISE,
        CREATE_TOPIC: Denial.TOPIC,
        DESCRIBE_TOPIC_CONFIGS: Denial.FIELD,
    },
)
async def handle(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    twice = repeated(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if topic.name not in twice]
    quota = MutationQuota(context, strict_since=6)
    results = await gather_some(_create(context, request, topic, quota) for topic in once)
    refused = [_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in sorted(twice)]
    return CreateTopicsResponse(topics=[*results, *refused])


async def _create(
    context: Context, request: CreateTopicsRequest, topic: CreatableTopic, quota: MutationQuota
) -> CreatableTopicResult:
    if not may_create(context, topic.name):
        return _failed(topic.name, CREATE_TOPIC.refusal, "Authorization failed.")
    topics = context.services.topics
    new = NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )
    try:
        if quota.applies:
            checked = await topics.create(new, known_brokers=broker_ids(context), validate_only=True)
            if not quota.admits(len(checked.streams)):
                return _failed(topic.name, *EXCEEDED)
        created = await context.within(
            request.timeout_ms,
            topics.create(new, known_brokers=broker_ids(context), validate_only=request.validate_only),
        )
    except TimeoutError:
        return _failed(topic.name, ErrorCode.REQUEST_TIMED_OUT, "It takes longer than the timeout.")
    except TopicError as error:
        return _failed(topic.name, topic_error(error), str(error))
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=ZERO_UUID if request.validate_only else created.topic_id,
        error_message=None,
    )
    if not context.sees(DESCRIBE_TOPIC_CONFIGS, topic.name):
        result.topic_config_error_code = DESCRIBE_TOPIC_CONFIGS.refusal
        return result
    result.num_partitions = len(created.streams)
    result.replication_factor = Routes(context).replication_factor(created.replication_factor)
    result.configs = describe_created(created, topics.options.defaults)
    return result


def _failed(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)
