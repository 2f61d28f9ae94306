"""CreatePartitions (37), versions 0 to 3: give a topic more partitions.

The partitions it has keep their streams. A count that is no increase, or beyond what a topic may have, is
INVALID_PARTITIONS, and so is any for a topic that another cluster owns. Assignments are checked for their
number and for live brokers, and not used. A topic named twice is an INVALID_REQUEST. Validate-only checks and
changes nothing.

- v3: what is above the client's quota is refused. Before, it is done, and the client waits.
"""

from __future__ import annotations

from dray.base.runtime import gather_some
from dray.broker.api.shared import Context, broker_ids, handles, repeated, topic_error
from dray.broker.api.shared.checks import ALTER_TOPIC, Denial
from dray.broker.api.shared.quotas import EXCEEDED, MutationQuota
from dray.broker.topics import TopicError
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@handles(CreatePartitionsRequest, 0, 3, checks={ALTER_TOPIC: Denial.TOPIC})
async def handle(context: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    twice = repeated(topic.name for topic in request.topics)
    once = [topic for topic in request.topics if topic.name not in twice]
    quota = MutationQuota(context, strict_since=3)
    results = await gather_some(_create(context, request, topic, quota) for topic in once)
    refused = [_failed(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in sorted(twice)]
    return CreatePartitionsResponse(results=[*results, *refused])


async def _create(
    context: Context, request: CreatePartitionsRequest, topic: CreatePartitionsTopic, quota: MutationQuota
) -> CreatePartitionsTopicResult:
    if not context.may(ALTER_TOPIC, topic.name):
        return _failed(topic.name, ALTER_TOPIC.refusal, None)
    assignments = (
        None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
    )
    try:
        linked = context.services.linked
        if linked is not None and await linked.has_owner(topic.name):
            text = (
                f"Topic '{topic.name}' has the partitions of the cluster that owns it, until it is switched."
            )
            return _failed(topic.name, ErrorCode.INVALID_PARTITIONS, text)
        if quota.applies:
            before = await context.services.topics.add_partitions(
                topic.name, topic.count, assignments, known_brokers=broker_ids(context), validate_only=True
            )
            if not quota.admits(topic.count - len(before.streams)):
                return _failed(topic.name, *EXCEEDED)
        await context.within(
            request.timeout_ms,
            context.services.topics.add_partitions(
                topic.name,
                topic.count,
                assignments,
                known_brokers=broker_ids(context),
                validate_only=request.validate_only,
            ),
        )
    except TimeoutError:
        return _failed(topic.name, ErrorCode.REQUEST_TIMED_OUT, "It takes longer than the timeout.")
    except TopicError as error:
        return _failed(topic.name, topic_error(error), str(error))
    return CreatePartitionsTopicResult(name=topic.name)


def _failed(name: str, code: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=code, error_message=message)
