"""The repairs that a restore makes in metadata of an earlier moment, and the records that it gives up.

Since that moment numbers were handed out, offsets assigned and records acknowledged that this metadata does
not know. Compacted files bring back those records that they have without a hole (`brought_back.py`), and the
rest is counted as far as the bucket shows it. The counters jump over what may have been handed out, and every
stream begins a leader epoch at the end that it has then. Last of all the tally is raised: until then every
process is held, so a restore that is interrupted is begun again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import Runtime
from dray.broker.cluster.tally import (
    MARKS,
    NOTHING,
    Mark,
    Tally,
    decode_mark,
    decode_tally,
    encode_tally,
    mark_path,
    number_of_mark,
)
from dray.broker.cluster.tally_keeper import put_mark
from dray.broker.topics.model import Topic, decode_topic, encode_topic
from dray.daemons.recovery.brought_back import (
    Continuation,
    FoundFile,
    RestoreNote,
    bring_back,
    continuations_of,
    covers,
    put_note,
    read_footer,
    settle_job,
)
from dray.log.life.counters import decode as decode_counter
from dray.log.life.counters import jump
from dray.log.life.lifecycle import begin_epoch
from dray.log.parquet.reader import ParquetCorrupt
from dray.log.stream_store import StreamStore
from dray.log.wal import PREFIX as WAL
from dray.log.wal import WalCorrupt, decode_chunk_index, decode_header, parse_object_path
from dray.metadata import keys
from dray.metadata.contract import ANY, MetadataStore, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.objects.contract import ObjectError, ObjectStore
from dray.tables.compaction.paths import PREFIX as FILES
from dray.tables.compaction.paths import parse_file_path

_log = structlog.get_logger(__name__)

SLACK_MS: Final = 10 * 60_000
"""Clocks of machines and stores may be so far apart: what is a little older is looked at too."""

_HEADER: Final = 49
_MOST_CHUNKS: Final = 1 << 20
# By how many numbers a counter jumps for each mark of the tally. It is raised every some seconds, so that two
# restores of one backup never come to the same numbers, unless more are taken in an interval.
_PRODUCER_IDS: Final = 1 << 22
_STREAM_IDS: Final = 1 << 16


@dataclass(slots=True)
class LostOffsets:
    """The offsets of a partition that are gone, as far as the bucket shows them."""

    topic: str
    partition: int
    stream: int
    compacts: bool  # by key
    job: int  # the number of the stream's last one
    highest_job: int  # the same, of all that have a file in the bucket
    end: int  # the partition ended here when its metadata was copied
    brought_to: int = 0  # the end, with what files bring back: new records begin here
    known_to: int = 0  # offsets below this one were acknowledged: a compacted file has them
    files: list[FoundFile] = field(default_factory=list)
    # Of later jobs, too, and not beyond the end: they may have the last copy of records that the stream has.
    below: list[FoundFile] = field(default_factory=list)
    unread: int = 0  # such files of which that is not known
    records: int = 0  # in WAL objects that the metadata does not know
    objects: int = 0

    @property
    def is_lost(self) -> bool:
        return bool(self.known_to > self.brought_to or self.records)

    @property
    def given_up(self) -> list[str]:
        return [file.path for file in self.files if file.last >= self.brought_to]

    def is_all_in(self, came: Sequence[Continuation]) -> bool:
        """Are the files that are not in the log needed for nothing that the stream has?"""
        return not self.unread and all(covers(came, file) for file in self.below)


@dataclass(slots=True)
class NewerTopics:
    """Topics that were made after the metadata was copied, as far as the bucket shows them. They are gone,
    and nothing brings them back: the metadata has neither their configs nor how many partitions they had."""

    files: Counter[str] = field(default_factory=Counter)  # compacted ones, by topic
    records: int = 0  # in WAL objects, of all of them

    @property
    def are_seen(self) -> bool:
        return bool(self.files or self.records)


async def read_topics(store: MetadataStore) -> list[Topic]:
    found = await store.scan(keys.CLUSTER_DOMAIN, keys.TOPICS, keys.prefix_end(keys.TOPICS))
    return [decode_topic(keys.topic_of(each.key) or "", each.value, {}) for each in found]


async def newest_mark(objects: ObjectStore) -> Mark | None:
    numbers = [
        number async for info in objects.list(MARKS) if (number := number_of_mark(info.path)) is not None
    ]
    if not numbers:
        return None
    path = mark_path(max(numbers))
    return decode_mark(path, bytes(await objects.get(path)))


# --- what is lost


async def find_lost(
    store: MetadataStore,
    objects: ObjectStore,
    streams: StreamStore,
    topics: Sequence[Topic],
    since_ms: int | None,
) -> tuple[list[LostOffsets], NewerTopics]:
    """By partition. `since_ms`: when the metadata was copied; None: when its newest record was appended."""
    partitions: dict[int, LostOffsets] = {}
    newest = 0
    for topic in topics:
        for partition, stream in enumerate(topic.streams):
            found = await streams.high_watermark(stream)
            if found is not None and not found.value.closed:
                end, job = found.value.end, (await streams.job(stream)).value.number
                compacts = topic.settings.compacts
                partitions[stream] = LostOffsets(topic.name, partition, stream, compacts, job, job, end, end)
                head = found.value.head
                newest = max(newest, 0 if head is None else head.created_ms)
    since_ms = (newest if since_ms is None else since_ms) - SLACK_MS
    newer = NewerTopics()
    known = {topic.topic_id for topic in topics}
    await _look_at_files(objects, partitions, known, await _deleted_topics(store), newer, since_ms)
    await _look_at_objects(store, objects, streams, partitions, newer, since_ms)
    return list(partitions.values()), newer


async def _deleted_topics(store: MetadataStore) -> set[UUID | None]:
    found = await store.scan(keys.CLUSTER_DOMAIN, keys.DELETED_TOPICS, keys.prefix_end(keys.DELETED_TOPICS))
    return {keys.deleted_topic_of(each.key) for each in found}


async def _look_at_files(
    objects: ObjectStore,
    partitions: Mapping[int, LostOffsets],
    topics: Collection[UUID],
    deleted: Collection[UUID | None],
    newer: NewerTopics,
    since_ms: int,
) -> None:
    async for info in objects.list(FILES):
        parsed = parse_file_path(info.path)
        if parsed is None:
            continue
        if parsed.topic_id not in topics:
            is_newer = info.modified_ms >= since_ms and parsed.topic_id not in deleted
            newer.files[parsed.topic] += is_newer and info.path.endswith(".parquet")
            continue
        lost = partitions.get(parsed.stream)
        if lost is None or parsed.job <= lost.job:
            continue
        lost.highest_job = max(lost.highest_job, parsed.job)
        if not info.path.endswith(".parquet"):
            continue
        bounds = await _bounds_of(objects, info.path, info.size) if info.modified_ms >= since_ms else None
        if bounds is None:
            lost.unread += 1
            continue
        place = info.path, parsed.parquet_id, parsed.job, info.size, info.modified_ms
        found = FoundFile(*place, *bounds)
        (lost.files if found.last >= lost.end else lost.below).append(found)
        lost.known_to = max([file.last + 1 for file in lost.files], default=0)
    newer.files = +newer.files


async def _bounds_of(objects: ObjectStore, path: str, size: int) -> tuple[int, int] | None:
    """The first and the last offset of a file."""
    try:
        groups = (await read_footer(objects, path, size)).row_groups()
    except (ParquetCorrupt, ObjectError) as error:
        _log.warning("a file is not looked at", path=path, error=str(error))
        return None
    return groups[0].first_offset, groups[-1].last_offset


async def later_restore(store: MetadataStore, notes: Sequence[RestoreNote], mark: Mark | None) -> int | None:
    """The number of a restore that this metadata does not know. The bucket's objects may be of metadata that
    was given up then."""
    record = await store.get(keys.CLUSTER_DOMAIN, keys.TALLY)
    known = 0 if record is None else decode_tally(record.value).number
    newest = 0 if mark is None else mark.number
    return max([note.number for note in notes if known < note.number <= newest], default=None)


async def plan_bringing_back(
    streams: StreamStore, lost: Sequence[LostOffsets], notes: Sequence[RestoreNote]
) -> None:
    """Only a look: how far files would bring each partition."""
    given_up = {path for note in notes for path in note.given_up}
    for each in lost:
        each.files = [file for file in each.files if file.path not in given_up]
        each.known_to = max([file.last + 1 for file in each.files], default=0)
        found = await continuations_of(streams, each.stream, each.files, compacts=each.compacts)
        # By key: a later file may lack a tombstone, and an earlier record be there that it deleted.
        if found and (not each.compacts or each.is_all_in(found)):
            each.brought_to = found[-1].file.last + 1


async def _look_at_objects(
    store: MetadataStore,
    objects: ObjectStore,
    streams: StreamStore,
    partitions: Mapping[int, LostOffsets],
    newer: NewerTopics,
    since_ms: int,
) -> None:
    """WAL objects have no offsets: what of them was acknowledged, and where, only the lost metadata knew. One
    with a staging mark may have been announced before the backup, and written after it."""
    counter = await store.get(keys.CLUSTER_DOMAIN, keys.STREAM_COUNTER)
    unused = 0 if counter is None else decode_counter(counter.value)
    async for info in objects.list(WAL):
        parsed = parse_object_path(info.path)
        if parsed is None or info.modified_ms < since_ms or parsed.domain >= streams.domains:
            continue
        settled = await store.get(parsed.domain, keys.staging(parsed.wal_id)) is None
        if settled and await store.get(parsed.domain, keys.wal_object(parsed.wal_id)) is not None:
            continue
        for stream, count in (await _records_of(objects, info.path, info.size)).items():
            lost = partitions.get(stream)
            if lost is not None and (settled or not await _has(streams, stream, parsed.wal_id)):
                lost.records += count
                lost.objects += 1
            elif stream >= unused:  # it was handed out since
                newer.records += count


async def _has(streams: StreamStore, stream: int, wal_id: UUID) -> bool:
    found = await streams.high_watermark(stream)
    head = None if found is None else found.value.head
    if head is not None and head.object_id == wal_id:
        return True
    return any(entry.value.object_id == wal_id for entry in await streams.entries_above(stream, -1))


async def _records_of(objects: ObjectStore, path: str, size: int) -> Counter[int]:
    try:
        [opening] = await objects.get_ranges(path, [(0, _HEADER)])
        header = decode_header(opening, path, size)
        if header.chunk_count > _MOST_CHUNKS:
            return Counter()
        [index] = await objects.get_ranges(path, [(_HEADER, header.chunk_index_length)])
        chunks = decode_chunk_index(index, header, path, size)
        return Counter({chunk.stream_id: chunk.record_count for chunk in chunks})
    except (WalCorrupt, ObjectError) as error:  # a mirror's object has no header
        _log.info("an object is not looked at", path=path, error=str(error))
        return Counter()


# --- putting it right


async def bring_all_back(
    objects: ObjectStore,
    streams: StreamStore,
    runtime: Runtime,
    lost: Sequence[LostOffsets],
    mark: Mark | None,
) -> None:
    """And give up the rest: it never comes back, as its offsets are given to other records."""
    for each in lost:
        came: list[Continuation] = []
        if each.brought_to > each.end:
            files = each.files
            came = await bring_back(objects, streams, runtime, each.stream, files, compacts=each.compacts)
            each.brought_to = came[-1].file.last + 1 if came else each.end
        if each.highest_job and each.is_all_in(came):
            await settle_job(streams, runtime, each.stream, each.highest_job)
    number = 1 + (0 if mark is None else mark.number)
    given_up = sorted(path for each in lost for path in each.given_up)
    await put_note(objects, runtime, RestoreNote(number, tuple(given_up)))


async def put_right(
    store: MetadataStore,
    streams: StreamStore,
    runtime: Runtime,
    topics: Sequence[Topic],
    mark: Mark | None,
) -> None:
    """All but the tally. No broker may run. Begun again, it takes other numbers and later epochs."""
    number = 1 + (0 if mark is None else mark.number)
    await jump(store, runtime, keys.PRODUCER_COUNTER, number * _PRODUCER_IDS)
    await jump(store, runtime, keys.STREAM_COUNTER, number * _STREAM_IDS)
    for topic in topics:
        epoch = max(topic.leader_epoch + 1, number)
        for stream in topic.streams:
            await begin_epoch(streams, runtime, stream, epoch)
        await _raise_epoch(store, runtime, topic.name, epoch)


async def _raise_epoch(store: MetadataStore, runtime: Runtime, name: str, epoch: int) -> None:
    async def attempt() -> bool | None:
        await store.barrier(keys.CLUSTER_DOMAIN)
        record = await store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if record is None:
            return True
        topic = decode_topic(name, record.value, {})
        put = Put(keys.topic(name), encode_topic(replace(topic, leader_epoch=epoch)), record.version)
        [outcome] = await store.write(keys.CLUSTER_DOMAIN, [put])
        return True if outcome.applied else None

    await update(runtime, attempt, ALL_FAILURES)


async def raise_tally(
    store: MetadataStore, objects: ObjectStore, runtime: Runtime, cluster_id: str, mark: Mark | None
) -> int:
    """From here on this metadata store is the cluster, and every other that was is held. The new number."""
    token = runtime.uuid().hex
    before = NOTHING if mark is None else Tally(mark.number, mark.token)
    await _put_tally(store, replace(before, next=token))
    number = before.number + 1
    await put_mark(objects, Mark(cluster_id, number, token, 1000 if mark is None else mark.interval_ms))
    if decode_mark(mark_path(number), bytes(await objects.get(mark_path(number)))).token != token:
        raise ObjectError("another metadata store has raised the tally of this bucket just now")
    await _put_tally(store, Tally(number, token))
    return number


async def _put_tally(store: MetadataStore, tally: Tally) -> None:
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.TALLY, encode_tally(tally), ANY)])
