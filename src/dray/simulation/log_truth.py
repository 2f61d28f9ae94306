"""The oracle of the log: what is true, recorded where it becomes true.

The truth of a stream is written down at the very put of its high watermark, from the bytes of the object
that the head names. The oracle trusts no reader of ours: it looks at the stores directly.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from dray.log.entries import HighWatermark, IndexEntry
from dray.log.stream_store import StreamView, Versioned
from dray.log.types import Appended
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome, Put, Record
from dray.records import decode


class Violation(Exception):
    """A promise was broken."""


Identity = tuple[str, int, int]  # producer, sequence, place in its batch


def identity_of(value: bytes) -> Identity:
    producer, sequence, place = value.split(b":")
    return producer.decode(), int(sequence), int(place)


class LogTruth:
    def __init__(self) -> None:
        self.records: dict[int, list[Identity]] = {}
        self.starts: dict[int, int] = {}
        self._sequences: dict[tuple[int, str], int] = {}
        self._content: dict[str, bytes] = {}
        self._read: dict[tuple[str, bytes], list[Identity]] = {}
        self._once: set[tuple[int, str, int]] = set()

    def create(self, streams: Sequence[int]) -> None:
        for stream in streams:
            self.records[stream] = []
            self.starts[stream] = 0

    # --- what happens

    def uploaded(self, path: str, data: bytes) -> None:
        if self._content.setdefault(path, data) != data:
            raise Violation(f"{path} was written twice, with other bytes")

    def applied(self, operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        for operation, outcome in zip(operations, outcomes, strict=True):
            if (
                isinstance(operation, Put)
                and outcome.applied
                and operation.key.startswith(f"{keys.ROOT}streams/")
            ):
                stream, name = int(operation.key.split("/")[4]), operation.key.split("/")[5]
                if stream in self.records and name == "hwm":
                    self._high_watermark(stream, HighWatermark.decode(operation.value))
                elif stream in self.records and name == "start":
                    self._start(stream, int.from_bytes(operation.value[1:], "big"))

    def _start(self, stream: int, start: int) -> None:
        if start < self.starts[stream]:
            raise Violation(f"stream {stream}: its start went back to {start}")
        self.starts[stream] = start

    def _high_watermark(self, stream: int, new: HighWatermark) -> None:
        records = self.records[stream]
        if new.end < len(records):
            raise Violation(f"stream {stream}: its end went back from {len(records)} to {new.end}")
        if new.end == len(records):
            return
        head = new.head
        if head is None or head.start != len(records) or head.end != new.end:
            raise Violation(f"stream {stream}: offsets skip at {len(records)}")
        added = self.read(head)
        for producer, sequence, place in added:
            if place == 0:
                self._in_sequence(stream, producer, sequence)
        if len(added) != head.end - head.start:
            raise Violation(f"stream {stream}: the head counts wrong")
        records.extend(added)

    def _in_sequence(self, stream: int, producer: str, sequence: int) -> None:
        if producer.startswith("plain"):
            if (stream, producer, sequence) in self._once:
                raise Violation(f"stream {stream}: {producer} batch {sequence} was appended twice")
            self._once.add((stream, producer, sequence))
            return
        last = self._sequences.get((stream, producer), -1)
        if sequence != last + 1:
            what = "a duplicate" if sequence <= last else "a gap"
            raise Violation(f"stream {stream}: {what} of {producer}, {sequence} after {last}")
        self._sequences[stream, producer] = sequence

    def acknowledged(self, stream: int, appended: Appended, values: Sequence[bytes]) -> None:
        end = appended.base_offset + len(values)
        found = self.records[stream][appended.base_offset : end]
        if found != [identity_of(value) for value in values]:
            raise Violation(f"stream {stream}: acknowledged at {appended.base_offset}, which holds {found}")

    def read(self, entry: IndexEntry) -> list[Identity]:
        """What an entry holds, by the bytes that were uploaded."""
        # A stream has one entry in an object; one that lists other batches is another entry.
        known = self._read.get((entry.path, entry.table))
        if known is not None:
            return known
        data = self._content[entry.path]
        identities: list[Identity] = []
        for _, batch in entry.batches():
            columns = decode(data[batch.position : batch.position + batch.length])
            identities += [identity_of(record.value or b"") for record in columns.records()]
        self._read[entry.path, entry.table] = identities
        return identities

    # --- what must always hold

    def check_readable(
        self, stream: int, high_watermark: Record, index: Sequence[Record], objects: set[str]
    ) -> None:
        """Every offset from the start to the end is found in an object that is there."""
        value = HighWatermark.decode(high_watermark.value)
        start, reached = self.starts[stream], len(self.records[stream])
        if value.end != reached:
            raise Violation(f"stream {stream}: its end is {value.end}, not {reached}")
        live = self._live(stream, value, index)
        for entry in reversed(live):
            if entry.end != reached:
                raise Violation(f"stream {stream}: a hole below {reached}")
            if entry.path not in objects:
                raise Violation(f"stream {stream}: {entry.path} is gone, but live")
            if self.read(entry) != self.records[stream][entry.start : entry.end]:
                raise Violation(f"stream {stream}: what {entry.start} holds has changed")
            reached = entry.start
        if reached > start:
            raise Violation(f"stream {stream}: a hole below {reached}")

    def _live(self, stream: int, high_watermark: HighWatermark, index: Sequence[Record]) -> list[IndexEntry]:
        entries = [Versioned(IndexEntry.decode(record.value), record.version) for record in index]
        view = StreamView(Versioned(high_watermark, 0), self.starts[stream], entries)
        live = [entry.value for entry in view.split()[0]]
        if high_watermark.head is not None and high_watermark.head.end > self.starts[stream]:
            live.append(high_watermark.head)
        return live

    def live_objects(self, stream: int, high_watermark: Record, index: Sequence[Record]) -> dict[UUID, str]:
        value = HighWatermark.decode(high_watermark.value)
        return {entry.wal_id: entry.path for entry in self._live(stream, value, index)}

    def last_sequence(self, stream: int, producer: str) -> int:
        return self._sequences.get((stream, producer), -1)
