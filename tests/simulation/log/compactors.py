"""Compactors in the log's world: real ones, in the same weather, crashing, standing still, several at once.

In some runs the catalog is away for a while, or others hold a table, and compactors lose their patience: the
log goes on without the table.

The oracle looks into Parquet files, and watches the tables: at no moment does a table show a record
twice, a file that a table or the index needs is never deleted, and no job brings a record into a table that
was deleted before. After a cycle that began when the deletion was acknowledged, and that nothing disturbed,
the table shows none of what was deleted. When all is quiet, the tables hold exactly the compacted part of the
log, and nothing is left over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final
from uuid import UUID

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.world import DOMAINS, Broker, LogWorld

from dray.broker.topics.live import LiveTopics
from dray.broker.topics.model import Topic, TopicSettings
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.config import Settings
from dray.log.jobs.machine import Job, JobState
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Operation, Outcome, Put
from dray.migration.entries.rows import ForeignRows
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.contract import TableChange, TablesError
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.tables import FaultyTables, MemoryCatalog, Table
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime

KEPT: Final = "kept"
PERHAPS: Final = "perhaps"


class WatchedCatalog(MemoryCatalog):
    """A catalog that is looked at after every commit."""

    def __init__(self, world: CompactedWorld) -> None:
        super().__init__()
        self._world = world

    def commit(self, on: Table, changes: Sequence[TableChange], now_ms: int) -> bool:
        done = super().commit(on, changes, now_ms)
        if done:
            self._world.counts["table commits"] += 1
            self._world.judge_table(self.tables[on.topic.topic])
            self._world.judge_added(on.topic.topic, changes)
        return done


@dataclass(frozen=True, slots=True)
class CompactionConditions:
    compactors: int
    pause: float  # between two cycles
    crash_every: float
    out_every: float | None  # how often tables cannot be written; None: never
    settings: CompactionSettings

    @classmethod
    def choose(cls, seed: int) -> CompactionConditions:
        random, tables = Random(seed ^ 0xC0), Random(seed ^ 0x7AB)
        return cls(
            out_every=tables.choice((None, None, 0.3, 1.0)),
            compactors=random.choice((1, 2, 2)),
            pause=random.choice((0.05, 0.4)),
            crash_every=random.choice((1.0, 4.0)),
            settings=replace(
                compaction_settings(Settings()),
                wal_max_age=random.choice((0.0, 0.2, 1.0)),
                wal_max_entries=random.choice((2, 6)),
                max_inputs=random.choice((2, 5, 50)),
                parquet_max_files=random.choice((1, 2, 6)),
                takeover_seconds=random.choice((0.0, 0.5)),
                table_patience_seconds=tables.choice((0.0, 0.1, 0.5, 3600.0)),
                failed_pause_seconds=0.1,
                collect_seconds=random.choice((0.0, 0.5)),
                reread_seconds=random.choice((0.2, 600.0)),
                collect_grace=random.choice((0.0, 0.3)),
                snapshot_keep_ms=random.choice((0, 1000)),
            ),
        )


class CompactorProcess:
    """One simulated process with a compactor in it."""

    def __init__(self, world: CompactedWorld, seed: int) -> None:
        self.runtime = SimulatedRuntime(seed)
        weather = world.conditions.weather
        self.store = FaultyStore(world.state, world.apply, self.runtime, weather)
        inner = MemoryObjects(self.runtime, world.bucket)
        self.objects = FaultyObjects(inner, world.store_object, world.delete_object, self.runtime, weather)
        self.tables = FaultyTables(world.catalog, self.runtime, weather)
        self.streams = StreamStore(self.store, DOMAINS, world.conditions.settings.producer_expiry_ms)
        self.judge = CycleJudge(world)
        self.compactor = Compactor(
            CompactorStores(self.streams, self.objects, world.guard(self.objects)),
            self.runtime,
            LocalUnitWriter(self.objects, self.runtime, ForeignRows(self.objects, self.runtime)),
            self.tables,
            world,
            world.compaction.settings,
            log_settings(Settings()),
        )
        self._world = world

    def start(self) -> None:
        if self._world.random.random() < 0.5:
            self.compactor.follow()
        self.runtime.spawn(self._play(), "compactor")

    async def _play(self) -> None:
        world = self._world
        while True:
            with suppress(MetadataError, ObjectError, LogError, TablesError):
                everything = world.random.random() < 0.3
                self.judge.begins()
                summary = await self.compactor.run_cycle(everything=everything)
                self.judge.ended(summary, self.compactor.owner, everything=everything)
                world.counts["cycles"] += 1
                world.counts["jobs abandoned"] += summary.abandoned
                world.counts["files deleted"] += summary.files_deleted
                world.counts["files restored"] += summary.table_files_restored
                world.counts["jobs without their table"] += summary.without_table
            await self.runtime.sleep(world.random.random() * 2 * world.compaction.pause)

    def crash(self) -> None:
        self.store.cut()
        self.objects.cut()
        self.tables.cut_off = True
        self.runtime.kill()


class CycleJudge:
    """Holds a cycle to its promise, for the streams in which nobody else was at work meanwhile."""

    def __init__(self, world: CompactedWorld) -> None:
        self._world = world
        self._below: dict[int, int] = {}
        self._first_write = 0
        self._under_way: set[int] = set()

    def begins(self) -> None:
        self._under_way = set(self._world.under_way)
        self._below = dict(self._world.deleted_below)
        self._first_write = len(self._world.job_writes)

    def ended(self, summary: CycleSummary, owner: str, *, everything: bool) -> None:
        if summary.troubles or summary.left_to_others or summary.waiting:
            return
        world = self._world
        others = {stream for stream, whose in world.job_writes[self._first_write :] if whose != owner}
        if not everything:  # a plain cycle ends a job that was under way, and plans in the next one
            others |= self._under_way
        below = {
            stream: offset
            for stream, offset in self._below.items()
            if stream not in others and stream not in world.closing
        }
        world.counts["cycles after deletions"] += bool(below)
        world.judge_deleted(below)


class CompactedWorld(LogWorld):
    """The log's world with compactors, and a catalog. It tells them which topics there are."""

    def __init__(self, seed: int, conditions: LogConditions | None = None) -> None:
        super().__init__(seed, conditions)
        self.seed = seed
        self.compaction = CompactionConditions.choose(seed)
        self.catalog = WatchedCatalog(self)
        self.processes: list[CompactorProcess] = []
        self.job_writes: list[tuple[int, str]] = []  # stream, and whose job; empty for retention
        self.under_way: set[int] = set()  # streams whose job is not done
        self.left: set[int] = set()  # streams that have left their table
        self._last: CompactorProcess | None = None

    # --- topics

    async def live(self) -> LiveTopics:
        """The last stream is a topic of its own, since it may be deleted."""
        parts = {KEPT: self.streams[:-1], PERHAPS: self.streams[-1:]}
        if self.streams[-1] in self.closing:
            del parts[PERHAPS]
        settings = TopicSettings.of({"retention.ms": "-1"}, {})
        return LiveTopics(
            [
                Topic(name, UUID(int=streams[0] + 1), tuple(streams), {}, 0, settings)
                for name, streams in parts.items()
                if streams
            ]
        )

    # --- what must always hold

    def apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = super().apply(domain, operations)
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(operation, Put) and outcome.applied and operation.key.startswith(keys.JOBS):
                self._job_written(operation.key, Job.decode(operation.value))
        return outcomes

    def _job_written(self, key: str, job: Job) -> None:
        self.counts[f"job {job.state.value}"] += 1
        stream = keys.stream_of_job(key)
        if stream is not None and job.left_table is not None:
            self.left.add(stream)
        elif stream in self.left:
            self.left.discard(stream)
            self.counts["tables caught up"] += 1
        if stream is not None and job.state is JobState.DONE:
            self.under_way.discard(stream)
        elif stream is not None:
            self.under_way.add(stream)
            owner = "" if job.compaction is None else job.compaction.owner
            self.job_writes.append((stream, owner))

    def stream_of(self, topic: str, partition: int) -> int:
        return self.streams[partition] if topic == KEPT else self.streams[-1]

    def judge_added(self, topic: str, changes: Sequence[TableChange]) -> None:
        """What a job adds lies above the start. (What is restored may be on its way while the start is
        raised: it leaves again. So may what is added for a job that went on without it.)"""

        def judge() -> None:
            for change in changes:
                for file in () if change.job.startswith("restored") else change.added:
                    stream = self.stream_of(topic, file.partition)
                    if stream not in self.left and file.first_offset < self.truth.start(stream):
                        raise Violation(
                            f"{topic}: {file.path} brings records into the table that were deleted"
                        )

        self._judge(judge)

    def judge_deleted(self, below: Mapping[int, int]) -> None:
        """No table shows what lies below these offsets, by stream."""

        def judge() -> None:
            for table in self.catalog.tables.values():
                for file in table.newest.files.values():
                    stream = self.stream_of(table.topic.topic, file.partition)
                    if file.first_offset < below.get(stream, 0):
                        raise Violation(f"{table.topic.topic}: {file.path} still shows what was deleted")

        self._judge(judge)

    def judge_table(self, table: Table) -> None:
        def judge() -> None:
            reached: dict[int, int] = {}
            for file in sorted(table.newest.files.values(), key=lambda each: each.first_offset):
                if file.first_offset < reached.get(file.partition, 0):
                    raise Violation(f"{table.topic.topic}: {file.path} shows records a second time")
                reached[file.partition] = file.last_offset + 1
                if file.path not in self.bucket.objects:
                    raise Violation(f"{table.topic.topic}: {file.path} is in the table, and nowhere else")

        self._judge(judge)

    def delete_object(self, path: str) -> None:
        super().delete_object(path)
        for table in self.catalog.tables.values():
            if any(path in snapshot.files for snapshot in table.snapshots):
                self.fail(Violation(f"{table.topic.topic}: {path} is in the table, and was deleted"))

    # --- compactors

    async def start(self) -> None:
        await super().start()
        for _ in range(self.compaction.compactors):
            self.processes.append(self._new_process())
            self.processes[-1].start()

    def replace_compactor(self, place: int) -> None:
        self.counts["compactor crashes"] += 1
        self._check_process(self.processes[place])
        self.processes[place].crash()
        self.processes[place] = self._new_process()
        self.processes[place].start()

    def _check_process(self, process: CompactorProcess) -> None:
        for failure in process.runtime.failures:
            self.fail(failure)

    def _new_process(self) -> CompactorProcess:
        return CompactorProcess(self, self.random.getrandbits(48))

    def crash_all(self) -> None:
        for broker in self.brokers:
            broker.crash()
        for process in self.processes:
            process.crash()

    # --- the end

    async def calm_down(self) -> None:
        for process in self.processes:
            self._check_process(process)
            process.crash()
        self.catalog.away = False
        self.catalog.held.clear()
        await super().calm_down()

    async def _finish_streams(self, store: StreamStore, last: Broker) -> None:
        for stream in self.closing:  # a deletion that was begun is carried on until it is done
            if not self.truth.streams[stream].closed:
                await last.log.close_streams([stream])
        if self._last is None:
            self._last = self._new_process()
        summary = await self._last.compactor.run_cycle(everything=True)
        if summary.troubles:
            raise Violation(f"calm, but {summary.troubles[0]}")
        await super()._finish_streams(store, last)

    async def _check_leftovers(self, store: StreamStore) -> None:
        await super()._check_leftovers(store)
        for topic in (await self.live()).known:
            table = self.catalog.tables.get(topic.name)
            shown = set() if table is None else set(table.newest.files)
            compacted = {
                entry.path
                for stream in topic.streams
                for entry in self.truth.streams[stream].live()
                if entry.is_parquet
            }
            if shown != compacted:
                raise Violation(f"{topic.name}: the table does not show what the log holds")
        if left := self.left & {stream for topic in (await self.live()).known for stream in topic.streams}:
            raise Violation(f"tables of {left} were never brought up to the log")
        self.judge_deleted({stream: self.truth.start(stream) for stream in self.streams})
        if self.streams[-1] in self.closing and PERHAPS in self.catalog.tables:
            raise Violation("the table of a deleted topic is left over")


async def play_compactors(world: CompactedWorld) -> None:
    """Crash one now and then, and make one stand still."""
    random = world.random
    while True:
        await asyncio.sleep(random.uniform(0.2, 2 * world.compaction.crash_every))
        place = random.randrange(len(world.processes))
        if random.random() < 0.5:
            world.replace_compactor(place)
        else:
            world.counts["compactor pauses"] += 1
            world.processes[place].runtime.pause(random.uniform(0.05, world.conditions.longest_pause))


async def play_others(world: CompactedWorld) -> None:
    """The catalog is away for a while, or somebody holds a table."""
    random = Random(world.seed)
    every = world.compaction.out_every
    while every is not None:
        await asyncio.sleep(random.uniform(0.1, 2 * every))
        if random.random() < 0.5:
            world.catalog.away = True
        else:
            world.catalog.held.add(random.choice((KEPT, PERHAPS)))
        world.counts["tables out"] += 1
        await asyncio.sleep(random.uniform(0.1, 1.5))
        world.catalog.away = False
        world.catalog.held.clear()
