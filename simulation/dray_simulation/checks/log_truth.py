"""The oracle of the log: what is true, recorded where it becomes true.

It hears every write at the moment the store applies it, and keeps its own picture from that: the records
of a stream are written down at the very put of its high watermark, from the bytes of the object that
the head names, or that the head carries. It trusts no reader of ours, and asks after every write and every
deletion whether all that was committed can still be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from dray.kafka.records import Record, decode
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.cleaned import Cleaned
from dray.log.types import AppendResult, Bounds, TimestampedOffset
from dray.metadata import keys
from dray.metadata.contract import Delete, DeleteRange, Operation, Outcome, Put
from dray_simulation.kernel.runtime import EPOCH_MS

_STREAMS = f"{keys.ROOT}streams/"
_PLAIN = "plain"

TIMES = tuple(EPOCH_MS + milliseconds for milliseconds in (900, 1050, 1090, 1096, 2000))
"""To look records up by: before, between and after those that `time_of` gives."""


class Violation(Exception):
    """A promise was broken."""


def records_of_file(data: bytes) -> list[Record]:
    """The records of a Parquet file, read without any code of ours but the columns' names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.read_table(pa.BufferReader(data), use_threads=False).to_pylist()
    return [
        Record(
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows
    ]


Identity = tuple[str, int, int]  # producer (with its epoch), number of its batch, place in the batch


IDENTITY = "identity"
"""The header that says who a record is that has no value."""


def identity_of(value: bytes) -> Identity:
    producer, number, place = value.split(b":")
    return producer.decode(), int(number), int(place)


def identity_of_record(record: Record) -> Identity:
    if record.value is not None:
        return identity_of(record.value)
    return identity_of(dict(record.headers).get(IDENTITY) or b"")


def time_of(identity: Identity) -> int:
    """The timestamp of a record: any of about the beginning of a run, as long as it is not monotonic."""
    _, number, place = identity
    return EPOCH_MS + 1000 + (number * 37 + place * 11) % 97


@dataclass(slots=True)
class StreamTruth:
    number: int
    records: list[Identity] = field(default_factory=list)
    start: int = 0
    closed: bool = False
    head: IndexEntry | None = None
    filed: dict[str, IndexEntry] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)  # offsets that compaction by key has emptied
    is_thinned: bool = False  # whether a file has come that may have left records out
    # Entries whose bytes were held against the records once: neither changes.
    seen_right: set[tuple[str, int, bytes, bytes]] = field(default_factory=set)

    def live(self) -> list[IndexEntry]:
        """The entries that count, newest first: the head, and what is filed, is not covered by a later
        one in what it holds above the start."""
        found: list[IndexEntry] = []
        covered_from = len(self.records)
        if self.head is not None:
            covered_from = self.head.start
            if self.head.end > self.start:
                found.append(self.head)
        for key in sorted(self.filed, reverse=True):
            entry = self.filed[key]
            if entry.end <= self.start:
                break
            if max(entry.start, self.start) < covered_from:
                found.append(entry)
                covered_from = entry.start
        return found


class CompactionByKey(Protocol):
    """The judge of records that are missing in a stream."""

    def may_be_thinned(self, stream: int) -> bool:
        """Is the stream compacted by key, or was it ever?"""

    def thinned(self, truth: StreamTruth, found: set[int]) -> None:
        """A file took the place of others: these offsets have their records. Notes what is gone."""

    def clean_point(self, truth: StreamTruth, cleaned: Cleaned) -> None:
        """Up to there each key has one record at most, it is said."""


class LogTruth:
    def __init__(self, adopts: bool = False) -> None:
        """`adopts`: a stream is known from the moment its high watermark is put; else by `create`."""
        self._adopts = adopts
        self.by_key: CompactionByKey | None = None  # None: no record may ever be missing
        self.streams: dict[int, StreamTruth] = {}
        self.objects: set[str] = set()  # those in the bucket now
        self.swaps = 0  # of compacted files into the index
        self.packs = 0  # of carried entries into WAL objects
        self.carried = 0  # heads that carry their records
        self._hinted: set[int] = set()  # streams that have a hint
        self._content: dict[str, bytes] = {}
        self._files: dict[str, list[Record]] = {}
        self._held: dict[tuple[str, bytes, bytes], list[Identity]] = {}
        self._last: dict[tuple[int, str], tuple[int, int]] = {}  # epoch and batch of a producer
        self._once: set[tuple[int, str, int]] = set()

    def create(self, streams: Sequence[int]) -> None:
        for stream in streams:
            self.streams[stream] = StreamTruth(stream)

    def end(self, stream: int) -> int:
        return len(self.streams[stream].records)

    def start(self, stream: int) -> int:
        return self.streams[stream].start

    # --- what happens

    def uploaded(self, path: str, data: bytes) -> None:
        self.objects.add(path)
        if self._content.setdefault(path, data) != data:
            raise Violation(f"{path} was written twice, with other bytes")

    def deleted(self, path: str) -> None:
        self.objects.discard(path)
        for truth in self.streams.values():
            self._check_readable(truth)

    def applied(self, operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        touched: dict[int, StreamTruth] = {}
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(operation, DeleteRange):
                for truth in self.streams.values():
                    gone = [key for key in truth.filed if operation.start <= key < operation.end]
                    for key in gone:
                        del truth.filed[key]
                        touched[truth.number] = truth
            elif outcome.applied and operation.key.startswith(_STREAMS):
                parts = operation.key.split("/")
                if self._adopts and parts[5] == "hwm" and int(parts[4]) not in self.streams:
                    self.create([int(parts[4])])
                if (found := self.streams.get(int(parts[4]))) is not None:
                    touched[found.number] = found
                    self._changed(found, parts[5], operation)
            elif outcome.applied and (hinted := keys.stream_of_carried_hint(operation.key)) is not None:
                (self._hinted.add if isinstance(operation, Put) else self._hinted.discard)(hinted)
                if hinted in self.streams:
                    touched[hinted] = self.streams[hinted]
        for truth in touched.values():
            self._check_readable(truth)
            self._check_hinted(truth)

    def _changed(self, truth: StreamTruth, what: str, operation: Put | Delete) -> None:
        if what == "offset-index":
            if isinstance(operation, Delete):
                truth.filed.pop(operation.key, None)
            else:
                before = truth.filed.get(operation.key)
                entry = truth.filed[operation.key] = IndexEntry.decode(operation.value)
                self.swaps += entry.is_parquet
                truth.is_thinned = truth.is_thinned or entry.is_parquet
                self.packs += before is not None and before.is_carried and entry.is_referenced
        elif what == "hwm":
            if isinstance(operation, Delete):
                raise Violation(f"stream {truth.number}: its high watermark was deleted")
            self._high_watermark(truth, HighWatermark.decode(operation.value))
        elif what == "start" and isinstance(operation, Put) and not truth.closed:
            start = int.from_bytes(operation.value[1:], "big")
            if start < truth.start:
                raise Violation(f"stream {truth.number}: its start went back to {start}")
            truth.start = start
        elif what == "cleaned" and isinstance(operation, Put) and not truth.closed:
            if self.by_key is None:
                raise Violation(f"stream {truth.number} was compacted by key")
            self._check_readable(truth)
            self.by_key.clean_point(truth, Cleaned.decode(operation.value))

    def _high_watermark(self, truth: StreamTruth, new: HighWatermark) -> None:
        stream, records = truth.number, truth.records
        truth.head = new.head
        if truth.closed and not new.closed:
            raise Violation(f"stream {stream}: it was closed, and is open again")
        truth.closed = new.closed
        if new.end < len(records):
            raise Violation(f"stream {stream}: its end went back from {len(records)} to {new.end}")
        if new.end == len(records):
            return
        head = new.head
        if head is None or head.start != len(records) or head.end != new.end:
            raise Violation(f"stream {stream}: offsets skip at {len(records)}")
        if new.closed:
            raise Violation(f"stream {stream}: it grew, though it is closed")
        self.carried += head.is_carried
        added = self.held(head)
        if len(added) != head.end - head.start:
            raise Violation(f"stream {stream}: the head counts wrong")
        for producer, number, place in added:
            if place == 0:
                self._in_sequence(stream, producer, number)
        records.extend(added)

    def _in_sequence(self, stream: int, producer: str, number: int) -> None:
        if producer.startswith(_PLAIN):
            if (stream, producer, number) in self._once:
                raise Violation(f"stream {stream}: {producer} batch {number} was appended twice")
            self._once.add((stream, producer, number))
            return
        name, epoch = producer.split(".")
        last_epoch, last = self._last.get((stream, name), (-1, -1))
        if int(epoch) < last_epoch:
            raise Violation(f"stream {stream}: {name} of epoch {epoch} came after {last_epoch}")
        if int(epoch) > last_epoch:
            last = -1
        if number != last + 1:
            what = "a duplicate" if number <= last else "a gap"
            raise Violation(f"stream {stream}: {what} of {producer}, {number} after {last}")
        self._last[stream, name] = int(epoch), number

    def last_batch(self, stream: int, name: str) -> tuple[int, int]:
        """A producer's newest epoch and its newest batch in that; -1 for none."""
        return self._last.get((stream, name), (-1, -1))

    def held(self, entry: IndexEntry) -> list[Identity]:
        """The records of an entry, by the bytes that were uploaded."""
        known = self._held.get((entry.path, entry.table, entry.data))
        if known is not None:
            return known
        data = entry.data if entry.is_carried else self._content.get(entry.path)
        if data is None:
            raise Violation(f"{entry.path} is in the log, and was never uploaded")
        if entry.is_parquet:
            records = self.records_in(entry.path)
            self._check_offsets(entry, [record.offset for record in records])
        else:
            records = [
                record
                for _, batch in entry.batches()
                for record in decode(data[batch.position : batch.position + batch.length]).records()
            ]
        identities = [identity_of_record(record) for record in records]
        self._held[entry.path, entry.table, entry.data] = identities
        return identities

    @staticmethod
    def _check_offsets(entry: IndexEntry, offsets: list[int]) -> None:
        """One row for every offset; of an entry that has holes, rows that rise."""
        if entry.sparse:
            right = offsets == sorted(set(offsets)) and entry.start <= offsets[0] <= offsets[-1] < entry.end
        else:
            right = offsets == list(range(entry.start, entry.end))
        if not right:
            raise Violation(f"{entry.path} does not hold {entry.start}..{entry.end}")

    def placed(self, entry: IndexEntry) -> dict[int, Identity]:
        """The records of an entry, by its offsets."""
        held = self.held(entry)
        if not entry.sparse:
            return dict(enumerate(held, entry.start))
        return dict(zip([record.offset for record in self.records_in(entry.path)], held, strict=True))

    def records_in(self, path: str) -> list[Record]:
        """Of a Parquet file that is or was there."""
        if path not in self._files:
            self._files[path] = records_of_file(self._content[path])
        return self._files[path]

    # --- what is answered

    def acknowledged(self, stream: int, appended: AppendResult, values: Sequence[bytes]) -> None:
        end = appended.base_offset + len(values)
        found = self.streams[stream].records[appended.base_offset : end]
        if found != [identity_of(value) for value in values]:
            raise Violation(f"stream {stream}: acknowledged at {appended.base_offset}, which holds {found}")

    def consumed(self, stream: int, offset: int, value: bytes) -> None:
        records = self.streams[stream].records
        if offset >= len(records) or records[offset] != identity_of(value):
            raise Violation(f"stream {stream}: offset {offset} was read as {value!r}")

    def found_by_time(
        self, stream: int, timestamp: int | None, before: Bounds, found: TimestampedOffset | None
    ) -> None:
        """The first record at or after a time, or (None) with the greatest: right at some moment since the
        bounds were those of `before`."""
        truth = self.streams[stream]
        times = [time_of(record) for record in truth.records]
        # There all the time: what compaction by key takes never comes back.
        certain = [offset for offset in range(truth.start, before.end) if offset not in truth.gone]
        if found is None:
            if any(timestamp is None or times[offset] >= timestamp for offset in certain):
                raise Violation(f"stream {stream}: nothing found at {timestamp}")
            return
        if not before.start <= found.offset < len(times) or times[found.offset] != found.timestamp:
            raise Violation(f"stream {stream}: {found} is not what is there")
        if timestamp is None:
            missed = [offset for offset in certain if times[offset] > found.timestamp]
        else:
            missed = [offset for offset in certain if offset < found.offset and times[offset] >= timestamp]
        if missed:
            raise Violation(f"stream {stream}: {found} by time {timestamp}, though {missed[0]} comes first")

    # --- what must always hold

    def _check_readable(self, truth: StreamTruth) -> None:
        """Every offset from the start to the end is found in an object that is there."""
        stream, reached = truth.number, len(truth.records)
        if truth.closed:
            return  # what it held is swept in no particular order
        for entry in truth.live():
            if entry.end != reached:
                raise Violation(f"stream {stream}: a hole below {reached}")
            if not entry.is_carried and entry.path not in self.objects:
                raise Violation(f"stream {stream}: {entry.path} is gone, but live")
            what = (entry.path, entry.start, entry.table, entry.data)
            if what not in truth.seen_right:
                if not self._is_right(truth, entry):
                    raise Violation(f"stream {stream}: what {entry.start} holds has changed")
                truth.seen_right.add(what)
            reached = entry.start
        if reached > truth.start:
            raise Violation(f"stream {stream}: a hole below {reached}")
        if truth.is_thinned and self.by_key is not None and self.by_key.may_be_thinned(stream):
            self.by_key.thinned(truth, {offset for entry in truth.live() for offset in self.placed(entry)})
        truth.is_thinned = False

    def _check_hinted(self, truth: StreamTruth) -> None:
        """A stream that carries has a hint, or it might never be packed."""
        if truth.closed or truth.number in self._hinted:
            return
        if any(entry.is_carried for entry in truth.live()):
            raise Violation(f"stream {truth.number}: it carries, and has no hint")

    def _is_right(self, truth: StreamTruth, entry: IndexEntry) -> bool:
        """Does it hold what was appended there? All of it, unless the stream is compacted by key."""
        if not entry.sparse:
            return self.held(entry) == truth.records[entry.start : entry.end]
        if self.by_key is None or not self.by_key.may_be_thinned(truth.number):
            return False
        return all(truth.records[offset] == identity for offset, identity in self.placed(entry).items())

    def live_entries(self, stream: int) -> list[IndexEntry]:
        truth = self.streams[stream]
        return [] if truth.closed else truth.live()

    def check_leftovers(
        self, objects: Iterable[str], references: Iterable[str], marks: Iterable[str], known: Iterable[str]
    ) -> None:
        """Once all is quiet: exactly what is live is there, each with its keys, and nothing else."""
        live: dict[UUID, set[int]] = {}
        paths: set[str] = set()
        for stream, truth in self.streams.items():
            found = self.live_entries(stream)
            paths |= {entry.path for entry in found if not entry.is_carried}
            for entry in found:
                if entry.is_referenced:
                    live.setdefault(entry.object_id, set()).add(stream)
            heads = 0 if truth.head is None or truth.head.end <= truth.start else 1
            if len(truth.filed) != len(found) - heads:
                raise Violation(f"stream {stream}: {len(truth.filed)} entries filed, {len(found)} live")
        if differing := set(objects) ^ paths:
            raise Violation(f"objects left over or missing: {sorted(differing)[:3]}")
        referenced: dict[UUID, set[int]] = {}
        for key in references:
            referenced.setdefault(keys.wal_id_of(key), set()).add(int(key.split("/")[6]))
        if referenced != live:
            raise Violation("references left over or missing")
        if left := list(marks):
            raise Violation(f"staging marks left over: {left[:3]}")
        if {keys.wal_id_of(key) for key in known} != set(live):
            raise Violation("object keys left over or missing")
