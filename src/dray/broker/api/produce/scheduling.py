"""The place where a produced batch is judged: on the event loop, or in a thread.

Small batches are judged at once; a hop to a thread would cost more than they do. The size that counts is the
unfolded one, and the sender chooses it: a kilobyte may become a hundred megabytes. A compressed frame states
that size. A batch is decompressed on the loop up to the stated size; one that goes further is judged again,
in a thread. Work on the loop is accounted for (`Turns`), so that many small batches at once take several
turns of it. There is a bound in bytes on what threads decompress at once (`Allowance`), and another on what
the batches of one request unfold to together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dray.broker.api.produce.batches import AcceptedBatch, BatchRejected, ProducedPart, TakesLong, accept
from dray.broker.api.shared import Context
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import Buffer, records_said, unfolds_at_once, unfolds_to

# The cost of work on the loop, in nanoseconds. Every batch has its price, every record and every eight bytes.
# A compressed batch may be made of so many small frames that its bytes cost more than those that it unfolds
# to, and may hold as many records as those bytes allow.
_EVERY_BATCH: Final = 8 << 10
_RECORD: Final = 24
_BYTES_A_NANOSECOND: Final = 8
_SMALLEST_RECORD: Final = 7
_COMPRESSED: Final = 64


class DecompressionBudget:
    """The bytes to which the compressed batches of a request may still unfold."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = self.left = limit

    def refused(self) -> BatchRejected:
        """The refusal of a batch. After it, every compressed batch of the request is refused without a try:
        trying them all would be the very work that the budget forbids."""
        self.left = 0
        return BatchRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batches of one request may decompress to {self.limit} bytes together: send fewer in one.",
        )


def _cost_of_looking(records: Buffer, said: int) -> int:
    """The cost of checking the checksum and every record. `said`: the stated size of a compressed batch, 0
    for one that is not compressed."""
    size = len(records)
    most = max(size, said) // _SMALLEST_RECORD
    count = records_said(records)
    return size // _BYTES_A_NANOSECOND + _RECORD * (most if count < 0 else min(count, most))


def judge_at_once(context: Context, parts: Iterable[ProducedPart], request: DecompressionBudget) -> bool:
    """All that can be judged within this turn of the loop; whether that was all there is."""
    is_all = True
    for part in parts:
        if part.refused is None and not _judge_at_once(context, part, request):
            is_all = False
    return is_all


async def judge_in_turn(context: Context, part: ProducedPart, request: DecompressionBudget) -> None:
    """Skips a batch that was judged already: that may have changed it."""
    if part.refused is not None or part.accepted is not None:
        return
    await context.services.turns.wait(context.services.runtime)
    if not _judge_at_once(context, part, request):
        try:
            part.accepted = await _accept_in_thread(context, part, request)
        except BatchRejected as refused:
            part.refused = refused


def _judge_at_once(context: Context, part: ProducedPart, request: DecompressionBudget) -> bool:
    """False for a batch that has to wait, for a thread or for its turn."""
    services = context.services
    turns = services.turns
    if turns.left <= 0:
        return False
    assert part.topic is not None
    records = part.data.records
    settings = part.topic.settings
    cost = _EVERY_BATCH
    said = 0
    if records:
        said = unfolds_at_once(records)
        if said < 0 or settings.compression != "producer":
            return False
        if not said:
            size = len(records)
            count = records_said(records)
            most = size // _SMALLEST_RECORD
            cost += size // _BYTES_A_NANOSECOND + _RECORD * (count if 0 <= count < most else most)
        else:
            cost += _cost_of_looking(records, said)
            if said > request.left:
                return False
            cost += _COMPRESSED * len(records) + said
            said = min(said, services.settings.decompressed_bytes)
    try:
        accepted = part.accepted = accept(
            records, settings, context.header.api_version, services.runtime.wall_ms(), said, at_once=True
        )
    except TakesLong:
        return False
    except BatchRejected as refused:
        part.refused = refused
        return True
    finally:
        turns.pay(cost)
    if said:
        request.left -= accepted.batch.unfolded
        turns.left += said - accepted.batch.unfolded
    return True


async def _accept_in_thread(
    context: Context, part: ProducedPart, request: DecompressionBudget
) -> AcceptedBatch:
    records = part.data.records
    assert part.topic is not None
    assert records is not None  # an empty part was refused before
    said = unfolds_to(records)
    if said and request.left <= 0:
        raise request.refused()
    most = context.services.settings.decompressed_bytes
    limit = min(most, request.left) if said else most
    word = max(said, len(records))  # a batch may also have to be compressed here
    try:
        try:
            accepted = await _try_in_thread(context, part, min(word, limit))
        except BatchRejected as refused:
            if refused.code != ErrorCode.MESSAGE_TOO_LARGE or word >= limit:
                raise
            accepted = await _try_in_thread(context, part, limit)  # its frame stated too little
    except BatchRejected as refused:
        if (
            refused.code != ErrorCode.MESSAGE_TOO_LARGE
            or limit == most
            or len(records) > (part.topic.settings.max_message_bytes)
        ):
            raise
        raise request.refused() from None
    if said:
        request.left -= accepted.batch.unfolded
    return accepted


async def _try_in_thread(context: Context, part: ProducedPart, limit: int) -> AcceptedBatch:
    services = context.services
    records = part.data.records
    assert part.topic is not None
    assert records is not None
    return await services.unfolding.in_thread(
        services.runtime,
        limit + len(records),
        accept,
        records,
        part.topic.settings,
        context.version,
        services.runtime.wall_ms(),
        limit,
    )
