"""Batches for a topic that its source still owns: sent on to it, or appended here once it has let go.

Each is passed on as it came: the source judges it, and stamps or compresses it if its topic asks for that.
Only transactions are refused here, as everywhere in Dray. All of it is behind the connection's gate, so that
the next request is worked on when this one is answered, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from dray.api.produce.batches import BatchRejected
from dray.api.produce.refusals import REFUSALS, Place, Refusals
from dray.api.shared import NO_TRANSACTIONS, Context, Services, unless_ending
from dray.api.shared.linked_topics import ForwardedBatch
from dray.protocol import ErrorCode
from dray.protocol.messages.produce import PartitionProduceData, PartitionProduceResponse
from dray.records import HEADER_SIZE, read_header
from dray.records.header import CONTROL, MAGIC, TRANSACTIONAL
from dray.topics import Topic

_TRANSACTION: Final = BatchRejected(ErrorCode.INVALID_RECORD, NO_TRANSACTIONS)
_EMPTY: Final = BatchRejected(
    ErrorCode.INVALID_RECORD, "Produce requests must have at least one record batch per partition"
)
_LEFT: Final = BatchRejected(ErrorCode.REQUEST_TIMED_OUT, "The connection is ending: try again.")


def is_forwarded(services: Services, topic: Topic, partition: int) -> bool:
    """Whether the source may own the partition. A topic that was born here has the first leader epoch."""
    forwarder = services.forwarder
    return forwarder is not None and topic.leader_epoch > 0 and topic.streams[partition] not in forwarder.ours


ForwardedPart: TypeAlias = tuple[Place, Topic, PartitionProduceData]
"""The place as the request names it."""


async def forward(
    context: Context, parts: Mapping[int, ForwardedPart], acks: int, seconds: float
) -> dict[int, PartitionProduceResponse | BatchRejected | None]:
    """What becomes of each part; None for one that is to be appended here. `seconds`: what is left of the
    client's timeout."""
    state = context.connection.state
    refusals: Refusals = state.setdefault(REFUSALS, Refusals())
    found: dict[int, PartitionProduceResponse | BatchRejected | None] = {}
    sent: dict[int, ForwardedBatch] = {}
    for number, (_, topic, part) in parts.items():
        batch = _batch(topic, part)
        if isinstance(batch, ForwardedBatch):
            sent[number] = batch
            _count(context, batch)
        else:
            found[number] = batch
    if sent:
        found |= await _send(context, sent, acks, seconds)
    for number, (place, _, part) in parts.items():
        # What the source refused is for its client to mend. What never came to an answer comes again.
        if isinstance(found[number], _Unanswered):
            refusals.note(place, part.records, is_unclear=True)
    if not refusals:
        state.pop(REFUSALS, None)
    return found


class _Unanswered(BatchRejected):
    """The source did not answer: the client has to send the batch again."""


async def _send(
    context: Context, sent: Mapping[int, ForwardedBatch], acks: int, seconds: float
) -> dict[int, PartitionProduceResponse | BatchRejected | None]:
    forwarder = context.services.forwarder
    assert forwarder is not None
    answered = None
    if not context.connection.ending:
        # A client that has gone may have sent the batch again elsewhere: this copy must not come later.
        work = forwarder.forward(list(sent.values()), acks=acks, seconds=seconds)
        answered = await unless_ending(context.connection, work)
    if answered is None:
        return dict.fromkeys(sent, _LEFT)
    answers, throttle_ms = answered
    context.wait_ms = max(context.wait_ms, throttle_ms)
    return {
        number: _Unanswered(*answer) if isinstance(answer, tuple) else answer
        for number, answer in zip(sent, answers, strict=True)
    }


def _batch(topic: Topic, part: PartitionProduceData) -> ForwardedBatch | BatchRejected:
    records = part.records
    if not records:
        return _EMPTY
    if len(records) >= HEADER_SIZE:
        header = read_header(records)
        if header.magic == MAGIC and header.attributes & (TRANSACTIONAL | CONTROL):
            return _TRANSACTION
    stream = topic.streams[part.index]
    return ForwardedBatch(topic.name, topic.topic_id, part.index, stream, records)


def _count(context: Context, batch: ForwardedBatch) -> None:
    counters = context.services.traffic.find(batch.topic)
    counters.produce_requests += 1
    counters.produce_bytes += len(batch.records)
    if len(batch.records) >= HEADER_SIZE:
        counters.produce_records += max(0, read_header(batch.records).record_count)
