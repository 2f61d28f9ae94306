"""Batches of idempotent producers that a connection's requests brought, and that never reached the log.

A batch is refused here if this broker does not know its topic yet, or if a store did not answer. The client
will send it again. But the client may have sent the next batches already, and by the time those are judged
the topic may be known. The log cannot see that a batch is missing: a producer that it does not know may start
at any sequence. So the batches behind a refused one are refused as well, until that one has come again.

This is kept per connection: a client that connects anew sends everything again, in order.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from dray.log.failed_sequences import is_behind
from dray.records import HEADER_SIZE, NO_PRODUCER, BatchHeader, Buffer, read_header
from dray.records.header import MAGIC

REFUSALS: Final = "produce refusals"
"""Under this name a connection's state has them, while there are any."""

_REMEMBERED: Final = 1000

Place = tuple[str | UUID, int]
"""A topic, as the request names it, and a partition."""


class Refusals:
    """The earliest refused batch per partition and producer."""

    def __init__(self) -> None:
        self._refused: dict[tuple[Place, int], tuple[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(self, place: Place, records: Buffer | None) -> None:
        found = _idempotent(records)
        if found is None or len(self._refused) >= _REMEMBERED:
            return
        key = place, found.producer_id
        epoch, sequence = self._refused.get(key, (-1, 0))
        if found.producer_epoch > epoch or (
            found.producer_epoch == epoch and is_behind(found.base_sequence, sequence)
        ):
            self._refused[key] = found.producer_epoch, found.base_sequence

    def overtakes(self, place: Place, records: Buffer | None) -> bool:
        """Is this batch behind one that was refused? That one itself, or a newer epoch, ends the wait."""
        found = _idempotent(records)
        if found is None:
            return False
        key = place, found.producer_id
        refused = self._refused.get(key)
        if refused is None:
            return False
        refused_epoch, refused_sequence = refused
        epoch, sequence = found.producer_epoch, found.base_sequence
        if epoch == refused_epoch and is_behind(refused_sequence, sequence):
            return True
        if epoch > refused_epoch or refused == (epoch, sequence):
            del self._refused[key]
        return False


def _idempotent(records: Buffer | None) -> BatchHeader | None:
    """The header of a batch of an idempotent producer, else None. Whether the batch is sound is checked
    elsewhere."""
    if records is None or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.magic == MAGIC and header.producer_id != NO_PRODUCER else None
