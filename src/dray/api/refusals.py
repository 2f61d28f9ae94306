"""Batches of idempotent producers that a connection's requests brought, and that never reached the log.

A topic that this broker has not heard of yet, or a store that did not answer, has a batch refused here; the
client will send it again. But it may have sent the next ones already, and by the time those are looked at the
topic may be known. The log cannot tell that one is missing: a producer that it does not know may start at any
sequence. So what comes behind a refused batch is refused as well, until that one has come again.

A connection is where this belongs: a client that connects anew sends everything again, in order.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.log.failed_sequences import is_behind
from dray.log.producer_state import NO_PRODUCER
from dray.records import Buffer

_REMEMBERED: Final = 1000

_MAGIC_AT: Final = 16
_MAGIC: Final = 2
# producer id, its epoch, the sequence of the first record
_PRODUCER = Struct(">qhi")
_PRODUCER_AT: Final = 43

Place = tuple[str | UUID, int]
"""A topic, as the request names it, and a partition."""


class _Sequence(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int


class Refusals:
    """The earliest refused batch per partition and producer."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, place: Place, records: Buffer | None) -> None:
        found = _sequence_of(records)
        if found is None or len(self._refused) >= _REMEMBERED:
            return
        key = place, found.producer_id
        epoch, sequence = self._refused.get(key, (-1, 0))
        if found.epoch > epoch or (found.epoch == epoch and is_behind(found.sequence, sequence)):
            self._refused[key] = found.epoch, found.sequence

    def overtakes(self, place: Place, records: Buffer | None) -> bool:
        """Is this batch behind one that was refused? That one itself, or a newer epoch, ends the wait."""
        found = _sequence_of(records)
        if found is None:
            return False
        key = place, found.producer_id
        refused = self._refused.get(key)
        if refused is None:
            return False
        epoch, sequence = refused
        if found.epoch == epoch and is_behind(sequence, found.sequence):
            return True
        if found.epoch > epoch or (found.epoch == epoch and found.sequence == sequence):
            del self._refused[key]
        return False


def _sequence_of(records: Buffer | None) -> _Sequence | None:
    """None for what is no batch of an idempotent producer; whether it is sound is judged elsewhere."""
    if records is None or len(records) < _PRODUCER_AT + _PRODUCER.size or records[_MAGIC_AT] != _MAGIC:
        return None
    found = _Sequence._make(_PRODUCER.unpack_from(records, _PRODUCER_AT))
    return None if found.producer_id == NO_PRODUCER else found
