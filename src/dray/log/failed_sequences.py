"""Batches that failed, by producer, so that the batches behind them are not taken for a producer's first.

A producer that a stream does not know may start at any sequence: its state may have expired. But a producer
with several batches in flight is unknown too when its very first one fails (its upload was lost, say) and the
second comes next. If the second were appended, it would stand before the first for ever, and the first, sent
again, would be refused. The log cannot tell these cases apart. The broker that saw the failure can, and
remembers it for as long as a client may still be trying.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

from dray.log.producer_state import SEQUENCES
from dray.log.types import OutOfOrderSequence, ProducerFenced
from dray.records import NO_PRODUCER

_REMEMBERED: Final = 10_000
_REMEMBERED_MS: Final = 10 * 60_000


class Sequenced(Protocol):
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class FailedSequences:
    """Per stream and producer: the newest epoch in which a batch failed, and the earliest that did."""

    def __init__(self, limit: int = _REMEMBERED) -> None:
        self._limit = limit
        self._failed: OrderedDict[tuple[int, int], tuple[int, int, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._failed)

    def note(self, stream: int, batch: Sequenced, now_ms: int) -> None:
        if batch.producer_id == NO_PRODUCER:
            return
        key = (stream, batch.producer_id)
        epoch, sequence, _ = self._recent(key, now_ms) or (-1, 0, 0)
        if batch.producer_epoch < epoch:
            return
        if batch.producer_epoch > epoch or is_behind(batch.base_sequence, sequence):
            epoch, sequence = batch.producer_epoch, batch.base_sequence
        self._failed[key] = epoch, sequence, now_ms
        self._failed.move_to_end(key)
        if len(self._failed) > self._limit:
            self._failed.popitem(last=False)

    def _recent(self, key: tuple[int, int], now_ms: int) -> tuple[int, int, int] | None:
        failed = self._failed.get(key)
        return None if failed is None or now_ms - failed[2] > _REMEMBERED_MS else failed

    def check(self, stream: int, batch: Sequenced, now_ms: int) -> None:
        """For a batch of a producer that the stream does not know. Raises if an earlier batch failed, or one
        of a newer epoch: then the producer has started anew, and this batch is a straggler."""
        failed = self._recent((stream, batch.producer_id), now_ms)
        if failed is None:
            return
        epoch, sequence, _ = failed
        if batch.producer_epoch < epoch:
            raise ProducerFenced(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, but epoch {epoch} was seen"
            )
        if batch.producer_epoch == epoch and is_behind(sequence, batch.base_sequence):
            raise OutOfOrderSequence(
                f"producer {batch.producer_id} sent sequence {batch.base_sequence}, "
                f"but {sequence} failed before it and is next"
            )


def is_behind(sequence: int, other: int) -> bool:
    """Is `sequence` before `other`? Sequences wrap, so the shorter way round counts."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
