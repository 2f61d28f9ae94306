"""Batches that failed, by producer, so that the batches behind them are not taken for a producer's first.

A producer that a stream does not know may start at any sequence: its state may have expired. But a producer
with several batches in flight is unknown too when its very first one fails (its upload was lost, say) and the
second comes next. If the second were appended, it would stand before the first for ever, and the first, sent
again, would be refused. The log cannot tell these cases apart. The broker that saw the failure can, and
remembers it for as long as a client may still be trying.

A batch behind a failed one gets the same answer: to be sent again. "Out of order" would be wrong. On that
answer librdkafka takes a new epoch, and sends the failed batch once more in it. If the write of the first
try, whose reply was lost, still applies, the batch is there twice.

So it is with a batch whose predecessor is under way at another broker, which appended the one before that:
this broker has seen no failure, and a new epoch would again double the batch that is on its way. No commit
takes longer than a known time. A gap that is older than that is one.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple, Protocol

from dray.kafka.records import NO_PRODUCER
from dray.log.producer_state import SEQUENCES
from dray.log.types import LogUnavailable, ProducerFenced

REMEMBERED: Final = 10_000  # of each domain
_REMEMBERED_MS: Final = 10 * 60_000


class Sequenced(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class _Failure(NamedTuple):
    epoch: int
    earliest: int
    latest: int
    at_ms: int


class _Gap(NamedTuple):
    epoch: int
    expected: int
    since_ms: int


class FailedSequences:
    """Per stream and producer: the newest epoch in which a batch failed, the earliest that did, and the
    latest; and the gap that another broker may be about to fill."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._failed: OrderedDict[tuple[int, int], _Failure] = OrderedDict()
        self._gaps: OrderedDict[tuple[int, int], _Gap] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def note(self, stream: int, batch: Sequenced, now_ms: int) -> None:
        if batch.producer_id == NO_PRODUCER:
            return
        key = (stream, batch.producer_id)
        epoch, earliest, latest, _ = self._recent(key, now_ms) or (-1, 0, 0, 0)
        if batch.producer_epoch < epoch:
            return
        if batch.producer_epoch > epoch:
            earliest = latest = batch.base_sequence
        elif is_behind(batch.base_sequence, earliest):
            earliest = batch.base_sequence
        elif is_behind(latest, batch.base_sequence):
            latest = batch.base_sequence
        self._failed[key] = _Failure(batch.producer_epoch, earliest, latest, now_ms)
        self._failed.move_to_end(key)
        if len(self._failed) > self._limit:
            self._failed.popitem(last=False)

    def _recent(self, key: tuple[int, int], now_ms: int) -> _Failure | None:
        failed = self._failed.get(key)
        return None if failed is None or now_ms - failed.at_ms > _REMEMBERED_MS else failed

    def check(self, stream: int, batch: Sequenced, now_ms: int) -> None:
        """For a batch of a producer that the stream does not know. Raises if an earlier batch failed, or one
        of a newer epoch: then the producer has started anew, and this batch is a straggler."""
        failed = self._recent((stream, batch.producer_id), now_ms)
        if failed is None:
            return
        if batch.producer_epoch < failed.epoch:
            raise ProducerFenced(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"but epoch {failed.epoch} was seen"
            )
        if batch.producer_epoch == failed.epoch and is_behind(failed.earliest, batch.base_sequence):
            raise _to_be_sent_again(batch, failed.earliest)

    def gap(self, stream: int, batch: Sequenced, expected: int, now_ms: int) -> LogUnavailable | None:
        """For a batch that is out of order, where `expected` is next: the answer if that one failed here, as
        it may come yet."""
        failed = self._recent((stream, batch.producer_id), now_ms)
        if failed is None or failed.epoch != batch.producer_epoch:
            return None
        if is_behind(expected, failed.earliest) or is_behind(failed.latest, expected):
            return None
        return _to_be_sent_again(batch, expected) if is_behind(expected, batch.base_sequence) else None

    def young_gap(
        self, stream: int, batch: Sequenced, expected: int, now_ms: int, patience_ms: int
    ) -> LogUnavailable | None:
        """For a batch that is out of order, where `expected` is next and another broker may have it: the
        answer until the gap has stood for so long."""
        if not is_behind(expected, batch.base_sequence):
            return None
        key = (stream, batch.producer_id)
        gap = self._gaps.get(key)
        if gap is None or (gap.epoch, gap.expected) != (batch.producer_epoch, expected):
            gap = self._gaps[key] = _Gap(batch.producer_epoch, expected, now_ms)
            self._gaps.move_to_end(key)
            if len(self._gaps) > self._limit:
                self._gaps.popitem(last=False)
        return (
            None if now_ms - gap.since_ms >= patience_ms else _to_be_sent_again(batch, expected, "is missing")
        )


def _to_be_sent_again(batch: Sequenced, other: int, fate: str = "failed") -> LogUnavailable:
    return LogUnavailable(
        f"producer {batch.producer_id} sent sequence {batch.base_sequence}, but {other} {fate} before it: "
        "both are to be sent again"
    )


def is_behind(sequence: int, other: int) -> bool:
    """Is `sequence` before `other`? Sequences wrap, so the shorter way round counts."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
