"""A Dray cluster's metadata store, to be read and never written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from dray.broker.cluster.clock_guard import StoredBeat, decode_beat
from dray.broker.cluster.identity import decode_cluster
from dray.broker.cluster.membership import Broker, decode_broker
from dray.broker.topics.model import Topic, decode_topic
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.machine import Job, JobState
from dray.log.read.time_lookup import time_in
from dray.log.stream_store import StreamStore, StreamView
from dray.metadata import keys
from dray.metadata.contract import Change, Limits, MetadataStore, Operation, Outcome, Session, StoredValue
from dray.metadata.values import UnreadableValue
from dray.migration.groups.copy import decode_copy
from dray.migration.record import MigrationRecord, decode_migration

_PIECE: Final = 200


class ReadOnly(Exception):
    """Something that only reads was about to write: a mistake in the code."""


class ReadOnlyMetadataStore:
    """Another store, without its writes and sessions."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    @property
    def limits(self) -> Limits:
        return self._store.limits

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._store.get(domain, key)

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._store.floor(domain, key, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._store.ceiling(domain, key, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        return await self._store.scan(domain, start, end, limit)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:  # noqa: ARG002
        _refuse()

    async def barrier(self, domain: int) -> None:
        await self._store.barrier(domain)

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncIterator[Change]:
        return self._store.watch(domain, endings)

    async def mark(self, domain: int, name: str) -> None:  # noqa: ARG002
        _refuse()

    async def session(self, domain: int, ttl: float) -> Session:  # noqa: ARG002
        _refuse()

    async def close(self) -> None:
        await self._store.close()


def _refuse() -> NoReturn:
    raise ReadOnly("the console reads the metadata store, and never writes it")


@dataclass(frozen=True)
class EntryOf:
    """The entry in which an offset lies."""

    entry: IndexEntry
    is_head: bool


@dataclass(frozen=True)
class KnownBuilds:
    """Which build each process of a cluster is, as it wrote it down."""

    of_brokers: Mapping[int, str]
    of_others: Sequence[tuple[str, str, str | None]]
    """Role, build, and the address of its health."""
    level: int | None = None
    """The cluster's level; None where its record cannot be read."""

    @property
    def different(self) -> list[str]:
        return sorted({*self.of_brokers.values(), *(build for _, build, _ in self.of_others)} - {""})


class StoredCluster:
    def __init__(
        self, store: MetadataStore, domains: int, defaults: Mapping[str, str], producer_expiry_ms: int
    ) -> None:
        """`defaults`: the brokers' own, for topic configs."""
        self._store = ReadOnlyMetadataStore(store)
        self._domains = domains
        self._defaults = defaults
        self._streams = StreamStore(self._store, domains, producer_expiry_ms)

    async def registrations(self) -> list[Broker]:
        """The registrations of brokers, as they are stored; one that this build cannot read is left out."""
        found = []
        for record in await self._scan(keys.BROKERS):
            broker_id = keys.broker_of(record.key)
            if broker_id is None:
                continue
            try:
                found.append(decode_broker(broker_id, record.value))
            except UnreadableValue:
                continue
        return found

    async def processes(self) -> list[StoredBeat]:
        """The processes that describe themselves in their beats: compactors."""
        found = []
        for record in await self._scan(keys.CLOCKS):
            try:
                beat = decode_beat(record.value)
            except UnreadableValue:
                continue
            if beat.process is not None:
                found.append(beat)
        return found

    async def builds(self) -> KnownBuilds:
        """Brokers count by their registrations, others by their beats."""
        described = [beat.process for beat in await self.processes() if beat.process is not None]
        return KnownBuilds(
            {broker.broker_id: broker.build for broker in await self.registrations()},
            sorted((each.role, each.build, each.http) for each in described if each.role != "broker"),
            await self._level(),
        )

    async def _level(self) -> int | None:
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        try:
            return None if record is None else decode_cluster(record.value).level.number
        except UnreadableValue:
            return None

    async def topic(self, name: str) -> Topic | None:
        """None where there is none, and where this build cannot read it."""
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if record is None:
            return None
        try:
            return decode_topic(name, record.value, self._defaults)
        except UnreadableValue:
            return None

    async def live_migration(self, topic: str) -> MigrationRecord | None:
        """None for a topic that was not linked to a running cluster, and where this build cannot read it."""
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.migration(topic))
        return None if record is None else _live(topic, record.value)

    async def live_migrations(self) -> dict[str, MigrationRecord]:
        found: dict[str, MigrationRecord] = {}
        async for record in self._pages(keys.CLUSTER_DOMAIN, keys.MIGRATIONS):
            topic = keys.topic_of_migration(record.key)
            live = None if topic is None else _live(topic, record.value)
            if topic is not None and live is not None:
                found[topic] = live
        return found

    async def followed_groups(self) -> dict[tuple[str, str], list[str]]:
        """The groups that come with topics from another cluster, by topic and by how far they are."""
        found: dict[tuple[str, str], list[str]] = {}
        for domain in range(self._domains):
            async for record in self._pages(domain, keys.FOLLOWED_GROUPS):
                group = keys.group_of_followed(record.key)
                if group is None:
                    continue
                try:
                    copy = decode_copy(group, record.value)
                except UnreadableValue:
                    continue
                for topic in {*copy.topics, *(copy.later or {})}:
                    if (state := copy.state_with(topic)) is not None:
                        found.setdefault((topic, state.value), []).append(group)
        return {key: sorted(groups) for key, groups in found.items()}

    async def high_watermark(self, stream: int) -> HighWatermark | None:
        found = await self._streams.high_watermark(stream)
        return None if found is None else found.value

    async def view(self, stream: int) -> StreamView | None:
        return await self._streams.view(stream)

    async def job(self, stream: int) -> Job | None:
        record = await self._store.get(self._streams.domain(stream), keys.job(stream))
        if record is None:
            return None
        try:
            return Job.decode(record.value)
        except UnreadableValue:
            return None

    async def entry_of(self, stream: int, offset: int) -> EntryOf | None:
        """The newest state of a stream is read first: its head covers whatever was filed below it."""
        mark = await self._streams.high_watermark(stream)
        if mark is None:
            return None
        head = mark.value.head
        if head is not None and head.start <= offset < head.end:
            return EntryOf(head, True)
        for found in await self._streams.entries_above(stream, offset, limit=1):
            if found.value.start <= offset < found.value.end:
                return EntryOf(found.value, False)
        return None

    async def time_of(self, topic: str, partition: int, offset: int) -> int | None:
        """When the first record from an offset on was written, to its batch or row group."""
        known = await self.topic(topic)
        stream = None if known is None else known.stream_of(partition)
        if stream is None:
            return None
        start = (await self._streams.start(stream)).value
        found = await self.entry_of(stream, max(offset, start))
        return None if found is None else time_in(found.entry, max(offset, start))

    async def _pages(self, domain: int, prefix: str) -> AsyncIterator[StoredValue]:
        """However many there are, other pages get their turn between the pieces."""
        start, end = prefix, keys.prefix_end(prefix)
        while True:
            piece = await self._store.scan(domain, start, end, _PIECE)
            for record in piece:
                yield record
            if len(piece) < _PIECE:
                return
            start = piece[-1].key + "\0"

    async def _scan(self, prefix: str) -> list[StoredValue]:
        return await self._store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix))


def _live(topic: str, value: bytes) -> MigrationRecord | None:
    try:
        record = decode_migration(topic, value)
    except UnreadableValue:
        return None
    return record if record.is_live else None


# --- the place of every offset of a topic: in WAL objects, or in Parquet files


MOST_PIECES: Final = 240
"""As many rectangles as a band has; more would be narrower than what a screen can show."""
MOST_PARTITIONS: Final = 64

PARQUET: Final = "parquet"
WAL: Final = "wal"
NEWEST: Final = "newest"


@dataclass(frozen=True)
class MapPiece:
    kind: str
    """parquet, wal, or newest: the last object, whose entry is not filed yet"""
    start: int
    end: int
    size: int
    """Bytes in the object store."""
    objects: int
    path: str
    """The path of the object; empty where several are drawn as one."""
    written_ms: int


@dataclass(frozen=True)
class JobRange:
    start: int
    end: int
    state: str


@dataclass(frozen=True)
class PartitionMap:
    partition: int
    stream: int
    start: int
    end: int
    pieces: Sequence[MapPiece]
    job: JobRange | None
    wal_bytes: int
    wal_objects: int
    parquet_bytes: int
    parquet_files: int
    table_end: int
    """The offset after the last one that is in a Parquet file."""


@dataclass(frozen=True)
class OffsetMap:
    topic: str
    partitions: Sequence[PartitionMap]
    total: int
    """The number of the topic's partitions; the first of them are shown."""

    @property
    def wal_bytes(self) -> int:
        return sum(each.wal_bytes for each in self.partitions)

    @property
    def parquet_bytes(self) -> int:
        return sum(each.parquet_bytes for each in self.partitions)


async def offset_map(stored: StoredCluster, topic: str) -> OffsetMap | None:
    known = await stored.topic(topic)
    if known is None:
        return None
    maps = []
    for partition, stream in enumerate(known.streams[:MOST_PARTITIONS]):
        view = await stored.view(stream)
        maps.append(map_of(partition, stream, view, await stored.job(stream)))
    return OffsetMap(topic, maps, len(known.streams))


def map_of(partition: int, stream: int, view: StreamView | None, job: Job | None) -> PartitionMap:
    if view is None:
        return PartitionMap(partition, stream, 0, 0, [], None, 0, 0, 0, 0, 0)
    mark = view.high_watermark.value
    pieces = [_piece(entry.value, view.start) for entry in view.split()[0]]
    if mark.head is not None and mark.head.end > view.start:
        pieces.append(_piece(mark.head, view.start, is_head=True))
    files = [piece for piece in pieces if piece.kind == PARQUET]
    objects = [piece for piece in pieces if piece.kind != PARQUET]
    return PartitionMap(
        partition,
        stream,
        view.start,
        mark.end,
        merged(pieces, mark.end - view.start),
        _range(job),
        sum(piece.size for piece in objects),
        len(objects),
        sum(piece.size for piece in files),
        len(files),
        max((piece.end for piece in files), default=view.start),
    )


def merged(pieces: Sequence[MapPiece], offsets: int) -> list[MapPiece]:
    """Neighbours of one kind become one where there are more than can be seen."""
    if len(pieces) <= MOST_PIECES:
        return list(pieces)
    narrow = offsets / MOST_PIECES
    result: list[MapPiece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and last.kind == piece.kind and piece.end - last.start <= narrow:
            result[-1] = replace(
                last,
                end=piece.end,
                size=last.size + piece.size,
                objects=last.objects + piece.objects,
                path="",
                written_ms=piece.written_ms,
            )
        else:
            result.append(piece)
    return result


def _piece(entry: IndexEntry, start: int, *, is_head: bool = False) -> MapPiece:
    kind = PARQUET if entry.is_parquet else NEWEST if is_head else WAL
    return MapPiece(
        kind, max(entry.start, start), entry.end, entry.stored_bytes, 1, entry.place, entry.created_ms
    )


def _range(job: Job | None) -> JobRange | None:
    if job is None or job.state is JobState.DONE or job.compaction is None:
        return None
    return JobRange(job.compaction.start, job.compaction.end, job.state.value)
