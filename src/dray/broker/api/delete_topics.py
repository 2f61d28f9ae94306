"""DeleteTopics (20), versions 1 to 6.

When a topic is answered as deleted its streams are closed: no broker can acknowledge a record into it any
more, and one of the same name may be created at once. A deletion that outlasts the request's timeout is
REQUEST_TIMED_OUT, and goes on. A topic named twice is an INVALID_REQUEST.

- v5: what is above the client's quota of partitions is refused. Before, it is done, and the client waits.
- v6: a topic may be named by its id. Both or neither of name and id is an INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any
from uuid import UUID

from dray.base.runtime import gather_some
from dray.broker.api.shared import Context, handles, repeated, topic_error
from dray.broker.api.shared.checks import DELETE_IN_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC, Denial
from dray.broker.api.shared.quotas import EXCEEDED, MutationQuota
from dray.broker.topics import Topic, TopicError, TopicsUnavailable
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


@handles(
    DeleteTopicsRequest,
    1,
    6,
    checks={
        DELETE_IN_CLUSTER: Denial.OTHERWISE,
        DESCRIBE_TOPIC: Denial.TOPIC,
        DELETE_TOPIC: Denial.TOPIC,
    },
)
async def handle(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    twice = repeated((state.name, state.topic_id) for state in asked)
    refused = [
        _failed(name, topic_id, ErrorCode.INVALID_REQUEST, "It is there more than once.")
        for name, topic_id in twice
    ]
    once = [state for state in asked if (state.name, state.topic_id) not in twice]
    named = {state.name for state in once if state.name is not None}
    quota = MutationQuota(context, strict_since=5)
    results = await gather_some(_delete(context, request, state, named, quota) for state in once)
    return DeleteTopicsResponse(responses=[*results, *refused])


async def _delete(
    context: Context,
    request: DeleteTopicsRequest,
    state: DeleteTopicState,
    named: set[str],
    quota: MutationQuota,
) -> DeletableTopicResult:
    topics, name, topic_id = context.services.topics, state.name, state.topic_id
    if (name is None) == (topic_id == ZERO_UUID):
        message = (
            "Neither topic name nor id were specified."
            if name is None
            else "You may not specify both topic name and topic id."
        )
        return _failed(name, topic_id, ErrorCode.INVALID_REQUEST, message)
    try:
        deletion: Coroutine[Any, Any, Topic]
        if name is not None:
            if not await _may_delete(context, name):
                return _failed(name, ZERO_UUID, DELETE_TOPIC.refusal, DELETE_TOPIC.reason)
            deletion = topics.delete(name)
        else:
            known = await topics.get_by_id(topic_id)
            if known is not None and not await _may_delete(context, known.name):
                shown = known.name if context.sees(DESCRIBE_TOPIC, known.name) else None
                return _failed(shown, topic_id, DELETE_TOPIC.refusal, DELETE_TOPIC.reason)
            if known is not None and known.name in named:
                message = "The provided topic name maps to an ID that was already supplied."
                return _failed(known.name, topic_id, ErrorCode.INVALID_REQUEST, message)
            deletion = topics.delete_by_id(topic_id)
        if not await _admitted(context, state, quota):
            deletion.close()
            return _failed(name, topic_id, *EXCEEDED)
        deleted = await context.within(request.timeout_ms, deletion)
    except TimeoutError:
        return _failed(name, topic_id, ErrorCode.REQUEST_TIMED_OUT, "It takes longer than the timeout.")
    except TopicError as error:
        if isinstance(error, TopicsUnavailable):
            context.logger().warning("a topic was not deleted", topic=name, error=str(error))
        return _failed(name, topic_id, topic_error(error), str(error))
    return DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id)


async def _admitted(context: Context, state: DeleteTopicState, quota: MutationQuota) -> bool:
    if not quota.applies:
        return True
    topics = context.services.topics
    known = await (topics.get(state.name) if state.name is not None else topics.get_by_id(state.topic_id))
    return known is None or quota.admits(len(known.streams))


async def _may_delete(context: Context, name: str) -> bool:
    """A client that may see a topic hears that it is not there; one that may not hears the same of each. The
    topic is asked about first, so that its name is in the audit log."""
    if context.sees(DESCRIBE_TOPIC, name) and context.sees(DELETE_TOPIC, name):
        return True
    if context.sees(DELETE_IN_CLUSTER, about=f"topic {name}"):
        return True
    if not context.may(DESCRIBE_TOPIC, name):
        return False
    return context.may(DELETE_TOPIC, name) or await context.services.topics.get(name) is None


def _failed(name: str | None, topic_id: UUID, code: ErrorCode, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)
