"""Produce, request by request: which topic, may it be stored, append, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from dray.api.produce.batches import AcceptedBatch, BatchRejected
from dray.api.produce.forwarded import ForwardedPart, forward, is_forwarded
from dray.api.produce.refusals import REFUSALS, Place, Refusals, forget_stored
from dray.api.produce.scheduling import DecompressionBudget, accept_at_once, accept_in_turn
from dray.api.shared import (
    NO_TRANSACTIONS,
    TRANSACTIONS_REFUSED,
    Context,
    RefuseConnection,
    Routes,
    append_error,
    find_topic,
    forget_closed,
    handles,
    repeated,
)
from dray.api.shared.checks import WRITE_TOPIC, Denial
from dray.log.types import AppendResult, LogError, LogUnavailable, StreamClosed
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
_OVERTAKES: Final = BatchRejected(
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "A batch before this one was refused and has not come again."
)
_UNCLEAR: Final = BatchRejected(
    ErrorCode.REQUEST_TIMED_OUT, "The source did not answer to a batch before this one: try again."
)
_FORBIDDEN: Final = BatchRejected(WRITE_TOPIC.refusal, WRITE_TOPIC.reason)

_Parts: TypeAlias = list[tuple[TopicProduceData, PartitionProduceData]]
# An append that is under way, or what became of a partition that got no further, or went to its source.
_Begun: TypeAlias = tuple[Topic, asyncio.Future[AppendResult]] | BatchRejected | PartitionProduceResponse
# A batch that may be appended, or why it may not.
_Judged: TypeAlias = tuple[Topic, AcceptedBatch] | BatchRejected


@handles(ProduceRequest, 3, 13, advertised_from=0, checks={WRITE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    parts = [(data, part) for data in request.topic_data for part in data.partition_data]
    refused = _refuse_request(request)
    if refused is not None:
        return _conclude(context, request, [_failed(part.index, refused) for _, part in parts])
    request_bytes = DecompressionBudget(context.services.settings.max_request_decompressed_bytes)
    alone = _begin_alone(context, parts, request_bytes) if len(parts) == 1 else None
    begun = await _begin_all(context, request, parts, request_bytes) if alone is None else (alone,)
    faults: list[LogError] = []
    results: list[PartitionProduceResponse] = []
    for one, (_, part) in zip(begun, parts, strict=True):
        if isinstance(one, BatchRejected):
            results.append(_failed(part.index, one))
            continue
        if isinstance(one, PartitionProduceResponse):
            results.append(one)
            continue
        topic, future = one
        try:
            appended = await future
        except LogError as error:
            results.append(await _not_appended(context, topic, part.index, error))
            if isinstance(error, LogUnavailable):
                faults.append(error)
        else:
            results.append(
                PartitionProduceResponse(
                    part.index, 0, appended.base_offset, appended.append_time_ms, appended.start_offset
                )
            )
    if faults:
        context.logger().warning("records were not appended", partitions=len(faults), error=str(faults[0]))
    return _conclude(context, request, results)


def _refuse_request(request: ProduceRequest) -> BatchRejected | None:
    if request.transactional_id is not None:
        return BatchRejected(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    if request.acks not in {-1, 0, 1}:
        return BatchRejected(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, and not {request.acks}."
        )
    return None


# --- the most common case: one small batch, for a known topic


def _begin_alone(context: Context, parts: _Parts, request_bytes: DecompressionBudget) -> _Begun | None:
    """What `_begin_all` would do with the only batch of a request, with less work; None where there is more
    to it than this."""
    services = context.services
    ((data, part),) = parts
    state = context.connection.state
    if _GATE in state or REFUSALS in state or services.settings.enforce_owner:
        return None
    by_id = context.header.api_version >= _BY_ID
    topic = services.topics.cached_by_id(data.topic_id) if by_id else services.topics.cached(data.name)
    if topic is None or not 0 <= part.index < len(topic.streams):
        return None
    if topic.leader_epoch and is_forwarded(services, topic, part.index):
        return None
    if context.access is not None and isinstance(
        refused := _refuse_forbidden(context, [topic])[0], BatchRejected
    ):
        _keep_order(context, [refused], parts)
        return refused
    try:
        accepted = accept_at_once(context, topic, part, request_bytes)
    except BatchRejected as rejected:
        return rejected
    if accepted is None:
        return None
    counters = services.traffic.find(topic.name)
    counters.produce_requests += 1
    counters.produce_bytes += accepted.batch.length
    counters.produce_records += accepted.batch.record_count
    stream = topic.streams[part.index]
    return topic, services.log.append(stream, accepted.batch, accepted.buffer, accepted.append_time_ms)


# --- the common case: known topics, small batches, nothing to wait for


async def _begin_all(
    context: Context, request: ProduceRequest, parts: _Parts, request_bytes: DecompressionBudget
) -> Sequence[_Begun]:
    found = judged = None
    waits = False
    if _GATE not in context.connection.state:
        found = _find_at_once(context, parts)
    if found is not None:
        judged, waits = _judge_at_once(context, found, parts, request_bytes)
    if judged is None or waits:
        return await _begin_in_turn(context, request, found, judged, parts, request_bytes)
    return _begin(context, judged, parts)


def _find_at_once(context: Context, parts: _Parts) -> Sequence[Topic | BatchRejected] | None:
    """The topic of every batch; None where something has to be waited for."""
    topics = context.services.topics
    by_id = context.header.api_version >= _BY_ID
    known: list[Topic] = []
    for data, part in parts:
        topic = topics.cached_by_id(data.topic_id) if by_id else topics.cached(data.name)
        if topic is None or not 0 <= part.index < len(topic.streams):
            return None
        if topic.leader_epoch and is_forwarded(context.services, topic, part.index):
            return None
        known.append(topic)
    if len(parts) > 1 and repeated(
        (topic.name, part.index) for topic, (_, part) in zip(known, parts, strict=True)
    ):
        return None
    allowed = known if context.access is None else _refuse_forbidden(context, known)
    kept = _keep_order(context, _refuse_strangers(context, allowed, parts), parts)
    if REFUSALS in context.connection.state and any(each is _OVERTAKES or each is _UNCLEAR for each in kept):
        return None  # the log is asked whether that is still so
    return kept


def _judge_at_once(
    context: Context,
    found: Sequence[Topic | BatchRejected],
    parts: _Parts,
    request_bytes: DecompressionBudget,
) -> tuple[list[_Judged | None], bool]:
    """The verdict on every batch that is possible within this turn of the loop, None where it takes longer;
    and whether any takes longer."""
    judged: list[_Judged | None] = []
    waits = False
    for topic, (_, part) in zip(found, parts, strict=True):
        if isinstance(topic, BatchRejected):
            judged.append(topic)
            continue
        try:
            accepted = accept_at_once(context, topic, part, request_bytes)
        except BatchRejected as refused:
            judged.append(refused)
            continue
        if accepted is None:
            judged.append(None)
            waits = True
        else:
            judged.append((topic, accepted))
    return judged, waits


def _begin(context: Context, judged: Sequence[_Judged | None], parts: _Parts) -> list[_Begun]:
    log = context.services.log
    traffic = context.services.traffic
    counted: Topic | None = None
    begun: list[_Begun] = []
    for one, (_, part) in zip(judged, parts, strict=True):
        assert one is not None
        if isinstance(one, BatchRejected):
            begun.append(one)
            continue
        topic, accepted = one
        if topic is not counted:  # the partitions of a topic come together
            counted = topic
            counters = traffic.find(topic.name)
            counters.produce_requests += 1
        counters.produce_bytes += accepted.batch.length
        counters.produce_records += accepted.batch.record_count
        stream = topic.streams[part.index]
        begun.append((topic, log.append(stream, accepted.batch, accepted.buffer, accepted.append_time_ms)))
    return begun


# --- the other case: read a topic, run a thread, wait for another turn, and let no later request overtake


async def _begin_in_turn(
    context: Context,
    request: ProduceRequest,
    found: Sequence[Topic | BatchRejected] | None,
    judged: Sequence[_Judged | None] | None,
    parts: _Parts,
    request_bytes: DecompressionBudget,
) -> list[_Begun]:
    """Topics that were found and batches that were judged are not looked at again: judging a batch may have
    changed it."""
    state = context.connection.state
    came = context.services.runtime.monotonic()
    before: asyncio.Event | None = state.get(_GATE)
    gate = state[_GATE] = asyncio.Event()
    try:
        if before is not None:
            await before.wait()
        if found is None or judged is None:
            found = await _find_in_turn(context, parts)
            judged = [None] * len(parts)
            foreign = _forwarded(context, found, parts)
            if foreign:
                return await _begin_or_forward(context, request, came, found, foreign, parts, request_bytes)
        # One after the other: a request holds one batch unfolded at a time, however many it brings.
        judged = [
            await _judge_in_turn(context, topic, part, request_bytes) if one is None else one
            for one, topic, (_, part) in zip(judged, found, parts, strict=True)
        ]
        return _begin(context, judged, parts)
    finally:
        gate.set()
        if state.get(_GATE) is gate:
            del state[_GATE]


async def _begin_or_forward(
    context: Context,
    request: ProduceRequest,
    came: float,
    found: Sequence[Topic | BatchRejected],
    foreign: Mapping[int, ForwardedPart],
    parts: _Parts,
    request_bytes: DecompressionBudget,
) -> list[_Begun]:
    """Some of the batches are the source's to append. What they are answered with is waited for here, behind
    the gate: the next request of the connection is for the source too, mostly."""
    waiting = BatchRejected(ErrorCode.UNKNOWN_SERVER_ERROR, "The batch was not sent on.")
    judged: list[_Judged] = [
        waiting if number in foreign else await _judge_in_turn(context, topic, part, request_bytes)
        for number, (topic, (_, part)) in enumerate(zip(found, parts, strict=True))
    ]
    begun = _begin(context, judged, parts)
    left = request.timeout_ms / 1000 - (context.services.runtime.monotonic() - came)
    for number, answer in (await forward(context, foreign, request.acks, left)).items():
        _, topic, part = foreign[number]
        if answer is None:
            begun[number] = await _append_here(context, topic, part, request_bytes)
        else:
            begun[number] = answer
    return begun


async def _append_here(
    context: Context, topic: Topic, part: PartitionProduceData, request_bytes: DecompressionBudget
) -> _Begun:
    judged = await _judge_in_turn(context, topic, part, request_bytes)
    if isinstance(judged, BatchRejected):
        return judged
    _, accepted = judged
    stream = topic.streams[part.index]
    log = context.services.log
    return topic, log.append(stream, accepted.batch, accepted.buffer, accepted.append_time_ms)


def _forwarded(
    context: Context, found: Sequence[Topic | BatchRejected], parts: _Parts
) -> dict[int, ForwardedPart]:
    return {
        number: (_place(context, data, part), topic, part)
        for number, (topic, (data, part)) in enumerate(zip(found, parts, strict=True))
        if isinstance(topic, Topic) and is_forwarded(context.services, topic, part.index)
    }


async def _find_in_turn(context: Context, parts: _Parts) -> Sequence[Topic | BatchRejected]:
    found: Sequence[Topic | BatchRejected] = [await _find_topic(context, data, part) for data, part in parts]
    twice = repeated(
        (topic.name, part.index)
        for topic, (_, part) in zip(found, parts, strict=True)
        if isinstance(topic, Topic)
    )
    await _forget_stored(context, found, parts)
    kept = _keep_order(context, _refuse_strangers(context, found, parts), parts)
    if not twice:
        return kept
    return [
        BatchRejected(ErrorCode.INVALID_REQUEST, f"Partition {part.index} is there more than once.")
        if isinstance(topic, Topic) and (topic.name, part.index) in twice
        else topic
        for topic, (_, part) in zip(kept, parts, strict=True)
    ]


async def _judge_in_turn(
    context: Context,
    topic: Topic | BatchRejected,
    part: PartitionProduceData,
    request_bytes: DecompressionBudget,
) -> _Judged:
    if isinstance(topic, BatchRejected):
        return topic
    try:
        return topic, await accept_in_turn(context, topic, part, request_bytes)
    except BatchRejected as refused:
        return refused


async def _find_topic(
    context: Context, data: TopicProduceData, part: PartitionProduceData
) -> Topic | BatchRejected:
    by_id = context.version >= _BY_ID
    if not by_id and not context.may(WRITE_TOPIC, data.name):
        return _FORBIDDEN
    try:
        topic = await find_topic(context, data.name, part.index, data.topic_id if by_id else None)
    except TopicsUnavailable as error:
        # Nothing was stored, and every client tries again after reading the metadata.
        return BatchRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    if topic is None and by_id:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {data.topic_id}.")
    if topic is None:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {data.name!r}.")
    if by_id and not context.may(WRITE_TOPIC, topic.name):
        return _FORBIDDEN
    if topic.stream_of(part.index) is None:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {part.index}.")
    return topic


def _refuse_forbidden(context: Context, found: Sequence[Topic]) -> Sequence[Topic | BatchRejected]:
    """The batches of a topic stand together: each topic is asked about once."""
    last: Topic | None = None
    allowed: list[Topic | BatchRejected] = []
    verdict: Topic | BatchRejected = _FORBIDDEN
    for topic in found:
        if topic is not last:
            last = topic
            verdict = topic if context.may(WRITE_TOPIC, topic.name) else _FORBIDDEN
        allowed.append(verdict)
    return allowed


def _refuse_strangers(
    context: Context,
    found: Sequence[Topic | BatchRejected],
    parts: _Parts,
) -> Sequence[Topic | BatchRejected]:
    """If owners are enforced, refuse what this client should send to another broker."""
    if not context.services.settings.enforce_owner:
        return found
    routes = Routes(context)
    return [
        BatchRejected(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Broker {routes.leader(topic.streams[part.index])} leads."
        )
        if isinstance(topic, Topic) and not routes.is_owner(topic.streams[part.index])
        else topic
        for topic, (_, part) in zip(found, parts, strict=True)
    ]


def _keep_order(
    context: Context,
    found: Sequence[Topic | BatchRejected],
    parts: _Parts,
) -> Sequence[Topic | BatchRejected]:
    """Refuse batches behind one that was refused before it reached the log, until that one has come again."""
    state = context.connection.state
    refusals: Refusals | None = state.get(REFUSALS)
    if not refusals and not any(isinstance(topic, BatchRejected) for topic in found):
        return found
    if refusals is None:
        refusals = state[REFUSALS] = Refusals()
    kept: list[Topic | BatchRejected] = []
    for topic, (data, part) in zip(found, parts, strict=True):
        place = _place(context, data, part)
        if isinstance(topic, BatchRejected):
            refusals.note(place, part.records)
        elif refusals.overtakes(place, part.records):
            kept.append(_UNCLEAR if refusals.is_unclear(place, part.records) else _OVERTAKES)
            continue
        kept.append(topic)
    if not refusals:
        del state[REFUSALS]
    return kept


async def _forget_stored(context: Context, found: Sequence[Topic | BatchRejected], parts: _Parts) -> None:
    """A refused batch that the log has by now came through another broker, and will not come again here."""
    state = context.connection.state
    refusals: Refusals | None = state.get(REFUSALS)
    if not refusals:
        return
    for topic, (data, part) in zip(found, parts, strict=True):
        overtaken = refusals.overtaken(_place(context, data, part), part.records)
        if overtaken is not None and isinstance(topic, Topic):
            await forget_stored(refusals, context.services.log, topic.streams[part.index], overtaken)
    if not refusals:
        state.pop(REFUSALS, None)


def _place(context: Context, data: TopicProduceData, part: PartitionProduceData) -> Place:
    return data.topic_id if context.version >= _BY_ID else data.name, part.index


# --- the answer


async def _not_appended(
    context: Context, topic: Topic, index: int, error: LogError
) -> PartitionProduceResponse:
    if not isinstance(error, StreamClosed):
        return _failed(index, BatchRejected(append_error(error), str(error)))
    await forget_closed(context, topic.name)
    code = ErrorCode.UNKNOWN_TOPIC_ID if context.version >= _BY_ID else append_error(error)
    return _failed(index, BatchRejected(code, "The topic was deleted."))


def _failed(index: int, refused: BatchRejected) -> PartitionProduceResponse:
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
                    f"a produce without acknowledgement failed: {ErrorCode.name_of(result.error_code)} on "
                    f"partition {result.index}: {result.error_message} "
                    f"(correlation {context.header.correlation_id}, client {context.header.client_id!r})"
                )
        return None
    response = ProduceResponse(throttle_time_ms=context.wait_ms)
    position = 0
    for data in request.topic_data:
        end = position + len(data.partition_data)
        response.responses.append(TopicProduceResponse(data.topic_id, data.name, results[position:end]))
        position = end
    return response
