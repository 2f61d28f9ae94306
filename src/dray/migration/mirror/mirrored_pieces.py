"""Batches that a source gave, as what they become here: index entries, and what they say of producers.

Everything is found in one walk: every checksum, offsets that rise, rows to search by, times, the transactions
that were aborted, and the producers as a leader of Kafka folds them. An answer to a fetch names an aborted
transaction by its producer and its first offset alone. It ends with the producer's next abort marker: in
these batches, or in later ones. An entry lists what overlaps *it*, so a transaction that is still open at the
end of an entry reaches to that end, and the answer that brings its next batches names it again.

If the source has deleted offsets that were not mirrored yet, a *hole* is taken in, as a piece of its own: an
entry over the offsets that are gone, with nothing but an empty batch. The knowledge of producers ends there:
in the deleted batches the source has gone on with them. So does a transaction that was open before it: its
marker may be gone too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from dray.kafka.records import HEADER_SIZE, NO_PRODUCER, BatchHeader, Buffer, filler, read_header
from dray.kafka.records.header import LOG_APPEND_TIME
from dray.log.entries import NO_TIMESTAMP, EntryKind, HighWatermark, IndexEntry
from dray.log.origins import NO_EPOCH
from dray.log.outside_table import AbortedRange, OutsideRow, OutsideTable
from dray.log.producer_state import (
    RETRIED_MS,
    SEQUENCES,
    ProducerEntry,
    ProducerStates,
    RememberedBatch,
)
from dray.migration.entries.lay_down import DAY_MS, PIECE_BYTES
from dray.migration.entries.segments import ForeignLayout
from dray.migration.formats.batches import ABORT, SegmentBatch, marker_of, walk_batches

MOST_ABORTED: Final = 2_048
"""Transactions that one entry lists: the entry is part of a value of the metadata store."""

NO_BATCH: Final = RememberedBatch(-1, -1, -1, -1)
"""Of a producer that wrote only markers in its epoch: its next sequence is 0."""


def hole_before(offset: int) -> bytes:
    """The batch of a hole: the source's log now begins at this offset, above the end of the mirror."""
    return filler(offset - 1, NO_EPOCH)


def is_hole(header: BatchHeader) -> bool:
    """No batch of a source is so: an empty one of its own has a producer, and each has an epoch."""
    return header.leader_epoch == NO_EPOCH and header.producer_id == NO_PRODUCER and not header.record_count


@dataclass(slots=True)
class MirroredPiece:
    """Whole batches that become one entry. Positions count from the first of them."""

    begin: int  # where they begin in what the source gave
    start: int  # the first offset that the entry covers: there may be a hole before the first batch
    end: int
    size: int = 0
    epoch: int = -1  # of the last batch, as the source gave it
    min_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    rows: list[OutsideRow] = field(default_factory=list)
    aborted: list[AbortedRange] = field(default_factory=list)

    def entry(
        self,
        over: HighWatermark,
        object_id: UUID,
        path: str,
        object_size: int,
        position: int,
        created_ms: int,
    ) -> IndexEntry:
        """The entry that follows this high watermark. `position`: where the batches begin in the object."""
        table = OutsideTable(
            ForeignLayout.KAFKA,
            "",
            "",
            object_size,
            position + self.size,
            tuple([row._replace(position=position + row.position) for row in self.rows]),
            tuple(self.aborted),
        )
        running, running_offset = over.max_timestamp, over.max_timestamp_offset
        if self.max_timestamp > running:
            running, running_offset = self.max_timestamp, self.start
        return IndexEntry(
            start=self.start,
            end=self.end,
            cumulative_size=over.cumulative_size + self.size,
            created_ms=created_ms,
            min_timestamp=self.min_timestamp,
            max_timestamp=self.max_timestamp,
            running_max_timestamp=running,
            running_max_offset=running_offset,
            object_id=object_id,
            path=path,
            table=table.encode(),
            kind=EntryKind.OUTSIDE,
        )


class _AbortedAtWork:
    """The aborted transactions of an answer, as a consumer that reads committed records applies them."""

    def __init__(self, named: Iterable[tuple[int, int]]) -> None:
        """`named`: producer id and first offset."""
        self._coming = sorted({(first, producer) for producer, first in named}, reverse=True)
        self._open: dict[int, int] = {}  # first offsets by producer

    def take(self, batch: SegmentBatch, data: Buffer, found: list[AbortedRange]) -> None:
        last = batch.last_offset
        while self._coming and self._coming[-1][0] <= last:
            first, producer = self._coming.pop()
            before = self._open.get(producer)
            if before is not None:  # its marker is no longer in the source's log
                found.append(AbortedRange(producer, before, first - 1))
            self._open[producer] = first
        if self._open and batch.is_control and marker_of(data, batch) == ABORT:
            opened = self._open.pop(batch.header.producer_id, None)
            if opened is not None:
                found.append(AbortedRange(batch.header.producer_id, opened, last))

    def close(self, piece: MirroredPiece) -> None:
        """An open transaction goes on in the next entry: in this one it reaches to the end."""
        piece.aborted += [
            AbortedRange(producer, first, piece.end - 1) for producer, first in self._open.items()
        ]
        piece.aborted.sort(key=lambda one: (one.first_offset, one.producer_id))

    def count(self, batch: SegmentBatch) -> int:
        """How many are open once this batch is taken. One more at most: a batch is of one transaction."""
        return len(self._open) + bool(self._coming and self._coming[-1][0] <= batch.last_offset)


def pieces_of(
    data: Buffer,
    start: int,
    aborted: Sequence[tuple[int, int]],
    producers: ProducerStates,
    now_ms: int,
    *,
    most_bytes: int,
    most_aborted: int,
    may_begin_before: bool = False,
) -> list[tuple[MirroredPiece, ProducerStates]]:
    """The entries that batches make, each with the producers at its end: a fork of those before it. One entry
    holds as much as it may: a midnight (where the broker stamped the times), much, or many aborted
    transactions begin another. `may_begin_before`: the first batch may begin before `start`, as the source's
    log does not begin where a batch does. Raises `ForeignFault`."""
    at_work = _AbortedAtWork(aborted)
    found: list[tuple[MirroredPiece, ProducerStates]] = []
    piece: MirroredPiece | None = None
    day = row_at = -1
    for batch in walk_batches(data, from_offset=_least(data, start) if may_begin_before else start):
        header = batch.header
        stamped = header.attributes & LOG_APPEND_TIME
        if piece is not None and (
            piece.size + header.size > most_bytes
            or (stamped and header.max_timestamp // DAY_MS != day)
            or len(piece.aborted) + at_work.count(batch) > most_aborted
        ):
            at_work.close(piece)
            start, piece = piece.end, None
        if piece is None:
            producers = producers.fork()
            piece = MirroredPiece(batch.position, start, start)
            found.append((piece, producers))
            piece.rows.append(OutsideRow(start, 0, NO_TIMESTAMP))
            day, row_at = header.max_timestamp // DAY_MS, 0
        elif piece.size - row_at >= PIECE_BYTES:
            row_at = piece.size
            piece.rows.append(OutsideRow(header.base_offset, row_at, piece.max_timestamp))
        at_work.take(batch, data, piece.aborted)
        _fold(producers, batch, data, now_ms)
        oldest = header.max_timestamp if stamped else header.base_timestamp
        if oldest >= 0 and (piece.min_timestamp < 0 or oldest < piece.min_timestamp):
            piece.min_timestamp = oldest
        piece.max_timestamp = max(piece.max_timestamp, header.max_timestamp)
        piece.size += header.size
        piece.end = batch.last_offset + 1
        piece.epoch = header.leader_epoch
    if piece is not None:
        at_work.close(piece)
    return found


def _least(data: Buffer, start: int) -> int:
    """The least offset at which the first batch that holds `start` may begin."""
    if len(data) < HEADER_SIZE:
        return start
    header = read_header(data)
    holds_start = header.base_offset + header.last_offset_delta >= start
    return max(0, min(header.base_offset, start)) if holds_start else start


def fold_batches(data: Buffer, producers: ProducerStates, now_ms: int, start: int, end: int) -> None:
    """The producers of stored batches, as far as these lie in an entry. Raises `ForeignFault`."""
    for batch in walk_batches(data):
        if start <= batch.last_offset < end:
            _fold(producers, batch, data, now_ms)


def _fold(producers: ProducerStates, batch: SegmentBatch, data: Buffer, now_ms: int) -> None:
    """As a leader of Kafka does: a marker of a later epoch begins the sequences anew."""
    header = batch.header
    if header.producer_id == NO_PRODUCER:
        if is_hole(header):
            producers.clear()
        return
    known = producers.get(header.producer_id)
    at_ms = _written_ms(header.max_timestamp, now_ms, producers.expiry_ms)
    if known is not None:
        at_ms = max(at_ms, known.last_ms)
    if batch.is_control:
        if marker_of(data, batch) is None:
            return
        if known is None or header.producer_epoch != known.epoch:
            known = ProducerEntry(header.producer_epoch, at_ms, (NO_BATCH,))
        producers.put(header.producer_id, known._replace(last_ms=at_ms))
        return
    producers.remember(
        header.producer_id,
        header.producer_epoch,
        RememberedBatch(
            header.base_sequence,
            # By offsets: where compaction has removed records, the sequences of a batch stay.
            (header.base_sequence + header.last_offset_delta) % SEQUENCES,
            header.base_offset,
            header.max_timestamp if header.attributes & LOG_APPEND_TIME else -1,
        ),
        at_ms,
    )


def _written_ms(timestamp: int, now_ms: int, expiry_ms: int) -> int:
    """When a batch that is mirrored now was written, for its producer's expiry. A leader of Kafka goes by the
    time in the batch, and so its producers of long ago are not among those it remembers: they need not be
    here either, though they are mirrored today. But each is kept for as long as a batch may be sent again,
    whatever its times say."""
    if timestamp < 0:
        return now_ms
    return min(now_ms, max(timestamp, now_ms - expiry_ms) + RETRIED_MS)
