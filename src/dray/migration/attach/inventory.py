"""The inventory of a topic at a source, whatever its layout. A partition that cannot be read is refused, and
the others are looked at all the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

from dray.migration.attach.aiven_tiered import KeyRing, gather_aiven, read_aiven
from dray.migration.attach.driftq_log import convert
from dray.migration.attach.found import FoundSegment, MigrationRefused, PartitionRefused, naming
from dray.migration.attach.kafka_tiered import gather_local, read_local
from dray.migration.attach.kafscale_bucket import gather_kafscale, read_kafscale
from dray.migration.attach.log_dir import BrokerCheckpoints, gather_log_dir, read_checkpoints, read_log_dir
from dray.migration.attach.offsets import StoredOffsetsLog
from dray.migration.attach.reading import LARGEST_TAIL, SourceReader, each_of
from dray.migration.formats.driftq import read_wal
from dray.migration.formats.kafka_files import OFFSETS_TOPIC, OffsetPlace, ProducerRow, StoredOffset
from dray.migration.formats.remote_segments import RemoteSegment, kafka_uuid
from dray.objects.contract import ObjectInfo

LARGEST_WAL: Final = 2 << 30
_KAFKA_ID: Final = 22

T = TypeVar("T")


class SourceLayout(StrEnum):
    KAFKA_TIERED = "kafka-tiered"
    AIVEN = "aiven-1"
    KAFSCALE = "kafscale-1"
    LOG_DIR = "log-dir"
    DRIFTQ = "driftq"

    @property
    def is_borrowed(self) -> bool:
        """Is it read where it lies? Files on a broker's disk are uploaded."""
        return self not in (SourceLayout.LOG_DIR, SourceLayout.DRIFTQ)


class Progress(Protocol):
    def expect(self, total: int) -> None: ...

    def advance(self, count: int = 1) -> None: ...


@dataclass(slots=True)
class Counted:
    """Progress that is only counted."""

    total: int = 0
    done: int = 0

    def expect(self, total: int) -> None:
        self.total += total

    def advance(self, count: int = 1) -> None:
        self.done += count


@dataclass(frozen=True, slots=True)
class Question:
    """The topic to look for, and its layout."""

    topic: str
    layout: SourceLayout
    topic_id: UUID | None = None
    """Of several topics of one name, this one."""
    finished: Mapping[UUID, RemoteSegment] | None = None
    """Which copies Kafka says are finished, where it can be asked."""
    keys: KeyRing = field(default_factory=lambda: KeyRing({}))
    file: str = ""
    """The one file of DriftQ's log."""
    prefix: str = ""
    partitions: int | None = None
    """How many the topic had, where that is known: those at the end may have nothing there."""


@dataclass(slots=True)
class Inventory:
    topic_id: UUID | None = None
    segments: dict[int, list[FoundSegment]] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    producers: dict[int, list[ProducerRow]] = field(default_factory=dict)
    """The producers by partition, if they were folded from the batches."""
    starts: dict[int, int] = field(default_factory=dict)
    """The starts of logs that begin within their first segment."""
    offsets: dict[OffsetPlace, StoredOffset] = field(default_factory=dict)
    converted: dict[int, bytes] = field(default_factory=dict)
    """The segments of a log that was not Kafka's."""
    unfinished: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def take_inventory(
    source: SourceReader, question: Question, progress: Progress | None = None
) -> Inventory:
    """Raises `MigrationRefused` where there is nothing to plan with."""
    progress = progress or Counted()
    listed = await source.listed()
    if not listed:
        raise MigrationRefused("nothing lies at the place that --from names, or it is not there")
    match question.layout:
        case SourceLayout.KAFKA_TIERED:
            by_id = gather_local(listed, question.topic)
            topic_id = _the_one(question, by_id)
            files = by_id[topic_id]
            found = await _read_all(
                files,
                lambda each: each.name.partition,
                lambda each: read_local(source, each, question.finished),
                lambda each: each.path,
                progress,
            )
            found.topic_id = topic_id
        case SourceLayout.AIVEN:
            tiered = gather_aiven(listed, question.topic, question.prefix)
            topic_id = _the_one(question, tiered)
            found = await _read_all(
                tiered[topic_id],
                lambda each: each.name.partition,
                lambda each: read_aiven(source, each, question.keys, question.finished),
                lambda each: next(iter(each.files.values())).path,
                progress,
            )
            found.topic_id = topic_id
        case SourceLayout.KAFSCALE:
            found = await _read_all(
                gather_kafscale(listed, question.topic),
                lambda each: each.partition,
                partial(read_kafscale, source),
                lambda each: each.segment.path,
                progress,
            )
        case SourceLayout.LOG_DIR:
            found = await _log_dir(source, question.topic, listed, progress)
        case SourceLayout.DRIFTQ:
            found = await _driftq(source, question)
    if not found.segments and not found.refused:
        raise MigrationRefused(
            f"no segment of topic {question.topic} was found there (layout {question.layout})"
        )
    return found


def parse_topic_id(text: str) -> UUID:
    """As Kafka writes ids, or as everybody else does. Raises `ValueError`."""
    return kafka_uuid(text) if len(text) == _KAFKA_ID else UUID(text)


def _the_one(question: Question, by_id: Mapping[UUID, object]) -> UUID:
    if question.topic_id is not None and question.topic_id in by_id:
        return question.topic_id
    if not by_id:
        raise MigrationRefused(
            f"no segment of topic {question.topic} was found there (layout {question.layout})"
        )
    if len(by_id) > 1 or question.topic_id is not None:
        ids = ", ".join(sorted(str(each) for each in by_id))
        raise MigrationRefused(
            f"topics of the name {question.topic} with the ids {ids} lie there: name one with --topic-id"
        )
    return next(iter(by_id))


async def _read_all(
    files: Sequence[T],
    partition_of: Callable[[T], int],
    read: Callable[[T], Awaitable[FoundSegment | None]],
    path_of: Callable[[T], str],
    progress: Progress,
) -> Inventory:
    inventory = Inventory()
    progress.expect(len(files))

    async def one(each: T) -> None:
        number = partition_of(each)
        inventory.segments.setdefault(number, [])
        try:
            found = await read(each)
        except MigrationRefused as refusal:
            inventory.refused.setdefault(number, str(refusal))
            return
        if found is None:
            inventory.unfinished.append(path_of(each))
        else:
            inventory.segments[number].append(found)

    await each_of(files, one, progress.advance)
    return inventory


async def _log_dir(
    source: SourceReader, topic: str, listed: Sequence[ObjectInfo], progress: Progress
) -> Inventory:
    inventory = Inventory()
    partitions = gather_log_dir(listed, topic)
    progress.expect(sum(info.size for files in partitions for info in files.segments.values()))
    checkpoints: dict[str, BrokerCheckpoints] = {}
    ids: set[UUID] = set()
    for files in partitions:
        if files.home not in checkpoints:
            checkpoints[files.home] = await read_checkpoints(source, listed, files.home)
        try:
            found = await read_log_dir(source, topic, files, checkpoints[files.home], progress.advance)
        except PartitionRefused as refusal:
            inventory.refused[files.partition] = refusal.reason
            continue
        inventory.segments[files.partition] = found.found
        inventory.producers[files.partition] = found.producers.rows()
        inventory.starts[files.partition] = found.start
        inventory.notes += found.notes
        if found.topic_id is not None:
            ids.add(found.topic_id)
    if len(ids) > 1:
        raise MigrationRefused(
            f"the partitions of {topic} are of topics with different ids: {sorted(map(str, ids))}"
        )
    inventory.topic_id = next(iter(ids), None)
    await _read_stored_offsets(source, listed, topic, inventory)
    return inventory


async def _read_stored_offsets(
    source: SourceReader, listed: Sequence[ObjectInfo], topic: str, inventory: Inventory
) -> None:
    """Of the partitions of `__consumer_offsets` that lie there too. If one is damaged, nothing is guessed."""
    undecided: set[str] = set()
    there = gather_log_dir(listed, OFFSETS_TOPIC)
    for files in there:
        log = StoredOffsetsLog()
        for _, info in sorted(files.segments.items()):
            log.take(await source.whole(info, LARGEST_TAIL), info.path)
        inventory.offsets.update(log.found)
        undecided |= {place.group for place in log.undecided if place.topic == topic}
    if there:
        numbers = [files.partition for files in there]
        inventory.notes.append(
            f"{len(numbers)} partitions of {OFFSETS_TOPIC} lie there ({_ranges(numbers)}): groups whose "
            "offsets are in others, on other brokers, are not found, and begin anew unless --offsets has them"
        )
    if undecided:
        inventory.notes.append(
            "offsets that a transaction had committed which never ended are left out, of the groups "
            + ", ".join(sorted(undecided))
        )


def _ranges(numbers: Sequence[int]) -> str:
    """0-3, 7."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


async def _driftq(source: SourceReader, question: Question) -> Inventory:
    info = next((each for each in await source.listed() if each.path == question.file), None)
    if info is None:
        raise MigrationRefused(f"{question.file}: it is not there")
    data = await source.whole(info, LARGEST_WAL)
    with naming(info.path):
        log = read_wal(data)
    inventory = Inventory()
    if log.end < info.size:
        inventory.notes.append(f"{info.path}: its last line is not whole, and was left out")
    for each in convert(log, question.topic, info.path, info.modified_ms):
        inventory.segments[each.partition] = [each.found]
        inventory.converted[each.partition] = each.data
    inventory.offsets = {
        OffsetPlace(group, topic, partition): StoredOffset(offset, -1, "", info.modified_ms)
        for (topic, group, partition), offset in log.committed.items()
    }
    return inventory
