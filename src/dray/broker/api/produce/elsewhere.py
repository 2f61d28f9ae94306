"""Batches of streams that another owner may have: handed over to it, or appended here once it has let go.

Each is handed over as it came: the owner judges it, and stamps or compresses it if its topic asks for that.
Only transactions are refused here, as everywhere in Dray. All of it is behind the connection's gate, so that
the next request is worked on when this one is answered, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.broker.api.produce.batches import BatchRejected, ProducedPart
from dray.broker.api.produce.refusals import REFUSALS, Refusals, place_of
from dray.broker.api.shared import NO_TRANSACTIONS, Context, unless_ending
from dray.broker.api.shared.other_owner import OwnedBatch
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import PartitionProduceResponse
from dray.kafka.records import HEADER_SIZE, read_header
from dray.kafka.records.header import CONTROL, MAGIC, TRANSACTIONAL

_TRANSACTION: Final = BatchRejected(ErrorCode.INVALID_RECORD, NO_TRANSACTIONS)
_EMPTY: Final = BatchRejected(
    ErrorCode.INVALID_RECORD, "Produce requests must have at least one record batch per partition"
)
_LEFT: Final = BatchRejected(ErrorCode.REQUEST_TIMED_OUT, "The connection is ending: try again.")


async def hand_over(
    context: Context, parts: Sequence[ProducedPart], acks: int, seconds: float
) -> list[ProducedPart]:
    """Those that are elsewhere have an answer or are refused, but for the returned: they are to be appended
    here. `seconds`: what is left of the client's timeout."""
    state = context.connection.state
    refusals: Refusals = state.setdefault(REFUSALS, Refusals())
    sent: list[tuple[ProducedPart, OwnedBatch]] = []
    for part in parts:
        if not part.is_elsewhere:
            continue
        batch = _batch(part)
        if isinstance(batch, OwnedBatch):
            sent.append((part, batch))
            _count(context, batch)
        else:
            part.refused = batch
    given_back = await _send(context, sent, refusals, acks, seconds) if sent else []
    if not refusals:
        state.pop(REFUSALS, None)
    return given_back


async def _send(
    context: Context,
    sent: Sequence[tuple[ProducedPart, OwnedBatch]],
    refusals: Refusals,
    acks: int,
    seconds: float,
) -> list[ProducedPart]:
    """Those that the owner gives back."""
    owner = context.services.other_owner
    assert owner is not None
    answered = None
    if not context.connection.ending:
        # A client that has gone may have sent the batch again elsewhere: this copy must not come later.
        work = owner.append([batch for _, batch in sent], acks=acks, seconds=seconds)
        answered = await unless_ending(context.connection, work)
    if answered is None:
        for part, _ in sent:
            part.refused = _LEFT
        return []
    answers, throttle_ms = answered
    context.wait_ms = max(context.wait_ms, throttle_ms)
    given_back = []
    for (part, _), answer in zip(sent, answers, strict=True):
        if answer is None:
            given_back.append(part)
        elif isinstance(answer, PartitionProduceResponse):
            part.answer = answer
        else:
            # A refusal of the owner is for its client to mend. A batch without an answer comes again.
            part.refused = BatchRejected(*answer)
            refusals.note(place_of(part, context.version), part.data.records, is_unclear=True)
    return given_back


def _batch(part: ProducedPart) -> OwnedBatch | BatchRejected:
    records = part.data.records
    if not records:
        return _EMPTY
    if len(records) >= HEADER_SIZE:
        header = read_header(records)
        if header.magic == MAGIC and header.attributes & (TRANSACTIONAL | CONTROL):
            return _TRANSACTION
    assert part.topic is not None
    return OwnedBatch(part.topic.name, part.topic.topic_id, part.data.index, part.stream, records)


def _count(context: Context, batch: OwnedBatch) -> None:
    counters = context.services.traffic.find(batch.topic)
    counters.produce_requests += 1
    counters.produce_bytes += len(batch.records)
    if len(batch.records) >= HEADER_SIZE:
        counters.produce_records += max(0, read_header(batch.records).record_count)
