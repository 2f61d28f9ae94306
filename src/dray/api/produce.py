"""Produce (0), versions 3 to 13: append record batches.

Versions 0 to 2 are advertised, because librdkafka before 2.8 drops compression when it does not see them,
and refused as Kafka 4 refuses them: the connection is closed. From v13 topics are addressed by id.

- One batch per partition, validated down to its last record (`batches`), stored as it came unless the topic
  stamps times or names a codec. A partition named twice in a request is refused, nothing of it is stored.
- acks -1 and 1 mean the same: the answer comes when the records are in the log. acks 0 gets no answer; where
  one would have told of an error, the connection is closed. Other acks are refused.
- An unknown topic is not created here: clients ask for its metadata first, which creates it.
- A closed stream means that the topic was deleted: the answer is unknown topic (or id), and what was known of
  it is read again. The records are *not* moved to a new topic of that name: pipelined requests would
  overtake each other on the way there. The client tries again in order.
- With `routing.enforce_owner`, a partition of another broker is NOT_LEADER_OR_FOLLOWER.
- A transactional id is refused. The client's timeout is not applied: an append that is given up here may
  still happen, and the log ends its own attempts.

The requests of one connection reach the log in the order they came in. Most get there within their first
turn; one that has to wait for a thread or the store closes a gate behind itself. What follows a batch of an
idempotent producer that was refused on the way is refused too (`refusals`), until that one came again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from dray.api.batches import Acceptable, Refused, accept, takes_long
from dray.api.context import Context
from dray.api.errors import NO_TRANSACTIONS, TRANSACTIONS_REFUSED, RefuseConnection, append_error
from dray.api.handler import handles
from dray.api.partitions import find_topic, forget_closed, repeated
from dray.api.refusals import Refusals
from dray.api.routing import Routes
from dray.log.types import Appended, LogError, LogUnavailable, StreamClosed
from dray.protocol import ErrorCode
from dray.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dray.topics import Topic, TopicsUnavailable

_BY_ID: Final = 13
_GATE: Final = "produce"
_REFUSALS: Final = "produce refusals"
_OVERTAKES: Final = Refused(
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "A batch before this one was refused and has not come again."
)

# An append that is under way, or what became of a partition that got no further.
_Begun: TypeAlias = tuple[Topic, asyncio.Future[Appended]] | Refused


@handles(ProduceRequest, 3, 13, advertised_from=0)
async def handle(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    parts = [(data, part) for data in request.topic_data for part in data.partition_data]
    refused = _refuse_request(request)
    if refused is not None:
        return _conclude(context, request, [_failed(part.index, refused) for _, part in parts])
    begun = None
    if _GATE not in context.connection.state:
        begun = _begin_at_once(context, parts)
    if begun is None:
        begun = await _begin_in_turn(context, parts)
    faults: list[LogError] = []
    results = [
        await _settle(context, part.index, one, faults) for (_, part), one in zip(parts, begun, strict=True)
    ]
    if faults:
        context.logger().warning("records were not appended", partitions=len(faults), error=str(faults[0]))
    return _conclude(context, request, results)


def _refuse_request(request: ProduceRequest) -> Refused | None:
    if request.transactional_id is not None:
        return Refused(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    if request.acks not in {-1, 0, 1}:
        return Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, and not {request.acks}.")
    return None


# --- the common case: known topics, small batches, nothing to wait for


def _begin_at_once(
    context: Context, parts: list[tuple[TopicProduceData, PartitionProduceData]]
) -> list[_Begun] | None:
    """Every append, begun within this turn of the loop; None where something has to be waited for."""
    topics = context.services.topics
    by_id = context.header.api_version >= _BY_ID
    known: list[Topic] = []
    for data, part in parts:
        topic = topics.cached_by_id(data.topic_id) if by_id else topics.cached(data.name)
        if topic is None or not 0 <= part.index < len(topic.streams):
            return None
        if part.records and takes_long(part.records, topic.settings):
            return None
        known.append(topic)
    if len(parts) > 1 and repeated(
        (topic.name, part.index) for topic, (_, part) in zip(known, parts, strict=True)
    ):
        return None
    led = _keep_order(context, _refuse_strangers(context, known, parts), parts)
    return [_begin(context, topic, part) for topic, (_, part) in zip(led, parts, strict=True)]


def _begin(context: Context, topic: Topic | Refused, part: PartitionProduceData) -> _Begun:
    if isinstance(topic, Refused):
        return topic
    try:
        accepted = _accept(context, topic, part)
    except Refused as refused:
        return refused
    return _append(context, topic, part, accepted)


def _accept(context: Context, topic: Topic, part: PartitionProduceData) -> Acceptable:
    services = context.services
    return accept(
        part.records,
        topic.settings,
        context.header.api_version,
        services.runtime.wall_ms(),
        services.settings.max_decompressed_bytes,
    )


def _append(context: Context, topic: Topic, part: PartitionProduceData, accepted: Acceptable) -> _Begun:
    stream = topic.streams[part.index]
    log = context.services.log
    return topic, log.append(stream, accepted.batch, accepted.buffer, accepted.append_time_ms)


# --- the other case: read a topic, run a thread, and let no later request overtake


async def _begin_in_turn(
    context: Context, parts: list[tuple[TopicProduceData, PartitionProduceData]]
) -> list[_Begun]:
    state = context.connection.state
    before: asyncio.Event | None = state.get(_GATE)
    gate = state[_GATE] = asyncio.Event()
    try:
        if before is not None:
            await before.wait()
        found: Sequence[Topic | Refused] = [await _find_topic(context, data, part) for data, part in parts]
        twice = repeated(
            (topic.name, part.index)
            for topic, (_, part) in zip(found, parts, strict=True)
            if isinstance(topic, Topic)
        )
        found = _keep_order(context, _refuse_strangers(context, found, parts), parts)
        accepted = await asyncio.gather(
            *(
                _accept_in_turn(context, topic, part, twice)
                for topic, (_, part) in zip(found, parts, strict=True)
            )
        )
        return [
            one if isinstance(one, Refused) else _append(context, one[0], part, one[1])
            for one, (_, part) in zip(accepted, parts, strict=True)
        ]
    finally:
        gate.set()
        if state.get(_GATE) is gate:
            del state[_GATE]


async def _find_topic(
    context: Context, data: TopicProduceData, part: PartitionProduceData
) -> Topic | Refused:
    by_id = context.version >= _BY_ID
    try:
        topic = await find_topic(context, data.name, part.index, data.topic_id if by_id else None)
    except TopicsUnavailable as error:
        # Nothing was stored, and every client tries again after a look at the metadata.
        return Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    if topic is None and by_id:
        return Refused(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {data.topic_id}.")
    if topic is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {data.name!r}.")
    if topic.stream_of(part.index) is None:
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {part.index}.")
    return topic


def _refuse_strangers(
    context: Context,
    found: Sequence[Topic | Refused],
    parts: list[tuple[TopicProduceData, PartitionProduceData]],
) -> Sequence[Topic | Refused]:
    """Where owners are enforced: what this client should send to another broker."""
    if not context.services.settings.enforce_owner:
        return found
    routes = Routes(context)
    return [
        Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {routes.leader(topic.streams[part.index])} leads.")
        if isinstance(topic, Topic) and not routes.is_owner(topic.streams[part.index])
        else topic
        for topic, (_, part) in zip(found, parts, strict=True)
    ]


def _keep_order(
    context: Context,
    found: Sequence[Topic | Refused],
    parts: list[tuple[TopicProduceData, PartitionProduceData]],
) -> Sequence[Topic | Refused]:
    """What follows a batch that was refused before it reached the log waits until that one came again."""
    state = context.connection.state
    refusals: Refusals | None = state.get(_REFUSALS)
    if not refusals and not any(isinstance(topic, Refused) for topic in found):
        return found
    if refusals is None:
        refusals = state[_REFUSALS] = Refusals()
    kept: list[Topic | Refused] = []
    for topic, (data, part) in zip(found, parts, strict=True):
        place = data.topic_id if context.version >= _BY_ID else data.name, part.index
        overtakes = False
        if isinstance(topic, Refused):
            refusals.note(place, part.records)
        else:
            overtakes = refusals.overtakes(place, part.records)
        kept.append(_OVERTAKES if overtakes else topic)
    if not refusals:
        del state[_REFUSALS]
    return kept


async def _accept_in_turn(
    context: Context, topic: Topic | Refused, part: PartitionProduceData, twice: dict[tuple[str, int], int]
) -> tuple[Topic, Acceptable] | Refused:
    if isinstance(topic, Refused):
        return topic
    if (topic.name, part.index) in twice:
        return Refused(ErrorCode.INVALID_REQUEST, f"Partition {part.index} is there more than once.")
    try:
        if part.records and takes_long(part.records, topic.settings):
            return topic, await context.services.runtime.in_thread(_accept, context, topic, part)
        return topic, _accept(context, topic, part)
    except Refused as refused:
        return refused


# --- the answer


async def _settle(
    context: Context, index: int, begun: _Begun, faults: list[LogError]
) -> PartitionProduceResponse:
    if isinstance(begun, Refused):
        return _failed(index, begun)
    topic, future = begun
    try:
        appended = await future
    except StreamClosed as error:
        await forget_closed(context, topic.name)
        code = ErrorCode.UNKNOWN_TOPIC_ID if context.version >= _BY_ID else append_error(error)
        return _failed(index, Refused(code, "The topic was deleted."))
    except LogError as error:
        if isinstance(error, LogUnavailable):
            faults.append(error)
        return _failed(index, Refused(append_error(error), str(error)))
    return PartitionProduceResponse(
        index, 0, appended.base_offset, appended.append_time_ms, appended.start_offset
    )


def _failed(index: int, refused: Refused) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=refused.code,
        base_offset=-1,
        record_errors=refused.record_errors,
        error_message=refused.message,
    )


def _conclude(
    context: Context, request: ProduceRequest, results: list[PartitionProduceResponse]
) -> ProduceResponse | None:
    if request.acks == 0:
        for result in results:
            if result.error_code:
                raise RefuseConnection(
                    f"a produce without acknowledgement failed: {ErrorCode(result.error_code).name} on "
                    f"partition {result.index}: {result.error_message} "
                    f"(correlation {context.header.correlation_id}, client {context.header.client_id!r})"
                )
        return None
    response = ProduceResponse()
    position = 0
    for data in request.topic_data:
        end = position + len(data.partition_data)
        response.responses.append(TopicProduceResponse(data.topic_id, data.name, results[position:end]))
        position = end
    return response
