"""The producers of a partition, folded from its batches as a broker does when it recovers."""

from __future__ import annotations

from dray.foreign.batches import ABORT, SegmentBatch, marker_of
from dray.foreign.kafka_files import AbortedTransaction, ProducerRow
from dray.records import NO_PRODUCER, Buffer

_NONE = -1


class ProducerFold:
    def __init__(self) -> None:
        self._rows: dict[int, ProducerRow] = {}

    def take(self, batch: SegmentBatch, segment: Buffer) -> AbortedTransaction | None:
        """The next batch. The answer is the transaction that its marker aborts."""
        header = batch.header
        if header.producer_id == NO_PRODUCER:
            return None
        known = self._rows.get(header.producer_id)
        first = _NONE if known is None else known.transaction_first_offset
        if batch.is_control:
            marker = marker_of(segment, batch)
            if marker is None:
                return None
            if known is None or header.producer_epoch > known.epoch:
                # Its sequences begin again in the new epoch.
                known = ProducerRow(header.producer_id, header.producer_epoch, -1, -1, 0, 0, _NONE, _NONE)
            self._rows[header.producer_id] = known._replace(
                timestamp=header.max_timestamp, transaction_first_offset=_NONE
            )
            if marker != ABORT or first < 0:
                return None
            return AbortedTransaction(header.producer_id, first, batch.last_offset, batch.last_offset + 1)
        opened = header.base_offset if batch.is_transactional and first < 0 else first
        self._rows[header.producer_id] = ProducerRow(
            header.producer_id,
            header.producer_epoch,
            (header.base_sequence + header.last_offset_delta) % (1 << 31),
            batch.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
            _NONE if known is None else known.coordinator_epoch,
            opened if batch.is_transactional else _NONE,
        )
        return None

    def rows(self) -> list[ProducerRow]:
        return [row for _, row in sorted(self._rows.items())]
