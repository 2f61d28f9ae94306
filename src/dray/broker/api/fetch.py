"""Fetch (1), versions 4 to 18: read record batches, waiting for them if there are none yet.

- Whole batches are returned, the first one even when it is larger than the limits. The log does the
  waiting; it ends early when the connection does.
- Fetch sessions are Kafka's (`shared/fetch_sessions.py`): a request that goes on with one is worked on as if
  it named all of its partitions, and answered those of which something is new.
- The fetches of one connection are worked on one at a time, as in Kafka: what is answered ahead of a client
  that does not read must fit into memory. All connections share a bound on that: an answer is planned with
  what it leaves, and one that finds no room is given later, or without records.
- A client above its quota is answered without partitions, and asks again when its time is over.
- There are no transactions: the last stable offset is the high watermark, whatever the isolation level.
  Batches that another system wrote may hold some: a client that reads committed records is told the aborted
  ones.
- A client that knows a later leader epoch than the topic's gets UNKNOWN_LEADER_EPOCH.
- With `routing.enforce_owner`, a partition of another broker is NOT_LEADER_OR_FOLLOWER.

Versions:

- v6: clients know KAFKA_STORAGE_ERROR. Before, it is NOT_LEADER_OR_FOLLOWER.
- v11: a consumer may name its rack. If it is not in this broker's zone it is sent to the broker of its own:
  the answer names that one as the preferred replica, and holds no records, as in Kafka.
- v13: topics are addressed by id; an unknown one is UNKNOWN_TOPIC_ID in each of its partitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from dray.base.runtime import current_share, gather_some
from dray.base.telemetry import TopicTraffic
from dray.broker.api.shared import (
    Context,
    Routes,
    find_topic,
    forget_closed,
    handles,
    is_told_elsewhere,
    read_error,
    unless_ending,
)
from dray.broker.api.shared.checks import READ_TOPIC, Denial
from dray.broker.api.shared.fetch_sessions import SessionRefused
from dray.broker.api.shared.quotas import most_to_fetch
from dray.broker.topics import Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dray.log.types import (
    LogError,
    LogUnavailable,
    ObjectCorrupt,
    OutsideFault,
    ReadRequest,
    ReadResult,
    StreamClosed,
)

_BY_ID: Final = 13
_KNOWS_STORAGE_ERROR: Final = 6


@dataclass(slots=True)
class _Wanted:
    """One partition of the request, on its way to its part of the answer."""

    partition: int
    topic: Topic | None = None
    stream: int = -1
    error: ErrorCode = ErrorCode.NONE


@handles(FetchRequest, 4, 18, checks={READ_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: FetchRequest) -> FetchResponse:
    await context.connection.turn()
    many = current_share.get() is not None
    if many:
        request.topics = _named_once(request.topics)
    services = context.services
    most = services.settings.request_elements
    try:
        opened = services.fetch_sessions.open(request, context.version, services.runtime.monotonic(), most)
    except SessionRefused as refused:
        context.failed(refused.code)
        return FetchResponse(error_code=refused.code)
    context.fetch = opened
    request.topics = opened.topics
    response = await _answer_all(context, request, many or opened.is_incremental)
    return opened.answered(response, services.runtime.monotonic(), services.runtime.random)


async def _answer_all(context: Context, request: FetchRequest, many: bool) -> FetchResponse:
    wanted = [await _resolve_topic(context, topic) for topic in request.topics]
    context.services.errors.fetched.value += sum(map(len, wanted))
    elsewhere = _route(context, request, wanted)
    if elsewhere is not None:
        return await _send_elsewhere(context, request, wanted, elsewhere)
    reads = [
        ReadRequest(one.stream, partition.fetch_offset, max(partition.partition_max_bytes, 0))
        for row, topic in zip(wanted, request.topics, strict=True)
        for one, partition in zip(row, topic.partitions, strict=True)
        if not one.error
    ]
    read = await _read(context, request, reads, sum(map(len, wanted)) if many else 0)
    _count(context.services.traffic, wanted, read)
    results = iter(read)
    response = FetchResponse()
    for row, topic in zip(wanted, request.topics, strict=True):
        parts = []
        for one in row:
            if one.error:
                parts.append(_refused(context, one))
            elif (result := next(results)).error is None:
                parts.append(_data(request, one, result))
            else:
                parts.append(await _failed(context, one, result, result.error))
        if context.access is not None and not _may_still_read(context, row):
            parts = [_refused(context, _Wanted(one.partition, error=READ_TOPIC.refusal)) for one in row]
        response.responses.append(FetchableTopicResponse(topic.topic_id, topic.topic, parts))
    return response


def _named_once(topics: list[FetchTopic]) -> list[FetchTopic]:
    """Each partition once: what is named last counts, in the place of the first, as in Kafka."""
    found: dict[tuple[str, UUID], dict[int, FetchPartition]] = {}
    for topic in topics:
        parts = found.setdefault((topic.topic, topic.topic_id), {})
        parts.update((part.partition, part) for part in topic.partitions)
    return [
        FetchTopic(topic=name, topic_id=topic_id, partitions=list(parts.values()))
        for (name, topic_id), parts in found.items()
    ]


async def _resolve_topic(context: Context, data: FetchTopic) -> list[_Wanted]:
    """A topic by name is authorized before it is looked up; one by id cannot be."""
    if context.access is None:
        return [await _resolve(context, data, partition) for partition in data.partitions]
    by_id = context.header.api_version >= _BY_ID
    if not by_id and not context.may(READ_TOPIC, data.topic):
        return [_Wanted(partition.partition, error=READ_TOPIC.refusal) for partition in data.partitions]
    wanted = [await _resolve(context, data, partition) for partition in data.partitions]
    if by_id:
        topic = next((one.topic for one in wanted if one.topic is not None), None)
        if topic is not None and not context.may(READ_TOPIC, topic.name):
            return [_Wanted(partition.partition, error=READ_TOPIC.refusal) for partition in data.partitions]
    return wanted


def _may_still_read(context: Context, row: list[_Wanted]) -> bool:
    """Asked once more before the answer: a fetch may have waited for longer than the right lasted."""
    topic = next((one.topic for one in row if one.topic is not None and not one.error), None)
    return topic is None or context.may(READ_TOPIC, topic.name)


async def _resolve(context: Context, data: FetchTopic, partition: FetchPartition) -> _Wanted:
    by_id = context.header.api_version >= _BY_ID
    wanted = _Wanted(partition.partition)
    try:
        topic = await find_topic(context, data.topic, partition.partition, data.topic_id if by_id else None)
    except TopicsUnavailable:
        wanted.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return wanted
    wanted.topic = topic
    stream = None if topic is None else topic.stream_of(partition.partition)
    if stream is not None:
        wanted.stream = stream
        if topic is not None and partition.current_leader_epoch > topic.leader_epoch:
            wanted.error = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif topic is None and by_id:
        wanted.error = ErrorCode.UNKNOWN_TOPIC_ID
    else:
        wanted.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return wanted


Elsewhere = Callable[[Topic, int], int | None]
"""The broker from which to read a stream of a topic, if not this one."""


def _route(context: Context, request: FetchRequest, wanted: list[list[_Wanted]]) -> Elsewhere | None:
    """The broker for the consumer, if not this one. Partitions that this broker should not serve are
    refused."""
    enforced = context.services.settings.enforce_owner
    if not enforced and not request.rack_id:
        return None
    routes = Routes(context)
    if request.rack_id:
        elsewhere = routes.nearest(request.rack_id)
        if elsewhere is not None and any(
            one.topic is not None and not one.error and elsewhere(one.topic, one.stream) is not None
            for row in wanted
            for one in row
        ):
            return elsewhere
    if enforced:
        for row in wanted:
            for one in row:
                if not one.error and not routes.is_owner(one.stream, request.rack_id):
                    one.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None


async def _send_elsewhere(
    context: Context, request: FetchRequest, wanted: list[list[_Wanted]], elsewhere: Elsewhere
) -> FetchResponse:
    """An answer without records. The consumer asks again at once for the partitions that it should read
    here."""
    log = context.services.log

    async def one(part: _Wanted) -> PartitionData:
        if part.error or part.topic is None:
            return _refused(context, part)
        there = elsewhere(part.topic, part.stream)
        try:
            bounds = await log.bounds(part.stream)
        except LogError as error:
            return await _failed(context, part, ReadResult(error=error), error)
        return PartitionData(
            partition_index=part.partition,
            high_watermark=bounds.end,
            last_stable_offset=bounds.end,
            log_start_offset=bounds.start,
            aborted_transactions=[] if request.isolation_level else None,
            preferred_read_replica=-1 if there is None else there,
            records=b"",
        )

    rows = [await gather_some(one(part) for part in row) for row in wanted]
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic.topic_id, topic.topic, row)
            for topic, row in zip(request.topics, rows, strict=True)
        ]
    )


async def _read(
    context: Context, request: FetchRequest, reads: list[ReadRequest], named: int
) -> list[ReadResult]:
    """`named`: how many partitions the request names, if they are many."""
    if not reads:
        return []
    polls = context.services.polls
    log = context.services.log
    limit = most_to_fetch(context, context.services.settings.fetch_bytes)
    most = max(min(request.max_bytes, limit), 0)
    least = min(request.min_bytes, limit)
    room = context.connection.room()
    may_wait = not context.connection.ending and polls.have_room(named)
    if least > 0 and request.max_wait_ms > 0 and may_wait:
        waiting = log.fetch(
            reads, min_bytes=least, max_bytes=most, max_wait_ms=request.max_wait_ms, room=room
        )
        with polls.waiting(named):
            results = await unless_ending(context.connection, waiting)
        if results is not None:
            return results
    return await log.fetch(reads, min_bytes=0, max_bytes=most, max_wait_ms=0, room=room)


def _count(traffic: TopicTraffic, wanted: list[list[_Wanted]], read: list[ReadResult]) -> None:
    place = 0
    for row in wanted:
        topic: Topic | None = None
        size = 0
        for one in row:
            if not one.error:
                topic = one.topic
                size += read[place].size
                place += 1
        if topic is not None:
            counters = traffic.find(topic.name)
            counters.fetch_requests += 1
            counters.fetch_bytes += size


def _data(request: FetchRequest, wanted: _Wanted, result: ReadResult) -> PartitionData:
    return PartitionData(
        partition_index=wanted.partition,
        high_watermark=result.high_watermark,
        last_stable_offset=result.high_watermark,
        log_start_offset=result.start_offset,
        aborted_transactions=_aborted(result) if request.isolation_level else None,
        records=result.buffers or b"",
    )


async def _failed(context: Context, wanted: _Wanted, result: ReadResult, error: LogError) -> PartitionData:
    version = context.version
    wanted.error = read_error(error, knows_storage_error=version >= _KNOWS_STORAGE_ERROR)
    if isinstance(error, StreamClosed) and wanted.topic is not None:
        if version >= _BY_ID:
            wanted.error = ErrorCode.UNKNOWN_TOPIC_ID
        await forget_closed(context, wanted.topic.name)
    elif wanted.topic is not None and context.cannot_read(f"{wanted.topic.name}-{wanted.partition}", error):
        pass  # told, once for a while
    elif isinstance(error, LogUnavailable | ObjectCorrupt | OutsideFault):
        log = context.logger()
        say = log.debug if is_told_elsewhere(error) else log.warning
        say("a partition could not be read", stream=wanted.stream, error=str(error))
    return _refused(context, wanted, result.high_watermark, result.start_offset)


def _aborted(result: ReadResult) -> list[AbortedTransaction]:
    return [AbortedTransaction(producer_id, first_offset) for producer_id, first_offset in result.aborted]


def _refused(
    context: Context, wanted: _Wanted, high_watermark: int = -1, start_offset: int = -1
) -> PartitionData:
    context.failed(wanted.error)
    return PartitionData(
        partition_index=wanted.partition,
        error_code=wanted.error,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=start_offset,
        aborted_transactions=[],
        records=b"",
    )
