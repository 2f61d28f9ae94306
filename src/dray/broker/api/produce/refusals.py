"""Batches of idempotent producers that a connection's requests brought, and that never reached the log.

A batch is refused here if this broker does not know its topic yet, or if a store did not answer. The client
will send it again. But the client may have sent the next batches already, and by the time those are judged
the topic may be known. The log cannot see that a batch is missing: a producer that it does not know may start
at any sequence. So the batches behind a refused one are refused as well, until that one has come again.

A batch that was handed over to another owner, without an answer, may be in the log there. A batch behind it
gets the same answer (`is_unclear`), and not that it is out of order: librdkafka would take that for a gap, go
on with another epoch, and send again what may be there already, under a number that no log can compare.

This is kept per connection: a client that connects anew sends everything again, in order. A refused batch may
also come through another broker, and then never comes again here. The log knows that: it has the producer
and its last sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from dray.broker.api.produce.batches import ProducedPart
from dray.kafka.records import HEADER_SIZE, NO_PRODUCER, BatchHeader, Buffer, read_header
from dray.kafka.records.header import MAGIC
from dray.log.append.failed_sequences import is_behind
from dray.log.types import ActiveProducer, LogError

REFUSALS: Final = "produce refusals"
"""Under this name a connection's state has them, while there are any."""

_REMEMBERED: Final = 1000

BY_ID: Final = 13
"""From this version on requests name topics by their ids."""

Place = tuple[str | UUID, int]
"""A topic, as the request names it, and a partition."""


def place_of(part: ProducedPart, version: int) -> Place:
    return part.named.topic_id if version >= BY_ID else part.named.name, part.data.index


class RefusedBatch(NamedTuple):
    place: Place
    producer_id: int
    epoch: int
    sequence: int  # its first


class KnownProducers(Protocol):
    async def producers(self, stream: int) -> Sequence[ActiveProducer]: ...


class Refusals:
    """The earliest refused batch per partition and producer."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], tuple[int, int]] = {}
        self._unclear: set[tuple[Place, int]] = set()

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, place: Place, records: Buffer | None, *, is_unclear: bool = False) -> None:
        found = _idempotent(records)
        if found is None or len(self._refused) >= _REMEMBERED:
            return
        key = place, found.producer_id
        epoch, sequence = self._refused.get(key, (-1, 0))
        if found.producer_epoch > epoch or (
            found.producer_epoch == epoch and is_behind(found.base_sequence, sequence)
        ):
            self._refused[key] = found.producer_epoch, found.base_sequence
        if is_unclear:
            self._unclear.add(key)

    def overtakes(self, place: Place, records: Buffer | None) -> bool:
        """Is this batch behind one that was refused? That one itself, or a newer epoch, ends the wait."""
        if self.overtaken(place, records) is not None:
            return True
        found = _idempotent(records)
        if found is None:
            return False
        key = place, found.producer_id
        refused = self._refused.get(key)
        if refused is not None and (
            found.producer_epoch > refused[0] or refused == (found.producer_epoch, found.base_sequence)
        ):
            del self._refused[key]
            self._unclear.discard(key)
        return False

    def is_unclear(self, place: Place, records: Buffer | None) -> bool:
        """May the batch that this one is behind be in a log?"""
        found = _idempotent(records)
        return found is not None and (place, found.producer_id) in self._unclear

    def overtaken(self, place: Place, records: Buffer | None) -> RefusedBatch | None:
        """The refused batch that this one is behind."""
        found = _idempotent(records)
        if found is None:
            return None
        epoch, sequence = self._refused.get((place, found.producer_id), (-1, 0))
        if found.producer_epoch != epoch or not is_behind(sequence, found.base_sequence):
            return None
        return RefusedBatch(place, found.producer_id, epoch, sequence)

    def forget(self, batch: RefusedBatch) -> None:
        key = batch.place, batch.producer_id
        self._refused.pop(key, None)
        self._unclear.discard(key)


async def forget_stored(refusals: Refusals, log: KnownProducers, stream: int, batch: RefusedBatch) -> None:
    """If the log has the batch by now, nothing waits for it any more. Otherwise, or if that cannot be found
    out, all stays as it is."""
    try:
        producers = await log.producers(stream)
    except LogError:
        return
    for each in producers:
        if (each.producer_id, each.epoch) == (batch.producer_id, batch.epoch):
            last = each.last_sequence
            if last == batch.sequence or is_behind(batch.sequence, last):
                refusals.forget(batch)


def _idempotent(records: Buffer | None) -> BatchHeader | None:
    """The header of a batch of an idempotent producer, else None. Whether the batch is sound is checked
    elsewhere."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.magic == MAGIC and header.producer_id != NO_PRODUCER else None
