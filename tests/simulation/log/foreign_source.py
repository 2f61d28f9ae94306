"""A log that another system wrote, made up from a seed: producers, transactions, aborted ones, segments that
overlap. What it means is written down beside the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from dray.kafka.records import Record, twin
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.log.origins import CLASSIC, epoch_above
from dray.log.outside_table import AbortedRange
from dray.migration.entries.lay_down import AttachedStream, ForeignSegment, entries_of
from dray.migration.entries.segments import ForeignLayout
from dray.migration.formats.kafka_files import ProducerRow
from dray.objects.memory import MemoryBucket
from dray_simulation.checks.log_truth import Identity, identity_of, time_of

STORE = "source"
EPOCH = epoch_above(3)
HOLE: Identity = ("hole", -1, -1)
_TRANSACTIONAL_ID = 9


@dataclass(slots=True)
class SourceBatch:
    offset: int
    data: bytes
    records: list[Identity]  # holes where a reader of what is committed sees nothing


@dataclass(slots=True)
class SimulatedSource:
    random: Random
    now_ms: int
    batches: list[SourceBatch] = field(default_factory=list)
    aborted: list[AbortedRange] = field(default_factory=list)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    last: dict[int, tuple[list[bytes], bytearray, int, int]] = field(default_factory=dict)
    """By producer: its last batch, its values, its number and its base sequence."""

    @property
    def end(self) -> int:
        return sum(len(batch.records) for batch in self.batches)

    @property
    def records(self) -> list[Identity]:
        return [record for batch in self.batches for record in batch.records]

    def write(self) -> None:
        for number in range(self.random.randint(6, 14)):
            if self.random.random() < 0.35:
                self._transaction(number)
            else:
                self._produce(self.random.choice((1, 2)))
        for producer in (1, 2):
            if producer not in self.last:
                self._produce(producer)

    def _produce(self, producer: int) -> None:
        _, _, number, sequence = self.last.get(producer, ([], bytearray(), -1, 0))
        before = len(self.last[producer][0]) if producer in self.last else 0
        number, sequence = number + 1, sequence + before
        values = [b"p%d.0:%d:%d" % (producer, number, place) for place in range(self.random.randint(1, 3))]
        data = self._append(values, (producer, 0, sequence), 0)
        self.last[producer] = values, data, number, sequence

    def _transaction(self, number: int) -> None:
        """Records of it, others in between, and its marker."""
        first, is_aborted = self.end, self.random.random() < 0.6
        count = self.random.randint(1, 2)
        values = [b"plaintx%d:0:%d" % (number, place) for place in range(count)]
        producer = (_TRANSACTIONAL_ID, 0, 1000 * number)
        self._append(values, producer, TRANSACTIONAL, hidden=is_aborted)
        if self.random.random() < 0.5:
            self._produce(self.random.choice((1, 2)))
        marker = b"\0\0\0\0" if is_aborted else b"\0\0\0\1"
        record = Record(0, self.now_ms, marker, b"\0\0\0\0\0\0", ())
        data = twin.encode(
            [record],
            attributes=TRANSACTIONAL | CONTROL,
            producer_id=_TRANSACTIONAL_ID,
            producer_epoch=0,
            base_sequence=-1,
        )
        if is_aborted:
            self.aborted.append(AbortedRange(_TRANSACTIONAL_ID, first, self.end))
        self._add(data, [HOLE])

    def _append(
        self, values: list[bytes], producer: tuple[int, int, int], attributes: int, hidden: bool = False
    ) -> bytearray:
        identities = [identity_of(value) for value in values]
        records = [
            Record(place, time_of(identity), None, value, ())
            for place, (value, identity) in enumerate(zip(values, identities, strict=True))
        ]
        data = twin.encode(
            records,
            attributes=attributes,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
        )
        self._add(data, [HOLE] * len(values) if hidden else identities)
        return data

    def _add(self, data: bytearray, records: list[Identity]) -> None:
        stored = bytearray(data)
        stored[:8] = self.end.to_bytes(8, "big")
        self.batches.append(SourceBatch(self.end, bytes(stored), records))

    def attached(self) -> AttachedStream:
        """Cut into segments, some of which begin before the last one ended."""
        segments: list[ForeignSegment] = []
        place = 0
        while place < len(self.batches):
            count = self.random.randint(1, 4)
            first = max(0, place - self.random.choice((0, 0, 1, 2)))
            part = self.batches[first : place + count]
            segments.append(self._segment(part, self.batches[place].offset))
            place += count
        producers = [
            ProducerRow(
                producer,
                0,
                sequence + len(values) - 1,
                self._offset_of(values) + len(values) - 1,
                len(values) - 1,
                self.now_ms,
                0,
                -1,
            )
            for producer, (values, _, _, sequence) in self.last.items()
        ]
        entries = entries_of([(segment, []) for segment in segments], self.aborted, self.now_ms, 200)
        return AttachedStream(entries, 0, self.end, EPOCH, producers, CLASSIC)

    def _offset_of(self, values: list[bytes]) -> int:
        return self.records.index(identity_of(values[0]))

    def _segment(self, part: list[SourceBatch], start: int) -> ForeignSegment:
        data = b""
        rows: list[tuple[int, int]] = []
        for batch in part:
            rows.append((batch.offset + (len(batch.records) - 1 if rows else 0), len(data)))
            data += batch.data
        path = f"orders/{start:020d}.log"
        self.bucket.put(path, data, 0)
        times = [time_of(record) for batch in part for record in batch.records]
        return ForeignSegment(
            UUID(int=self.random.getrandbits(128)),
            STORE,
            path,
            ForeignLayout.KAFKA,
            start,
            part[-1].offset + len(part[-1].records),
            max([*times, self.now_ms]),
            min(times),
            rows,
            len(data),
            len(data),
        )
