"""The log directory of a broker that was stopped: every batch of it is read and checked.

Files of one partition are one log, in one lineage: each goes on where the one before ends. Only the last may
end in the middle of a batch, where its broker was killed: that is cut off. Between files there may be a hole
where the broker compacted by key, as its checkpoint of that says; any other is a file that is missing.

Such a directory also says which copies in tiered storage are finished: in the log of Kafka's topic of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from dray.kafka.records import NO_PRODUCER, RecordError, decode
from dray.kafka.records.header import PREFIX
from dray.migration.attach.found import FoundSegment, MigrationRefused, PartitionRefused, naming, thinned
from dray.migration.attach.midnights import oldest_of
from dray.migration.attach.reading import LARGEST_TAIL, SourceReader
from dray.migration.formats import ForeignFault, SegmentBatch, cut_torn_tail, walk_batches
from dray.migration.formats.batches import ABORT, marker_of
from dray.migration.formats.kafka_files import (
    AbortedTransaction,
    EpochStart,
    ProducerRow,
    read_epochs,
    read_offset_checkpoint,
    read_partition_metadata,
)
from dray.migration.formats.remote_segments import TOPIC, RemoteSegment, RemoteSegments, kafka_uuid
from dray.objects.contract import Buffer, ObjectInfo

WINDOW: Final = 8 << 20
"""The bytes of a file that are read at once, unless a single batch is larger."""

_FILE: Final = re.compile(
    r"(?P<home>(?:.*/)?)(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>[0-9]{1,7})/"
    r"(?:(?P<base>[0-9]{20})\.log|(?P<beside>leader-epoch-checkpoint|partition\.metadata))"
)
_CHECKPOINTS: Final = {
    "starts": "log-start-offset-checkpoint",
    "committed": "replication-offset-checkpoint",
    "cleaned": "cleaner-offset-checkpoint",
}


@dataclass(slots=True)
class PartitionFiles:
    partition: int
    home: str
    segments: dict[int, ObjectInfo] = field(default_factory=dict)
    """By their first offset."""
    beside: dict[str, ObjectInfo] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerCheckpoints:
    """The broker's checkpoints of partitions as a whole, by topic and partition."""

    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    cleaned: dict[tuple[str, int], int] = field(default_factory=dict)


class LogDirPartition(NamedTuple):
    partition: int
    topic_id: UUID | None
    found: list[FoundSegment]
    producers: ProducerFold
    start: int
    """The start of its log: above the first file's offset if records were deleted."""
    notes: list[str]


def gather_log_dir(listed: Sequence[ObjectInfo], topic: str) -> list[PartitionFiles]:
    """Raises `MigrationRefused` where a partition lies in two directories."""
    found: dict[int, PartitionFiles] = {}
    for info in listed:
        name = _FILE.fullmatch(info.path)
        if name is None or name["topic"] != topic:
            continue
        partition = int(name["partition"])
        files = found.setdefault(partition, PartitionFiles(partition, name["home"]))
        if files.home != name["home"]:
            raise MigrationRefused(
                f"partition {partition} lies below {files.home or '.'} and {name['home'] or '.'}: name "
                "one of "
                "them with --from"
            )
        if name["base"] is not None:
            files.segments[int(name["base"])] = info
        else:
            files.beside[name["beside"]] = info
    return [files for _, files in sorted(found.items()) if files.segments]


async def read_checkpoints(
    source: SourceReader, listed: Sequence[ObjectInfo], home: str
) -> BrokerCheckpoints:
    """Those that lie in the log directory itself. One that is missing says nothing."""
    known = {info.path: info for info in listed}
    found = BrokerCheckpoints()
    for name, file in _CHECKPOINTS.items():
        info = known.get(f"{home}{file}")
        if info is not None and info.size:
            data = await source.whole(info)
            with naming(info.path):
                setattr(found, name, read_offset_checkpoint(data))
    return found


async def read_log_dir(
    source: SourceReader,
    topic: str,
    files: PartitionFiles,
    checkpoints: BrokerCheckpoints,
    advanced: Callable[[int], None] = lambda _: None,
) -> LogDirPartition:
    """One partition, read to its end. `advanced` hears of bytes. Raises `PartitionRefused`."""
    place = topic, files.partition
    try:
        epochs, topic_id = await _beside(source, files)
        notes: list[str] = []
        fold = ProducerFold()
        found: list[FoundSegment] = []
        bases = sorted(files.segments)
        emptied: int | None = None
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            scan = await _scan(source, files.segments[base], base, fold, advanced, last=following is None)
            if scan.end_position < files.segments[base].size:
                notes.append(
                    f"{files.segments[base].path}: {files.segments[base].size - scan.end_position} bytes "
                    "at its "
                    "end are half a batch, which was never committed: cut off"
                )
            end = scan.end
            if following is not None and following != end:
                if following < end or following > checkpoints.cleaned.get(place, 0):
                    raise MigrationRefused(
                        f"offsets {end} to {following - 1} are in no file: "
                        f"{files.segments[base].path} ends before them, and "
                        f"{files.segments[following].path} is next"
                    )
                end = following  # what was there was compacted by key
            if scan.rows:
                begin = base if found or emptied is None else emptied
                found.append(_segment(files.segments[base], begin, end, scan, epochs))
            elif found:
                found[-1] = replace(found[-1], end=end)  # all that was in this file was compacted away
            elif end > base:
                emptied = base if emptied is None else emptied
    except MigrationRefused as refusal:
        raise PartitionRefused(files.partition, str(refusal)) from None
    start = max(checkpoints.starts.get(place, 0), bases[0])
    end = found[-1].end if found else bases[-1]
    committed = checkpoints.committed.get(place)
    if committed is not None and committed < end:
        notes.append(
            f"partition {files.partition}: the broker knew of offset {committed} that all replicas have what "
            f"is before it, and its log goes on to {end}: if another replica took over, its log counts"
        )
    return LogDirPartition(files.partition, topic_id, found, fold, min(start, end), notes)


async def _beside(source: SourceReader, files: PartitionFiles) -> tuple[tuple[EpochStart, ...], UUID | None]:
    epochs: tuple[EpochStart, ...] = ()
    topic_id = None
    if (info := files.beside.get("leader-epoch-checkpoint")) is not None:
        data = await source.whole(info)
        with naming(info.path):
            epochs = tuple(read_epochs(data))
    if (info := files.beside.get("partition.metadata")) is not None:
        data = await source.whole(info)
        with naming(info.path):
            text = read_partition_metadata(data)
        try:
            topic_id = kafka_uuid(text)
        except ValueError:
            raise MigrationRefused(f"{info.path}: {text[:40]!r} is no id of a topic") from None
    return epochs, topic_id


@dataclass(slots=True)
class _Scan:
    end: int
    """The offset after the last one."""
    end_position: int = 0
    min_timestamp: int = -1
    max_timestamp: int = -1
    rows: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def take(self, batch: SegmentBatch, view: memoryview, fold: ProducerFold, begin: int) -> None:
        header = batch.header
        if not self.rows:
            self.min_timestamp = oldest_of(header)
        self.rows.append((batch.last_offset if self.rows else header.base_offset, begin + batch.position))
        self.min_timestamp = min(self.min_timestamp, oldest_of(header))
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        ended = fold.take(batch, view)
        if ended is not None:
            self.aborted.append(ended)
        self.end = batch.last_offset + 1
        self.end_position = begin + batch.end


async def _scan(
    source: SourceReader,
    info: ObjectInfo,
    base: int,
    fold: ProducerFold,
    advanced: Callable[[int], None],
    *,
    last: bool,
) -> _Scan:
    scan = _Scan(base)
    window = WINDOW
    while scan.end_position < info.size:
        begin = scan.end_position
        size = min(window, info.size - begin)
        data = await source.range(info.path, begin, size)
        view = memoryview(data)
        whole, missing = _whole_batches(view)
        if begin + size == info.size:
            whole = size  # what is not whole now never will be
        elif not whole:
            if missing > min(LARGEST_TAIL, info.size - begin):
                whole = size
            else:
                window = missing
                continue
        window = WINDOW
        try:
            for batch in walk_batches(view[:whole], from_offset=scan.end):
                scan.take(batch, view, fold, begin)
        except ForeignFault as fault:
            at = begin + fault.position
            if last and info.size - scan.end_position <= LARGEST_TAIL:
                with naming(info.path):
                    await _cut(source, info, scan)
                break
            raise MigrationRefused(f"{info.path}, byte {at}: {fault.reason}") from None
        advanced(scan.end_position - begin)
    return scan


async def _cut(source: SourceReader, info: ObjectInfo, scan: _Scan) -> None:
    """The bytes after the last whole batch must be torn, and nothing else."""
    begin = scan.end_position
    rest: Buffer = await source.range(info.path, begin, info.size - begin)
    try:
        cut_torn_tail(rest, from_offset=scan.end)
    except ForeignFault as fault:
        raise type(fault)(fault.reason, begin + fault.position) from None


def _whole_batches(view: memoryview) -> tuple[int, int]:
    """How many of these bytes are whole batches by their lengths, and how many the first takes that is
    not."""
    position = 0
    while len(view) - position >= PREFIX.size:
        size = PREFIX.size + max(0, PREFIX.unpack_from(view, position)[1])
        if size > len(view) - position:
            return position, size
        position += size
    return position, PREFIX.size


def _segment(
    info: ObjectInfo, base: int, end: int, scan: _Scan, epochs: tuple[EpochStart, ...]
) -> FoundSegment:
    return FoundSegment(
        segment_id=uuid5(NAMESPACE_URL, f"{info.path} {info.size} {info.modified_ms}"),
        path=info.path,
        object_size=scan.end_position,
        segment_size=scan.end_position,
        start=base,
        end=end,
        min_timestamp=scan.min_timestamp,
        max_timestamp=scan.max_timestamp,
        epochs=epochs,
        rows=thinned(scan.rows),
        aborted=tuple(scan.aborted),
    )


# --- finished copies in tiered storage

_MOST_UNFOLDED = 256 << 20


async def read_remote_metadata(source: SourceReader, topic: str) -> Mapping[UUID, RemoteSegment]:
    """Raises `MigrationRefused` where the topic is not there, or damaged."""
    partitions = gather_log_dir(await source.listed(), TOPIC)
    if not partitions:
        raise MigrationRefused(f"there is no partition of {TOPIC} in that directory")
    segments = RemoteSegments(topic)
    for files in partitions:
        bases = sorted(files.segments)
        for base in bases:
            info = files.segments[base]
            data = await source.whole(info, LARGEST_TAIL)
            with naming(info.path):
                end = cut_torn_tail(data) if base == bases[-1] else len(data)
                take_records(segments, memoryview(data)[:end], info.path)
    return segments.finished()


def take_records(segments: RemoteSegments, data: Buffer, path: str) -> None:
    """All records of these batches."""
    view = memoryview(data)
    for batch in walk_batches(view):
        if batch.is_control:
            continue
        try:
            columns = decode(
                view[batch.position : batch.end], max_decompressed_bytes=_MOST_UNFOLDED, sparse=True
            )
        except RecordError as error:
            raise MigrationRefused(f"{path}, byte {batch.position}: {error}") from None
        for record in columns.records():
            if record.value is not None:
                segments.take(record.value)


# --- the producers of a partition, folded from its batches as a broker does when it recovers

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
