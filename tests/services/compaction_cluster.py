"""A small cluster to compact: a log, a bucket, a catalog, and compactors that can be trapped and killed."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from pyarrow import parquet

from dray.broker.topics.compaction_requests import CompactionRequests
from dray.broker.topics.live import LiveTopics
from dray.broker.topics.model import Topic, TopicSettings
from dray.kafka.records import Record, decode, twin, validate
from dray.log import Collector, LogSettings
from dray.log.life.deletions import MayDelete
from dray.log.stream_store import StreamStore
from dray.log.types import AppendResult, ReadRequest
from dray.metadata import keys
from dray.metadata.contract import Limits
from dray.metadata.memory import MemoryState
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.rows import ForeignRows
from dray.migration.entries.segments import ForeignStore
from dray.objects.memory import MemoryBucket
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer, UnitFailed, UnitWriter
from dray.tables.compaction.planning.shares import WHOLE, ShareNow
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import CompactionObserver, CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.contract import CleanRange, TableChange, TableFile, Tables
from dray_simulation.cluster.tables import MemoryCatalog, Table
from dray_simulation.kernel.runtime import SimulatedRuntime
from tests.services import room_settings
from tests.services.attached_log import CACHE_BYTES, AttachedLog
from tests.simulation.scripted import ScriptedObjects, ScriptedStore, ScriptedTables, bucket_is_ours

DOMAINS = 2
MANY = 1 << 30
ALL = room_settings.compaction(
    takeover_seconds=0.0,
    collect_grace=0.0,
    snapshot_keep_ms=0,
    failed_pause_seconds=60.0,
    collect_seconds=0.0,
)


class CheckedCatalog(MemoryCatalog):
    """At no moment does a table show a record twice, or a key twice below a clean point that it publishes: as
    `tables/iceberg/snapshots.py` does, where it has no file below that the change does not name."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket: MemoryBucket | None = None
        self.points: dict[tuple[str, int], int] = {}  # by topic and partition

    def commit(self, on: Table, changes: Sequence[TableChange], now_ms: int) -> bool:
        done = super().commit(on, changes, now_ms)
        if done:
            files = self.tables[on.topic.topic].newest.files
            offsets = [
                (file.partition, offset)
                for file in files.values()
                for offset in range(file.first_offset, file.last_offset + 1)
            ]
            assert len(offsets) == len(set(offsets)), f"{on.topic.topic} shows records twice"
            for change in changes:
                if change.clean is not None:
                    self._publish(on.topic.topic, change.clean, files)
            for (topic, partition), end in self.points.items():
                if topic == on.topic.topic:
                    self._check_point(partition, end, files)
        return done

    def _publish(self, topic: str, clean: CleanRange, files: Mapping[str, TableFile]) -> None:
        place = topic, clean.partition
        if any(
            file.partition == clean.partition and file.first_offset < clean.end and path not in clean.files
            for path, file in files.items()
        ):
            self.points.pop(place, None)
        else:
            self.points[place] = clean.end

    def _check_point(self, partition: int, end: int, files: Mapping[str, TableFile]) -> None:
        assert self.bucket is not None
        found = [path for path, file in files.items() if file.partition == partition]
        found = [path for path in found if path in self.bucket.objects]
        rows = [row for path in found for row in keys_in(bytes(self.bucket.objects[path].data))]
        keys_below = [key for offset, key in rows if offset < end]
        assert len(keys_below) == len(set(keys_below)), f"a key is there twice below the clean point {end}"


@dataclass
class FixedTopics:
    topics: list[Topic] = field(default_factory=list)

    async def live(self) -> LiveTopics:
        return LiveTopics(list(self.topics))


class WatchedWriter:
    """Counts what it is given, and fails where the test says so."""

    def __init__(self, inner: UnitWriter) -> None:
        self._inner = inner
        self.calls: list[list[Unit]] = []
        self.failing: dict[int, UnitFailed] = {}  # by stream

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> list[UnitAnswer]:
        self.calls.append(list(units))
        failed = [
            replace(self.failing[unit.stream], stream=unit.stream, job=unit.job)
            for unit in units
            if unit.stream in self.failing
        ]
        rest = [unit for unit in units if unit.stream not in self.failing]
        return [*failed, *await self._inner.write(rest, progress)]


class Worker:
    """One compactor, with clients of the stores of its own."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        settings: CompactionSettings,
        observer: CompactionObserver | None,
        tables: bool,
        real_tables: Callable[[SimulatedRuntime], Tables] | None = None,
        share: ShareNow = lambda: WHOLE,
    ) -> None:
        self.runtime = SimulatedRuntime(seed)
        self.contains = False  # whether what is not foreseen was meant to happen
        self.store = ScriptedStore(self.runtime, cluster.state, cluster.limits)
        self.objects = ScriptedObjects(self.runtime, cluster.bucket)
        self.tables = ScriptedTables(cluster.catalog, self.runtime)
        rows = ForeignRows(self.objects, self.runtime, cluster.foreign)
        self.writer = WatchedWriter(LocalUnitWriter(self.objects, self.runtime, rows))
        self.streams = StreamStore(self.store, DOMAINS, cluster.settings.producer_expiry_ms)
        self.compactor = Compactor(
            CompactorStores(self.streams, self.objects, cluster.may_delete),
            self.runtime,
            self.writer,
            real_tables(self.runtime) if real_tables is not None else self.tables if tables else None,
            cluster.topics,
            settings,
            room_settings.log(),
            observer,
            requests=CompactionRequests(self.store, self.runtime) if cluster.requests else None,
            share=share,
        )

    async def once(self) -> CycleSummary:
        """What the compactor contains, as one stream's affair, a test must hear of all the same."""
        summary = await self.compactor.run_cycle(everything=True)
        if self.runtime.failures and not self.contains:
            raise self.runtime.failures[0]
        return summary

    def start(self) -> asyncio.Task[CycleSummary]:
        return self.runtime.spawn(self.once(), "compactor")


@dataclass
class Cluster:
    limits: Limits | None = None
    settings: LogSettings = field(
        default_factory=lambda: room_settings.log(
            object_bytes=1,
            retry_seconds=0.001,
            settle_seconds=0.01,
            orphan_ttl=10.0,
            job_seconds=10.0,
            collect_grace=0.0,
        )
    )
    state: MemoryState = field(default_factory=MemoryState)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    catalog: CheckedCatalog = field(default_factory=CheckedCatalog)
    topics: FixedTopics = field(default_factory=FixedTopics)
    written: dict[int, list[bytes]] = field(default_factory=dict)  # by stream: every value that was appended
    real_tables: Callable[[SimulatedRuntime], Tables] | None = None  # instead of those in memory
    may_delete: MayDelete = bucket_is_ours
    requests: bool = False  # whether compactors look for topics that were asked for
    foreign: dict[str, ForeignStore] = field(default_factory=dict)  # stores of other systems
    seed: int = 1  # two clusters on copies of the same stores must not make the same ids

    def __post_init__(self) -> None:
        self.catalog.bucket = self.bucket
        self.runtime = SimulatedRuntime(self.seed)
        self._seeds = self.seed * 1000
        self.store = ScriptedStore(self.runtime, self.state, self.limits)
        self.objects = ScriptedObjects(self.runtime, self.bucket)
        self.log = self.new_log()
        self.streams = StreamStore(self.store, DOMAINS, self.settings.producer_expiry_ms)

    def new_log(self, **changes: Any) -> AttachedLog:
        """As another broker sees it: nothing is cached."""
        settings = replace(self.settings, tail_cache_bytes=0, segment_cache_bytes=0, **changes)
        return AttachedLog(
            self.store,
            self.objects,
            self.runtime,
            DOMAINS,
            settings,
            may_delete=self.may_delete,
            stores=self.foreign,
        )

    def worker(
        self,
        settings: CompactionSettings = ALL,
        observer: CompactionObserver | None = None,
        tables: bool = True,
        share: ShareNow = lambda: WHOLE,
    ) -> Worker:
        self._seeds += 1
        return Worker(self, self._seeds, settings, observer, tables, self.real_tables, share)

    async def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> Topic:
        streams = await self.log.create_streams(partitions)
        self.written |= {stream: [] for stream in streams}
        overrides = {"retention.ms": "-1", **(config or {})}
        topic = Topic(
            name, UUID(int=1000 + streams[0]), tuple(streams), overrides, 0, TopicSettings.of(overrides, {})
        )
        self.topics.topics.append(topic)
        return topic

    async def delete(self, topic: Topic, *, sweep: bool = True) -> None:
        self.topics.topics.remove(topic)
        await self.log.close_streams(topic.streams)
        if sweep:
            await self.log.sweep_streams(topic.streams)

    async def append(
        self,
        stream: int,
        *values: bytes,
        producer: tuple[int, int, int] = (-1, -1, -1),
        at: int | None = None,
    ) -> AppendResult:
        """One batch, one object, one entry."""
        time = self.runtime.wall_ms() if at is None else at
        records = [
            Record(offset=place, timestamp=time, key=b"k%d" % place, value=value, headers=())
            for place, value in enumerate(values)
        ]
        producer_id, epoch, sequence = producer
        data = twin.encode(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
        appended = await self.log.append(stream, batch, memoryview(data))
        if appended.base_offset == len(self.written[stream]):
            self.written[stream] += values
        return appended

    async def fill(self, stream: int, batches: int, first: int = 0) -> None:
        for number in range(first, first + batches):
            await self.append(stream, b"%d.%d-a" % (stream, number), b"%d.%d-b" % (stream, number))

    # --- what is there

    async def read(self, stream: int) -> list[tuple[int, bytes]]:
        log = self.new_log()
        offset = (await log.bounds(stream)).start
        found: list[tuple[int, bytes]] = []
        while True:
            request = ReadRequest(stream, offset, MANY)
            [result] = await log.fetch([request], min_bytes=0, max_bytes=MANY, max_wait_ms=0)
            if result.error is not None:
                raise result.error
            if not result.buffers:
                return found
            for buffer in result.buffers:
                for record in decode(buffer).records():
                    if record.offset >= offset:
                        found.append((record.offset, bytes(record.value or b"")))
                        offset = record.offset + 1

    async def table_rows(self, topic: Topic) -> dict[int, list[tuple[int, bytes]]]:
        """By partition, what a query would see now: every row of every file of the newest snapshot."""
        rows: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(len(topic.streams))}
        table = self.catalog.tables.get(topic.name)
        if table is None or table.topic.topic_id != topic.topic_id:
            return rows
        for file in table.newest.files.values():
            rows[file.partition] += rows_in(bytes(self.bucket.objects[file.path].data))
        return {partition: sorted(found) for partition, found in rows.items()}

    async def seal(self, stream: int) -> None:
        found = await self.streams.high_watermark(stream)
        assert found is not None
        await self.streams.write(stream, self.streams.advance(stream, found, found.value.sealed()))

    async def entries(self, stream: int) -> list[str]:
        """The live index, as `kind start-end`."""
        view = await self.streams.view(stream)
        assert view is not None
        return [
            f"{entry.value.kind.name.lower()} {entry.value.start}-{entry.value.end}"
            for entry in view.split()[0]
        ]

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        for domain in range(DOMAINS):
            found += self.state.domain(domain, self.runtime.monotonic()).keys
        return [key for key in found if key.startswith(prefix)]

    def files(self) -> set[str]:
        return {path for path in self.bucket.objects if path.startswith("compaction/")}

    def wal_objects(self) -> set[str]:
        return {path for path in self.bucket.objects if path.startswith("wal/")}

    # --- what must hold

    async def check_log(self) -> None:
        for topic in self.topics.topics:
            for stream in topic.streams:
                start = (await self.log.bounds(stream)).start
                expected = list(enumerate(self.written[stream]))[start:]
                assert await self.read(stream) == expected, f"stream {stream} reads otherwise"

    async def check_settled(self) -> None:
        """After everything was compacted and collected: log and table are equal, and nothing is left over."""
        collector = Collector(
            self.streams,
            self.objects,
            self.runtime,
            self.settings,
            may_delete=self.may_delete,
            outside=ForeignEntries(self.objects, self.runtime, self.foreign, CACHE_BYTES),
        )
        for _ in range(3):
            await collector.run()
            await asyncio.sleep(self.settings.orphan_ttl + 1)
        last = self.worker()
        await last.once()
        await asyncio.sleep(1)
        await last.once()
        await collector.run()
        await self.check_log()
        known: set[str] = set()
        for topic in self.topics.topics:
            rows = await self.table_rows(topic)
            for partition, stream in enumerate(topic.streams):
                if topic.settings.iceberg_enabled:
                    assert rows[partition] == await self.read(stream), f"{topic.name}-{partition} differs"
                for entry in await self.streams.entries_above(stream, -1):
                    assert entry.value.is_parquet, "something is left uncompacted"
                    known.add(entry.value.path)
        assert self.files() == known, "files left over or missing"
        assert self.wal_objects() == set(), "WAL objects left over"
        for prefix in (keys.REFERENCES, keys.STAGING, keys.OBJECTS):
            assert self.keys(prefix) == [], "keys of WAL objects left over"


def keys_in(data: bytes) -> list[tuple[int, bytes | None]]:
    """Offsets and keys of a Parquet file, in the same way."""
    table = parquet.read_table(io.BytesIO(data), columns=["offset", "key"])
    return [(row["offset"], row["key"]) for row in table.to_pylist()]


def rows_in(data: bytes) -> list[tuple[int, bytes]]:
    """Offsets and values of a Parquet file, by a reader that is not ours."""
    table = parquet.read_table(io.BytesIO(data), columns=["offset", "value"])
    return [(row["offset"], row["value"]) for row in table.to_pylist()]
