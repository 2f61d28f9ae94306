"""The compactor: plan, write, commit, swap, retain, collect; then again.

All units of a round go to the writer in one call, all jobs of a topic into one commit of its table. A round
knows nothing of the one before it: everything is read from the stores, so a compactor may die at any point,
and any number of them may run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from dray.compaction.job_board import JobBoard
from dray.compaction.model import Unit, UnitFailed, UnitWriter, WrittenFile
from dray.compaction.planner import StreamPlan, plan_stream, size_of
from dray.compaction.retention import TopicRetention
from dray.compaction.saga import Saga, Underway, mismatch
from dray.compaction.settings import CompactionSettings
from dray.compaction.summary import CompactionObserver, CycleSummary, Phase, Trouble
from dray.compaction.table_commits import TableCommits
from dray.compaction.tables import Tables, TopicTable
from dray.compaction.topic_source import TopicSource
from dray.compaction.upkeep import Upkeep
from dray.log.jobs import Job, JobState
from dray.log.retention import Retention, sweep
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, Versioned
from dray.log.swap import SwapImpossible
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError, ObjectStore
from dray.runtime import Runtime
from dray.topics.model import Topic

_log = structlog.get_logger(__name__)

# Of `everything`: each round may do one job per stream.
_MOST_ROUNDS = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stores:
    streams: StreamStore
    objects: ObjectStore


@dataclass(slots=True)
class _Round:
    """What is under way in a round, by what is next for it."""

    topics: list[Topic]
    summary: CycleSummary
    everything: bool
    places: dict[int, tuple[Topic, int]] = field(default_factory=dict)  # stream: topic and partition
    units: list[tuple[Underway, Unit]] = field(default_factory=list)
    written: list[Underway] = field(default_factory=list)
    committed: list[Underway] = field(default_factory=list)
    planned_bytes: int = 0
    progressed: bool = False  # something changed, so another round may find more

    def name_of(self, stream: int) -> tuple[str, int]:
        place = self.places.get(stream)
        return (f"stream {stream} of a deleted topic", -1) if place is None else (place[0].name, place[1])


class Compactor:
    """`tables` is None where Iceberg is off for the cluster."""

    def __init__(
        self,
        stores: Stores,
        runtime: Runtime,
        writer: UnitWriter,
        tables: Tables | None,
        topics: TopicSource,
        settings: CompactionSettings | None = None,
        observer: CompactionObserver | None = None,
    ) -> None:
        self._settings = settings or CompactionSettings()
        self._observer = observer or CompactionObserver()
        self._store = stores.streams
        self._runtime = runtime
        self._writer = writer
        self._topics = topics
        self._owner = runtime.uuid().hex
        self._board = JobBoard(self._store, runtime)
        self._saga = Saga(self._store, runtime, self._owner)
        self._tables = tables
        self._commits = TableCommits(tables, self._saga)
        self._retention = Retention(self._store, runtime, LogSettings())
        self._kept = TopicRetention(self._retention, self._settings.streams_at_once)
        self.upkeep = Upkeep(stores.streams, stores.objects, runtime, tables, topics, self._settings)
        self._stopped_until: dict[int, float] = {}  # streams whose unit could not be written
        self._next_collection = runtime.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Cycle after cycle until `stop` is set. What the writer raises ends it."""
        while not stop.is_set():
            more = False
            try:
                more = (await self.run_cycle(everything=False)).more
            except (MetadataError, ObjectError, LogError) as error:
                _log.warning("compaction cycle interrupted", error=str(error))
            try:
                await asyncio.wait_for(stop.wait(), 0.0 if more else self._settings.interval_seconds)
            except TimeoutError:
                continue

    async def run_cycle(self, *, everything: bool) -> CycleSummary:
        """`everything`: seal and compact all there is, whatever its age and whoever began it, and collect."""
        summary = CycleSummary()
        started = self._runtime.monotonic()
        for _ in range(_MOST_ROUNDS):
            summary.more = False
            progressed = await self._round(summary, everything)
            if not (everything and progressed):
                break
        await self._retain(summary)
        if everything or self._runtime.monotonic() >= self._next_collection:
            self._observer.progress(Phase.COLLECT, 0, 1)
            await self.upkeep.run(summary)
            self._next_collection = self._runtime.monotonic() + self._settings.collect_seconds
            self._observer.progress(Phase.COLLECT, 1, 1)
        summary.seconds = self._runtime.monotonic() - started
        self._observer.finished(summary)
        return summary

    async def _round(self, summary: CycleSummary, everything: bool) -> bool:
        now = _Round(await self._topics.live(), summary, everything)
        for topic in now.topics:
            for partition, stream in enumerate(topic.streams):
                now.places[stream] = topic, partition
        summary.streams = len(now.places)
        await self._board.read()  # before any index is looked at: stale plans must not start
        await self._each(now, Phase.PLAN, list(self._board.jobs.items()), self._sort)
        await self._write(now)
        await self._commit(now)
        await self._each(now, Phase.SWAP, [(job.stream, job) for job in now.committed], self._swap)
        if self._commits.refused:
            await self._clear_the_way(now)
        return now.progressed

    async def _clear_the_way(self, now: _Round) -> None:
        """A topic's name may have been that of a deleted one, whose table is still there."""
        self._commits.refused = False
        before = now.summary.tables_dropped
        await self.upkeep.drop_dead_tables(now.summary)
        if now.summary.tables_dropped > before:
            now.progressed = now.summary.more = True

    # --- plan

    async def _sort(self, now: _Round, stream: int, job: Versioned[Job]) -> None:
        """What is next for a stream: its unfinished job, or a new plan."""
        place = now.places.get(stream)
        state = job.value.state
        if state is JobState.DONE:
            if place is not None:
                await self._plan(now, place, stream, job)
        elif state in (JobState.RETAIN, JobState.RAISED):
            await self._finish_retention(stream, job)
        elif not (now.everything or self._may_carry_on(stream, job)):
            now.summary.left_to_others += 1
        elif state is JobState.CREATED:
            await self._take_over(now, Underway(stream, job))
        elif state is JobState.PARQUET_WRITTEN:
            now.written.append(Underway(stream, job))
        else:
            now.committed.append(Underway(stream, job))

    def _may_carry_on(self, stream: int, job: Versioned[Job]) -> bool:
        mine = job.value.compacted.owner == self._owner
        return mine or self._board.stood_still(stream) >= self._settings.takeover_seconds

    async def _plan(self, now: _Round, place: tuple[Topic, int], stream: int, job: Versioned[Job]) -> None:
        topic, partition = place
        if self._runtime.monotonic() < self._stopped_until.get(stream, 0.0):
            return
        plan = await self._look(now, topic, stream)
        if plan is not None and plan.seal:
            plan = await self._look(now, topic, stream)  # what was the head can be compacted now
        if plan is None:
            return
        now.progressed = now.progressed or plan.seal  # there is another head already
        if plan.refused is not None:
            self._stop_stream(now, stream, plan.refused)
        if not plan.inputs:
            return
        size = sum(size_of(entry.value) for entry in plan.inputs)
        if now.planned_bytes and now.planned_bytes + size > self._settings.cycle_bytes:
            now.progressed = now.summary.more = True  # there is a next round for it
            return
        now.planned_bytes += size
        table = self._tables is not None and topic.settings.iceberg_enabled
        created = await self._saga.create(topic, partition, job, plan.inputs, table=table)
        if created is not None:
            now.units.append(created)
            now.summary.more = now.summary.more or plan.more
            now.summary.input_bytes += size

    async def _look(self, now: _Round, topic: Topic, stream: int) -> StreamPlan | None:
        """One look at a stream; what late writes brought back is swept, and an old head is sealed."""
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            return None
        plan = plan_stream(
            view,
            self._runtime.wall_ms(),
            self._settings,
            everything=now.everything,
            by_day=topic.settings.partition_by_day,
            most_inputs=self._store.store.limits.operations - 2,
        )
        if plan.dead:
            await sweep(self._store, stream, plan.dead)
            now.summary.swept += len(plan.dead)
        if plan.seal:
            sealed = view.high_watermark.value.sealed()
            await self._store.write(stream, self._store.advance(stream, view.high_watermark, sealed))
            now.summary.sealed += 1
        return plan

    async def _take_over(self, now: _Round, underway: Underway) -> None:
        closed = await self._saga.is_closed(underway.stream)
        unit = None if closed else await self._saga.take_over(underway)
        if unit is not None and self._runtime.monotonic() >= self._stopped_until.get(underway.stream, 0.0):
            now.units.append((underway, unit))
        elif await self._saga.abandon(underway):
            now.summary.abandoned += 1
            now.progressed = True

    async def _finish_retention(self, stream: int, job: Versioned[Job]) -> None:
        if await self._saga.is_closed(stream):  # there is nothing left to raise
            await self._saga.give_up(Underway(stream, job))
        else:
            await self._retention.finish(stream, job)

    # --- write

    async def _write(self, now: _Round) -> None:
        if not now.units:
            return
        by_job = {(unit.stream, unit.job): (underway, unit) for underway, unit in now.units}
        now.summary.units += len(by_job)
        results = await self._writer.write(
            [unit for _, unit in by_job.values()],
            lambda done, total: self._observer.progress(Phase.WRITE, done, total),
        )

        answered = [(result.stream, (*by_job[result.stream, result.job], result)) for result in results]
        await self._each(now, None, answered, self._take_result)

    async def _take_result(
        self, now: _Round, _: int, answer: tuple[Underway, Unit, WrittenFile | UnitFailed]
    ) -> None:
        underway, unit, result = answer
        if isinstance(result, WrittenFile):
            wrong = mismatch(unit, result)
            result = result if wrong is None else UnitFailed(unit.stream, unit.job, wrong, retriable=False)
        if isinstance(result, UnitFailed):
            await self._failed(now, underway, result)
            return
        written = await self._saga.written(underway, result)
        if written is not None:
            now.written.append(written)
            now.summary.files += 1
            now.summary.records += result.record_count
            now.summary.output_bytes += result.file_size

    async def _failed(self, now: _Round, underway: Underway, failed: UnitFailed) -> None:
        """Nothing is swapped; the job is given up, so that retention can go on. A stream that would fail
        again is left alone for a while."""
        if failed.retriable:
            self._note(now, underway.stream, failed.reason)
            return
        self._stop_stream(now, underway.stream, failed.reason)
        if await self._saga.abandon(underway):
            now.summary.abandoned += 1

    def _stop_stream(self, now: _Round, stream: int, reason: str) -> None:
        self._stopped_until[stream] = self._runtime.monotonic() + self._settings.failed_pause_seconds
        self._note(now, stream, reason)

    @staticmethod
    def _note(now: _Round, stream: int, reason: str) -> None:
        name, partition = now.name_of(stream)
        now.summary.troubles.append(Trouble(name, partition, reason))
        _log.error("stream not compacted", topic=name, partition=partition, stream=stream, reason=reason)

    # --- commit

    async def _commit(self, now: _Round) -> None:
        by_topic: dict[TopicTable, list[Underway]] = {}
        for job in now.written:
            by_topic.setdefault(self._table_of(now, job), []).append(job)
        limit = asyncio.Semaphore(self._settings.topics_at_once)

        async def commit(table: TopicTable, jobs: list[Underway]) -> None:
            async with limit:
                try:
                    await self._commit_topic(now, table, jobs)
                except (MetadataError, LogError) as error:
                    _interrupted(now.summary, table.topic, -1, error)

        self._observer.progress(Phase.COMMIT, 0, len(by_topic))
        await asyncio.gather(*[commit(table, jobs) for table, jobs in by_topic.items()])
        self._observer.progress(Phase.COMMIT, len(by_topic), len(by_topic))

    async def _commit_topic(self, now: _Round, table: TopicTable, jobs: list[Underway]) -> None:
        open_jobs: list[Underway] = []
        for job in jobs:
            if await self._saga.is_closed(job.stream):
                await self._take_out(now, table, job)
            else:
                open_jobs.append(job)
        passed = await self._commits.commit(table, open_jobs, now.summary)
        now.committed += passed
        now.progressed = now.progressed or bool(passed)

    def _table_of(self, now: _Round, job: Underway) -> TopicTable:
        place = now.places.get(job.stream)
        by_day = place is not None and place[0].settings.partition_by_day
        return TopicTable(job.compaction.topic, job.compaction.topic_id, by_day)

    # --- swap

    async def _swap(self, now: _Round, _: int, job: Underway) -> None:
        try:
            finished = await self._saga.finish(job)
        except SwapImpossible as error:
            if not await self._saga.is_closed(job.stream):
                raise  # a rule was broken, by whomever: say so, and touch nothing
            _log.info("the stream of a compaction was deleted", stream=job.stream, reason=str(error))
            await self._take_out(now, self._table_of(now, job), job)
            return
        if finished:
            now.summary.finished += 1
            now.progressed = True

    async def _take_out(self, now: _Round, table: TopicTable, job: Underway) -> None:
        if await self._commits.take_out(table, job, now.summary):
            now.summary.finished += 1
            now.progressed = True

    # --- retain

    async def _retain(self, summary: CycleSummary) -> None:
        topics = await self._topics.live()

        def failed(topic: Topic, partition: int, error: Exception) -> None:
            _interrupted(summary, topic.name, partition, error)

        raised = await self._kept.keep(
            topics, failed, lambda done, total: self._observer.progress(Phase.RETAIN, done, total)
        )
        summary.raised += len(raised)
        follow = {topic.topic_id for topic in raised.values()} | self._commits.fresh
        self._commits.fresh = set()
        await self.upkeep.follow([topic for topic in topics if topic.topic_id in follow], summary)

    # --- many at once

    async def _each(
        self,
        now: _Round,
        phase: Phase | None,
        items: list[tuple[int, T]],  # by stream
        act: Callable[[_Round, int, T], Awaitable[None]],
    ) -> None:
        """A few at a time; what keeps one from its step is noted, and the others go on."""
        limit = asyncio.Semaphore(self._settings.streams_at_once)
        done = 0

        async def one(stream: int, item: T) -> None:
            nonlocal done
            async with limit:
                try:
                    await act(now, stream, item)
                except (MetadataError, LogError) as error:
                    _interrupted(now.summary, *now.name_of(stream), error)
            done += 1
            if phase is not None:
                self._observer.progress(phase, done, len(items))

        await asyncio.gather(*[one(stream, item) for stream, item in items])


def _interrupted(summary: CycleSummary, topic: str, partition: int, error: Exception) -> None:
    summary.troubles.append(Trouble(topic, partition, str(error)))
    _log.warning("compaction interrupted", topic=topic, partition=partition, error=str(error))
