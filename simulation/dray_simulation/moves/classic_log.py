"""A partition of a classic source: leaders, a log that replicas follow, transactions, retention, elections.

Bytes are kept as Kafka keeps them: a batch gets its offset and the leader's epoch, and nothing else changes.
Records that an election takes away, clean or not, are written down: so an oracle knows whose fault a loss is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.kafka.records import BatchHeader, Record, crc32c, decode, read_header, twin
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import ABORT, marker_of, walk_batches
from dray.migration.source.source import Leadership

REMEMBERED: Final = 5
_CHECKED_FROM: Final = 21


class ClassicBatch(NamedTuple):
    data: bytes
    header: BatchHeader

    @property
    def base(self) -> int:
        return self.header.base_offset

    @property
    def end(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return self.header.base_sequence + self.header.last_offset_delta

    def records(self) -> list[Record]:
        return list(decode(as_data(self.data), sparse=True).records())


class SourceAbort(NamedTuple):
    producer_id: int
    first: int
    last: int  # its marker


@dataclass(slots=True)
class KnownProducer:
    epoch: int
    last_sequence: int = -1
    batches: list[ClassicBatch] = field(default_factory=list)
    transaction_first: int = -1


class OutOfOrder(Exception):
    """The batch's sequence is not the producer's next, or its epoch is an old one."""


def is_whole(data: bytes) -> bool:
    return crc32c(data[_CHECKED_FROM:]) == read_header(data).checksum


class ClassicPartition:
    def __init__(self, number: int) -> None:
        self.number = number
        self.leadership = Leadership(number % 3, 0)
        self.start = 0
        self.high_watermark = 0
        self.batches: list[ClassicBatch] = []  # also those below the start, for what they say of producers
        self.producers: dict[int, KnownProducer] = {}
        self.aborted: list[SourceAbort] = []
        self.ever: dict[int, set[bytes]] = {}  # batches that consumers could read, by offset, epoch aside
        self.lost: set[tuple[int, bytes]] = set()  # offsets and values that an unclean election took

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def last_stable(self) -> int:
        open_ones = [
            each.transaction_first for each in self.producers.values() if each.transaction_first >= 0
        ]
        return min([self.high_watermark, *open_ones])

    # --- growing

    def find(self, data: bytes) -> ClassicBatch | None:
        """A batch that is there already: a retry. Raises `OutOfOrder`."""
        header = read_header(data)
        known = self.producers.get(header.producer_id)
        if known is None and self.lost and header.producer_id >= 0 and header.base_sequence:
            raise OutOfOrder  # all of it was lost: Kafka would take it, and leave a gap of its own making
        if header.producer_id < 0 or known is None or header.producer_epoch > known.epoch:
            return None
        for each in known.batches:
            if each.header.base_sequence == header.base_sequence and (
                each.header.last_offset_delta == header.last_offset_delta
            ):
                return each
        if header.producer_epoch < known.epoch:
            raise OutOfOrder
        if known.last_sequence >= 0 and header.base_sequence != known.last_sequence + 1:
            raise OutOfOrder
        return None

    def append(self, data: bytes) -> ClassicBatch:
        stored = bytearray(data)
        stored[:8] = self.end.to_bytes(8, "big")
        stored[12:16] = self.leadership.epoch.to_bytes(4, "big")
        batch = ClassicBatch(bytes(stored), read_header(stored))
        self.batches.append(batch)
        self._fold(batch)
        return batch

    def mark(self, producer_id: int, epoch: int, now_ms: int, *, aborts: bool) -> ClassicBatch:
        """The end of a producer's transaction."""
        record = Record(0, now_ms, b"\0\0\0\0" if aborts else b"\0\0\0\1", b"\0\0\0\0\0\0", ())
        return self.append(
            bytes(
                twin.encode(
                    [record],
                    attributes=TRANSACTIONAL | CONTROL,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=-1,
                )
            )
        )

    def replicated(self, end: int) -> None:
        """All replicas in sync have it: consumers see it."""
        before, self.high_watermark = self.high_watermark, max(self.high_watermark, end)
        for batch in reversed(self.batches):
            if batch.end <= before:
                break
            if batch.end <= self.high_watermark:
                self.ever.setdefault(batch.base, set()).add(without_epoch(batch.data))

    def _fold(self, batch: ClassicBatch) -> None:
        header = batch.header
        if header.producer_id < 0:
            return
        known = self.producers.get(header.producer_id)
        if known is None or header.producer_epoch > known.epoch:
            known = self.producers[header.producer_id] = KnownProducer(header.producer_epoch)
        if header.attributes & CONTROL:
            [walked] = walk_batches(batch.data, from_offset=header.base_offset)
            if marker_of(batch.data, walked) == ABORT and known.transaction_first >= 0:
                self.aborted.append(
                    SourceAbort(header.producer_id, known.transaction_first, header.base_offset)
                )
            known.transaction_first = -1
            return
        known.last_sequence = batch.last_sequence
        known.batches = [*known.batches, batch][-REMEMBERED:]
        if header.attributes & TRANSACTIONAL and known.transaction_first < 0:
            known.transaction_first = header.base_offset

    # --- shrinking

    def elect(self, *, lost: int = 0) -> None:
        """Another leader, which has what all replicas in sync have; after an unclean election so many batches
        less, but none of a transaction."""
        self.batches = [batch for batch in self.batches if batch.end <= self.high_watermark]
        while lost and self.end > self.start and not self.batches[-1].header.attributes & TRANSACTIONAL:
            batch = self.batches.pop()
            self.lost.update((record.offset, record.value or b"") for record in batch.records())
            lost -= 1
        self.high_watermark = self.end
        self.leadership = Leadership((self.leadership.leader + 1) % 3, self.leadership.epoch + 1)
        self.producers, self.aborted = {}, []
        for batch in self.batches:
            self._fold(batch)

    def expire(self, batches: int) -> None:
        """The source's retention: its oldest batches go. Transactions that are open keep theirs."""
        for batch in self.batches:
            if batch.end <= self.start:
                continue
            if not batches or batch.end > self.last_stable:
                return
            self.start, batches = batch.end, batches - 1

    def delete_before(self, offset: int) -> None:
        """DeleteRecords: also within a batch."""
        self.start = max(self.start, min(offset, self.last_stable))

    def expire_all(self) -> None:
        """All of it, which is committed: what is known of its producers stays."""
        self.start = self.end

    # --- reading

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The greatest epoch up to this one, and where records of later ones begin."""
        later = [batch.base for batch in self.batches if batch.header.leader_epoch > epoch]
        known = [batch.header.leader_epoch for batch in self.batches if batch.header.leader_epoch <= epoch]
        return max(known, default=-1), min(later, default=self.end)

    def read(self, offset: int, upto: int, max_bytes: int) -> list[ClassicBatch]:
        """From the batch that holds the offset on."""
        found: list[ClassicBatch] = []
        size = 0
        for batch in self.batches:
            if batch.end <= offset:
                continue
            if batch.end > upto or (found and size + len(batch.data) > max_bytes):
                break
            found.append(batch)
            size += len(batch.data)
        return found


def without_epoch(data: bytes) -> bytes:
    """Dray serves what it mirrored with the epoch of its own topic: outside of the checksum."""
    return data[:12] + data[16:]
