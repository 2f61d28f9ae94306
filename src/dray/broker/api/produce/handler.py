"""Produce, request by request: which topic, may it be stored, append, and the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from dray.base.runtime import cut
from dray.broker.api.produce.batches import BatchRejected, ProducedPart
from dray.broker.api.produce.elsewhere import hand_over
from dray.broker.api.produce.refusals import BY_ID, REFUSALS, Refusals, forget_stored, place_of
from dray.broker.api.produce.scheduling import DecompressionBudget, judge_at_once, judge_in_turn
from dray.broker.api.shared import (
    NO_TRANSACTIONS,
    TRANSACTIONS_REFUSED,
    Context,
    RefuseConnection,
    Routes,
    Services,
    append_error,
    find_topic,
    forget_closed,
    handles,
    repeated,
)
from dray.broker.api.shared.checks import WRITE_TOPIC, Denial
from dray.broker.topics import Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dray.log.types import LogError, LogUnavailable, StreamClosed

_GATE: Final = "produce"
_OVERTAKES: Final = BatchRejected(
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "A batch before this one was refused and has not come again."
)
_UNCLEAR: Final = BatchRejected(
    ErrorCode.REQUEST_TIMED_OUT, "The source did not answer to a batch before this one: try again."
)
_FORBIDDEN: Final = BatchRejected(WRITE_TOPIC.refusal, WRITE_TOPIC.reason)


@handles(ProduceRequest, 3, 13, advertised_from=0, checks={WRITE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: ProduceRequest) -> ProduceResponse | None:
    """Find the topics, judge the batches, append them, answer. A request whose topics are known and whose
    batches are small gets to the log at once, before anything else is worked on."""
    parts = [ProducedPart(named, data) for named in request.topic_data for data in named.partition_data]
    counted = context.services.errors
    counted.produced.value += len(parts)
    refused = _refuse_request(request)
    if refused is not None:
        context.failed(refused.code, len(parts))
        return _conclude(context, request, [_failed(part.data.index, refused) for part in parts])
    budget = DecompressionBudget(context.services.settings.request_decompressed_bytes)
    found = _find_at_once(context, parts)
    if found and judge_at_once(context, parts, budget):
        _append(context, parts)
    else:
        await _append_in_turn(context, request, parts, budget, found)
    answers = await _answers(context, parts)
    counted.acknowledged.value += len(parts) - context.errors
    return _conclude(context, request, answers)


def _refuse_request(request: ProduceRequest) -> BatchRejected | None:
    if request.transactional_id is not None:
        return BatchRejected(TRANSACTIONS_REFUSED, NO_TRANSACTIONS)
    if request.acks not in {-1, 0, 1}:
        return BatchRejected(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, and not {request.acks}."
        )
    return None


def _append(context: Context, parts: Sequence[ProducedPart]) -> None:
    """Have the log append what was accepted, all within one turn of the loop."""
    services = context.services
    counted: Topic | None = None
    for part in parts:
        accepted = part.accepted
        if accepted is None:
            continue
        topic = part.topic
        assert topic is not None
        if not part.is_elsewhere:  # there it was counted already
            if topic is not counted:  # the partitions of a topic come together
                counted = topic
                counters = services.traffic.find(topic.name)
                counters.produce_requests += 1
            counters.produce_bytes += accepted.batch.length
            counters.produce_records += accepted.batch.record_count
        part.appending = services.log.append(
            part.stream, accepted.batch, accepted.buffer, accepted.append_time_ms
        )


async def _append_in_turn(
    context: Context,
    request: ProduceRequest,
    parts: Sequence[ProducedPart],
    budget: DecompressionBudget,
    found: bool,
) -> None:
    """Read a topic, run a thread, wait for another turn, and let no later request overtake. `found`: whether
    the topics are known already."""
    state = context.connection.state
    came = context.services.runtime.monotonic()
    before: asyncio.Event | None = state.get(_GATE)
    gate = state[_GATE] = asyncio.Event()
    try:
        if before is not None:
            await before.wait()
        if not found:
            await _find_in_turn(context, parts)
        ours = [part for part in parts if not part.is_elsewhere]
        # One after the other: a request holds one batch unfolded at a time, however many it brings.
        for part in ours:
            await judge_in_turn(context, part, budget)
        _append(context, ours)
        if len(ours) < len(parts):
            left = request.timeout_ms / 1000 - (context.services.runtime.monotonic() - came)
            for part in await hand_over(context, parts, request.acks, left):
                await judge_in_turn(context, part, budget)
                _append(context, [part])
    finally:
        gate.set()
        if state.get(_GATE) is gate:
            del state[_GATE]


# --- which topics


def _find_at_once(context: Context, parts: Sequence[ProducedPart]) -> bool:
    """The topic of every batch; False where something has to be waited for."""
    services = context.services
    topics = services.topics
    state = context.connection.state
    if _GATE in state:
        return False
    by_id = context.header.api_version >= BY_ID
    for part in parts:
        named, index = part.named, part.data.index
        topic = topics.cached_by_id(named.topic_id) if by_id else topics.cached(named.name)
        if topic is None or not 0 <= index < len(topic.streams):
            return False
        part.topic, part.stream = topic, topic.streams[index]
        if topic.leader_epoch and _is_elsewhere(services, part):
            return False
    if len(parts) > 1 and len({part.stream for part in parts}) < len(parts):
        return False
    if context.access is None and REFUSALS not in state and not services.settings.enforce_owner:
        return True
    _refuse_forbidden(context, parts)
    _refuse_strangers(context, parts)
    # Before it says that one batch overtakes another, the log is asked whether that is still so.
    return not _keep_order(context, parts)


def _is_elsewhere(services: Services, part: ProducedPart) -> bool:
    """Whether another owner may have the stream. A topic that was born here has the first leader epoch."""
    owner = services.other_owner
    return owner is not None and owner.owns(part.stream)


async def _find_in_turn(context: Context, parts: Sequence[ProducedPart]) -> None:
    for part in parts:
        part.topic = part.refused = None
        found = await _find_topic(context, part)
        if isinstance(found, BatchRejected):
            part.refused = found
        else:
            part.topic, part.stream = found, found.streams[part.data.index]
    twice = repeated(part.stream for part in parts if part.topic is not None)
    await _forget_stored(context, parts)
    _refuse_strangers(context, parts)
    _keep_order(context, parts)
    for part in parts:
        if part.refused is not None or part.topic is None:
            continue
        if part.stream in twice:
            message = f"Partition {part.data.index} is there more than once."
            part.refused = BatchRejected(ErrorCode.INVALID_REQUEST, message)
        elif part.topic.leader_epoch:
            part.is_elsewhere = _is_elsewhere(context.services, part)


async def _find_topic(context: Context, part: ProducedPart) -> Topic | BatchRejected:
    by_id = context.version >= BY_ID
    named, index = part.named, part.data.index
    if not by_id and not context.may(WRITE_TOPIC, named.name):
        return _FORBIDDEN
    try:
        topic = await find_topic(context, named.name, index, named.topic_id if by_id else None)
    except TopicsUnavailable as error:
        # Nothing was stored, and every client tries again after reading the metadata.
        return BatchRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    if topic is None and by_id:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_ID, f"There is no topic with the id {named.topic_id}.")
    if topic is None:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {cut(named.name)!r}.")
    if by_id and not context.may(WRITE_TOPIC, topic.name):
        return _FORBIDDEN
    if topic.stream_of(index) is None:
        return BatchRejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {index}.")
    return topic


# --- what may not be appended, though its topic is there


def _refuse_forbidden(context: Context, parts: Sequence[ProducedPart]) -> None:
    """The batches of a topic stand together: each topic is asked about once."""
    if context.access is None:
        return
    last: Topic | None = None
    is_allowed = True
    for part in parts:
        topic = part.topic
        assert topic is not None
        if topic is not last:
            last = topic
            is_allowed = context.may(WRITE_TOPIC, topic.name)
        if not is_allowed:
            part.refused = _FORBIDDEN


def _refuse_strangers(context: Context, parts: Sequence[ProducedPart]) -> None:
    """If owners are enforced, refuse what this client should send to another broker."""
    if not context.services.settings.enforce_owner:
        return
    routes = Routes(context)
    for part in parts:
        if part.refused is None and not routes.is_owner(part.stream):
            message = f"Broker {routes.leader(part.stream)} leads."
            part.refused = BatchRejected(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)


def _keep_order(context: Context, parts: Sequence[ProducedPart]) -> bool:
    """Refuse batches behind one that was refused before it reached the log, until that one has come again.
    Whether there are such."""
    state = context.connection.state
    refusals: Refusals | None = state.get(REFUSALS)
    if not refusals and not any(part.refused is not None for part in parts):
        return False
    if refusals is None:
        refusals = state[REFUSALS] = Refusals()
    overtakes = False
    for part in parts:
        place, records = place_of(part, context.version), part.data.records
        if part.refused is not None:
            refusals.note(place, records)
        elif refusals.overtakes(place, records):
            overtakes = True
            part.refused = _UNCLEAR if refusals.is_unclear(place, records) else _OVERTAKES
    if not refusals:
        del state[REFUSALS]
        return False
    return overtakes


async def _forget_stored(context: Context, parts: Sequence[ProducedPart]) -> None:
    """A refused batch that the log has by now came through another broker, and will not come again here."""
    state = context.connection.state
    refusals: Refusals | None = state.get(REFUSALS)
    if not refusals:
        return
    for part in parts:
        overtaken = refusals.overtaken(place_of(part, context.version), part.data.records)
        if overtaken is not None and part.topic is not None:
            await forget_stored(refusals, context.services.log, part.stream, overtaken)
    if not refusals:
        state.pop(REFUSALS, None)


# --- the answer


async def _answers(context: Context, parts: Sequence[ProducedPart]) -> list[PartitionProduceResponse]:
    """Once the log has them, or will not have them."""
    faults: list[LogError] = []
    answers: list[PartitionProduceResponse] = []
    for part in parts:
        index = part.data.index
        if part.appending is None:
            answer = part.answer or _failed(index, part.refused)
            if answer.error_code:
                context.failed(answer.error_code)
            answers.append(answer)
            continue
        try:
            appended = await part.appending
        except LogError as error:
            assert part.topic is not None
            answer = await _not_appended(context, part.topic, index, error)
            context.failed(answer.error_code)
            answers.append(answer)
            is_told = context.cannot_read(f"{part.topic.name}-{index}", error)
            if isinstance(error, LogUnavailable) and not is_told:
                faults.append(error)
        else:
            answers.append(
                PartitionProduceResponse(
                    index, 0, appended.base_offset, appended.append_time_ms, appended.start_offset
                )
            )
    if faults:
        context.logger().debug("records were not appended", partitions=len(faults), error=str(faults[0]))
    return answers


async def _not_appended(
    context: Context, topic: Topic, index: int, error: LogError
) -> PartitionProduceResponse:
    if not isinstance(error, StreamClosed):
        return _failed(index, BatchRejected(append_error(error), str(error)))
    await forget_closed(context, topic.name)
    code = ErrorCode.UNKNOWN_TOPIC_ID if context.version >= BY_ID else append_error(error)
    return _failed(index, BatchRejected(code, "The topic was deleted."))


def _failed(index: int, refused: BatchRejected | None) -> PartitionProduceResponse:
    assert refused is not None, "a batch was neither refused nor appended"
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
