"""The oracle of a whole cluster: what the stores hold, and what the answers to clients say about it.

The log's truth is written down at the store, as in the log's own simulation. Topics are followed the same
way, so that an answer about a topic by its name is held against every stream that ever stood for it.

Nothing grows old before its time, by the true time. A run takes seconds, and topics keep their records for
days. So whatever the clocks of brokers and compactors show, a stream's start is raised only where a client
asked for it. Producers that were forgotten too early show as duplicates (`log_truth`), offsets that expired
too early as commits that are lost (`group_truth`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from dray.broker.topics.model import decode_topic
from dray.kafka.records import Record
from dray.log.types import AppendResult, Bounds, TimestampedOffset
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome, Put
from dray.tables.contract import TableFile
from dray_simulation.checks.cleaned_truth import CleanedTruth, replayed
from dray_simulation.checks.history import StartRaised
from dray_simulation.checks.log_truth import LogTruth, Violation, identity_of, identity_of_record
from dray_simulation.checks.payload import is_as_sent, record_of, same


class ClusterTruth:
    def __init__(self) -> None:
        self.log = LogTruth(adopts=True)
        self.cleaned = CleanedTruth()
        self.log.by_key = self.cleaned
        self.named: dict[str, UUID] = {}  # the topics that are there now
        self.deleted: set[UUID] = set()  # those that were gone at some moment: late copies bring one back
        self._streams: dict[UUID, tuple[int, ...]] = {}
        self._ever: dict[str, list[UUID]] = defaultdict(list)
        self._producer_ids: set[int] = set()
        self._files_seen: set[str] = set()

    # --- what happens

    def applied(self, operations: Sequence[Operation], outcomes: Sequence[Outcome]) -> None:
        for operation, outcome in zip(operations, outcomes, strict=True):
            key = getattr(operation, "key", "")
            if outcome.applied and key.startswith(keys.TOPICS):
                name = keys.parse_name(key.removeprefix(keys.TOPICS))
                if isinstance(operation, Put):
                    self._topic_put(name, operation.value)
                elif name in self.named:
                    self.deleted.add(self.named.pop(name))
        self.log.applied(operations, outcomes)

    def _topic_put(self, name: str, value: bytes) -> None:
        topic = decode_topic(name, value, {})
        self.named[name] = topic.topic_id
        known = self._streams.get(topic.topic_id, ())
        if topic.streams[: len(known)] != known:
            raise Violation(f"topic {name}: its partitions changed from {known} to {topic.streams}")
        for other, streams in self._streams.items():
            if other != topic.topic_id and set(streams) & set(topic.streams):
                raise Violation(f"topics {other} and {topic.topic_id} share a stream")
        self._streams[topic.topic_id] = topic.streams
        if topic.settings.compacts:
            self.cleaned.compacts(topic.streams, topic.settings.delete_retention_ms)
        if topic.topic_id not in self._ever[name]:
            self._ever[name].append(topic.topic_id)

    def producer_id(self, producer_id: int) -> None:
        if producer_id in self._producer_ids:
            raise Violation(f"producer id {producer_id} was handed out twice")
        self._producer_ids.add(producer_id)

    # --- partitions by name

    def streams_of(self, name: str, partition: int) -> list[int]:
        """Every stream that a partition of that name ever was, the newest first."""
        found = [self._streams[topic] for topic in reversed(self._ever[name])]
        return [streams[partition] for streams in found if partition < len(streams)]

    def stream(self, name: str, partition: int) -> int:
        return self.streams_of(name, partition)[0]

    def bounds(self, name: str, partition: int) -> Bounds:
        stream = self.stream(name, partition)
        return Bounds(self.log.start(stream), self.log.end(stream))

    def was_deleted(self, name: str) -> bool:
        """Whether a topic of that name has ever been deleted, so that what is said of it may be old."""
        return name not in self.named or len(self._ever[name]) > 1

    # --- tables

    def table_committed(self, topic_id: UUID, files: Collection[TableFile]) -> None:
        """Whatever a snapshot of a table holds is in the log, once, and as it was sent."""
        ends: dict[int, int] = {}
        for file in sorted(files, key=lambda file: (file.partition, file.first_offset)):
            if file.first_offset < ends.get(file.partition, 0):
                raise Violation(f"table of {topic_id}: {file.path} repeats rows of its partition")
            ends[file.partition] = file.last_offset + 1
            if file.path not in self.log.objects:
                raise Violation(f"table of {topic_id}: {file.path} is not there")
            if file.path not in self._files_seen:
                self._files_seen.add(file.path)
                self._check_file(topic_id, file)
        self._check_latest(topic_id, files)

    def _check_latest(self, topic_id: UUID, files: Collection[TableFile]) -> None:
        """The latest row of each key in the table is that of the log, up to where the table is."""
        for partition, stream in enumerate(self._streams[topic_id]):
            if not self.cleaned.may_be_thinned(stream):
                continue
            mine = [file for file in files if file.partition == partition]
            rows = {record.offset for file in mine for record in self.log.records_in(file.path)}
            end = max((file.last_offset + 1 for file in mine), default=0)
            held = self.log.streams[stream].records[:end]
            if replayed(held, rows) != replayed(held, range(end)):
                raise Violation(f"table of {topic_id}: it shows another state than the log up to {end}")

    def _check_file(self, topic_id: UUID, file: TableFile) -> None:
        held = self.log.streams[self._streams[topic_id][file.partition]].records
        records = self.log.records_in(file.path)
        offsets: Iterable[int] = range(file.first_offset, min(file.last_offset + 1, len(held)))
        if self.cleaned.may_be_thinned(self._streams[topic_id][file.partition]):
            kept = {record.offset for record in records}
            offsets = [offset for offset in offsets if offset in kept]
        wanted = [record_of(held[offset], offset) for offset in offsets]
        if len(records) != len(wanted) or not all(map(same, records, wanted)):
            raise Violation(f"table of {topic_id}: {file.path} does not hold what the log holds")

    def check_whole_table(self, name: str, files: Iterable[TableFile]) -> None:
        """Once all is compacted: the table holds all that the log does, and nothing that was deleted."""
        ends: dict[int, int] = {}
        for file in sorted(files, key=lambda file: (file.partition, file.first_offset)):
            stream = self._streams[self.named[name]][file.partition]
            if file.first_offset < self.log.start(stream):
                raise Violation(f"table of {name}: {file.path} shows what was deleted")
            if file.first_offset > max(ends.get(file.partition, 0), self.log.start(stream)):
                raise Violation(f"table of {name}: rows are missing before {file.path}")
            ends[file.partition] = file.last_offset + 1
        for partition, stream in enumerate(self._streams[self.named[name]]):
            if self.log.end(stream) > max(ends.get(partition, 0), self.log.start(stream)):
                raise Violation(f"table of {name}: partition {partition} ends at {ends.get(partition, 0)}")

    # --- what is answered

    def acknowledged(self, name: str, partition: int, offset: int, values: Sequence[bytes]) -> int:
        """The stream that holds them, at that offset."""
        wanted = [identity_of(value) for value in values]
        for stream in self.streams_of(name, partition):
            if self.log.streams[stream].records[offset : offset + len(wanted)] == wanted:
                return stream
        self.log.acknowledged(self.stream(name, partition), AppendResult(offset, -1, -1), values)
        raise AssertionError("unreachable: the line above raises")

    def consumed(self, name: str, partition: int, records: Sequence[Record]) -> int:
        """The stream that holds what was read."""
        for record in records:
            if not is_as_sent(record):
                raise Violation(f"{name}-{partition}: {record} is not what was sent")
        for stream in self.streams_of(name, partition):
            held = self.log.streams[stream].records
            if all(
                record.offset < len(held) and held[record.offset] == identity_of_record(record)
                for record in records
            ):
                return stream
        first = records[0]
        raise Violation(
            f"{name}-{partition}: {first.value!r} was read at {first.offset}, which never held that"
        )

    def found_by_time(
        self, stream: int, timestamp: int | None, before: Bounds, offset: int, found_timestamp: int
    ) -> None:
        found = None if offset < 0 else TimestampedOffset(offset, found_timestamp)
        self.log.found_by_time(stream, timestamp, before, found)


# --- nothing grows old before its time


def check_starts(
    operations: Sequence[Operation], outcomes: Sequence[Outcome], asked: Sequence[StartRaised]
) -> None:
    """`asked` is what clients asked to be deleted, by now."""
    for operation, outcome in zip(operations, outcomes, strict=True):
        if not (outcome.applied and isinstance(operation, Put) and operation.key.startswith(keys.STREAMS)):
            continue
        number, _, what = operation.key.removeprefix(keys.STREAMS).partition("/")
        if what != "start":
            continue
        start = int.from_bytes(operation.value[1:], "big")
        deleted = max((each.offset for each in asked if each.partition == int(number)), default=0)
        if start > deleted:
            raise Violation(f"stream {int(number)}: it starts at {start} now, and records are young")
