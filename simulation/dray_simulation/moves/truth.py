"""The truth about a topic that moves: its log is the source's up to the boundary, and Dray's own from there.

The ledger is outside of both sides: it hears of every acknowledgement, whichever side gave it. The log's
truth is written down at the store, as everywhere in the simulation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.kafka.records import decode, read_header
from dray.kafka.records.header import CONTROL
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.origins import CLASSIC
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import walk_batches
from dray.migration.mirror.mirrored_pieces import is_hole
from dray_simulation.checks.log_truth import Identity, LogTruth, StreamTruth, Violation, identity_of
from dray_simulation.moves.classic_cluster import ClassicCluster
from dray_simulation.moves.classic_log import ClassicPartition, without_epoch

HOLE: Final[Identity] = ("hole", -1, -1)
"""A reader of committed records sees nothing there: a marker, or a record of an aborted transaction."""


class MovedTruth(LogTruth):
    def __init__(self, source: ClassicCluster, leader_epoch: int) -> None:
        super().__init__(adopts=True)
        self._source = source
        self._leader_epoch = leader_epoch
        self.partitions: dict[int, ClassicPartition] = {}  # by stream
        self.boundaries: dict[int, int] = {}
        self.mirrored = 0
        self.holes = 0
        self.skipped: dict[int, set[int]] = {}  # by stream: what the source deleted before it was mirrored
        self.ledger = MoveLedger(self)

    def lay_down(self, streams: Sequence[int]) -> None:
        """The streams that the topic will have: they are the source's, from where its log begins now."""
        self.create(streams)
        for stream, partition in zip(streams, self._source.partitions, strict=True):
            self.partitions[stream] = partition
            self.boundaries[stream] = CLASSIC
            self.streams[stream].records = [HOLE] * partition.start
            self.streams[stream].start = partition.start

    def is_gone(self, partition: int, producer: str, number: int) -> None:
        """The source has deleted this batch, the producer's last, before the topic was linked."""
        name, epoch = producer.split(".")
        self._last[self.stream_of(partition), name] = int(epoch), number

    def stream_of(self, partition: int) -> int:
        return next(stream for stream, found in self.partitions.items() if found.number == partition)

    def _high_watermark(self, truth: StreamTruth, new: HighWatermark) -> None:
        end = len(truth.records)
        partition = self.partitions.get(truth.number)
        if partition is None:
            super()._high_watermark(truth, new)
            return
        if end == 0 and not truth.records and new.end and new.head is None:
            raise Violation(f"stream {truth.number}: offsets skip at 0")
        super()._high_watermark(truth, new)
        if new.closed:
            return
        before = self.boundaries[truth.number]
        if new.origin is None or new.origin.leader_epoch != self._leader_epoch:
            raise Violation(f"stream {truth.number}: where it began is forgotten")
        now = new.origin.boundary
        if before == CLASSIC and len(truth.records) > end:
            assert new.head is not None
            self._check_mirrored(partition, new.head)
        if before not in (CLASSIC, now):
            raise Violation(f"stream {truth.number}: the boundary moved from {before} to {now}")
        if before == CLASSIC and now != CLASSIC:
            if now != end or len(truth.records) != end:
                raise Violation(f"stream {truth.number}: switched at {now}, though the log ended at {end}")
            self.boundaries[truth.number] = now
            self.ledger.switched(partition.number)

    def _check_mirrored(self, partition: ClassicPartition, entry: IndexEntry) -> None:
        """While the source owns the log, what comes in is the source's, byte for byte."""
        if not entry.is_outside:
            raise Violation(f"partition {partition.number}: an append, though the source owns the log")
        self.mirrored += 1
        for base, data in self._batches(entry):
            if is_hole(read_header(data)):
                self._check_hole(partition, entry)
                continue
            if without_epoch(data) not in partition.ever.get(base, ()):
                raise Violation(f"partition {partition.number}: what lies at {base} never was the source's")

    def _check_hole(self, partition: ClassicPartition, entry: IndexEntry) -> None:
        """Only what the source has deleted is passed over."""
        if entry.end > partition.start:
            raise Violation(
                f"partition {partition.number}: up to {entry.end} is passed over, and the source begins at "
                f"{partition.start}"
            )
        self.holes += 1
        stream = self.stream_of(partition.number)
        self.skipped.setdefault(stream, set()).update(range(entry.start, entry.end))
        for batch in partition.batches:
            header = batch.header
            if entry.start <= header.base_offset < entry.end and not header.attributes & CONTROL:
                producer, number, _ = identity_of(batch.records()[0].value or b"")
                self._in_sequence(stream, producer, number)

    def _batches(self, entry: IndexEntry) -> list[tuple[int, bytes]]:
        table = entry.outside()
        data = self._content.get(entry.path)
        if data is None:
            raise Violation(f"{entry.path} is in the log, and was never uploaded")
        part = data[table.rows[0].position : table.end_position]
        return [(batch.header.base_offset, part[batch.position : batch.end]) for batch in walk_batches(part)]

    def held(self, entry: IndexEntry) -> list[Identity]:
        if not entry.is_outside:
            return super().held(entry)
        known = self._held.get((entry.path, entry.table, entry.data))
        if known is None:
            known = self._held[entry.path, entry.table, entry.data] = self._identities(entry)
        return known

    def _identities(self, entry: IndexEntry) -> list[Identity]:
        """By the entry's own list of what was aborted: were it wrong, a reader would see it."""
        found: dict[int, Identity] = {}
        aborted = entry.outside().aborted
        for base, data in self._batches(entry):
            [batch] = walk_batches(data)
            hidden = batch.is_transactional and any(
                each.producer_id == batch.header.producer_id and each.first_offset <= base <= each.last_offset
                for each in aborted
            )
            if not batch.is_control and not hidden:
                for record in decode(as_data(data), sparse=True).records():
                    found[record.offset] = identity_of(record.value or b"")
        return [found.get(offset, HOLE) for offset in range(entry.start, entry.end)]


class MoveLedger:
    """Every acknowledgement, of either side."""

    def __init__(self, truth: MovedTruth) -> None:
        self._truth = truth
        self._at: dict[tuple[int, bytes], int] = {}
        self._aborted: set[bytes] = set()

    def acknowledged(self, partition: int, offset: int, values: Sequence[bytes], *, by_source: bool) -> None:
        for place, value in enumerate(values, offset):
            known = self._at.setdefault((partition, value), place)
            if known != place:
                raise Violation(
                    f"partition {partition}: {value!r} was acknowledged at {known} and at {place}"
                )
        if self._is_switched(partition):
            self._check(partition, offset, values)
        elif not by_source and not self._is_at_source(partition, offset, values):
            raise Violation(f"partition {partition}: {values[0]!r} was acknowledged, and is at neither side")

    def _is_at_source(self, partition: int, offset: int, values: Sequence[bytes]) -> bool:
        """Does the source hold these values there? A broker has passed them on."""
        found = self._truth.partitions[self._truth.stream_of(partition)]
        placed = list(enumerate(values, offset))
        if all(each in found.lost for each in placed):
            return True
        batch = next((each for each in found.batches if each.base == offset), None)
        return batch is not None and [(each.offset, each.value) for each in batch.records()] == placed

    def aborted(self, values: Sequence[bytes]) -> None:
        """Acknowledged, and taken back by their own writer."""
        self._aborted.update(values)

    def is_aborted(self, value: bytes) -> bool:
        return value in self._aborted

    def switched(self, partition: int) -> None:
        for (number, value), offset in self._at.items():
            if number == partition:
                self._check(partition, offset, [value])

    def check_all(self) -> None:
        for stream, partition in self._truth.partitions.items():
            if self._is_switched(partition.number):
                self.switched(partition.number)
            seen: set[Identity] = set()
            for record in self._truth.streams[stream].records:
                if record != HOLE and record in seen:
                    raise Violation(f"partition {partition.number}: {record} is there twice")
                seen.add(record)

    def _is_switched(self, partition: int) -> bool:
        return self._truth.boundaries[self._truth.stream_of(partition)] != CLASSIC

    def _check(self, partition: int, offset: int, values: Sequence[bytes]) -> None:
        stream = self._truth.stream_of(partition)
        records = self._truth.streams[stream].records
        lost = self._truth.partitions[stream].lost  # by the source itself
        skipped = self._truth.skipped.get(stream, set())
        for place, value in enumerate(values, offset):
            if (place, value) in lost or place in skipped:
                continue
            found = records[place] if place < len(records) else None
            if found != (HOLE if value in self._aborted else identity_of(value)):
                raise Violation(
                    f"partition {partition}: {value!r} was acknowledged at {place}, which holds {found}"
                )
