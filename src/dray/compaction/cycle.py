"""The compactor: plan, write, commit, swap, retain, collect; then again.

All units of a round go to the writer in one call, all jobs of a topic into one commit of its table. What a
round remembers of earlier ones (`stream_memory.py`) only says where to look. Everything that counts is in the
stores, so a compactor may die at any point, and any number of them may run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from dray.compaction.asked_topics import LOOK_SECONDS, AskedTopics
from dray.compaction.careful_writer import CarefulWriter
from dray.compaction.job_board import JobBoard
from dray.compaction.model import Progress, Unit, UnitFailed, UnitWriter, WriterGone, WrittenKeys
from dray.compaction.raised_starts import RaisedStarts
from dray.compaction.round import FORESEEN, Round, interrupted
from dray.compaction.saga import RunningJob, Saga, mismatch, removed_by_key
from dray.compaction.settings import CompactionSettings
from dray.compaction.stream_memory import Hints, StreamMemories
from dray.compaction.stream_planner import StreamPlanner
from dray.compaction.summary import CompactionObserver, CycleSummary, Phase
from dray.compaction.table_commits import TableCommits, table_of_job
from dray.compaction.upkeep import Upkeep
from dray.log.deletions import MayDelete, nothing_may_go
from dray.log.jobs import SwapImpossible
from dray.log.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore
from dray.log.written_file import WrittenFile
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectStore
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.tables.contract import Tables, TopicTable
from dray.topics.compaction_requests import CompactionRequests
from dray.topics.live import TopicSource
from dray.topics.model import Topic
from dray.topics.retention import TopicRetention

_log = structlog.get_logger(__name__)

# Rounds of a cycle over `everything`: each may do one job per stream.
_MOST_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class CompactorStores:
    streams: StreamStore
    objects: ObjectStore
    may_delete: MayDelete = nothing_may_go


class Compactor:
    """`tables` is None where Iceberg is off for the cluster."""

    def __init__(
        self,
        stores: CompactorStores,
        runtime: Runtime,
        writer: UnitWriter,
        tables: Tables | None,
        topics: TopicSource,
        settings: CompactionSettings,
        log_settings: LogSettings,
        observer: CompactionObserver | None = None,
        expiry: ExpiryClock | None = None,
        requests: CompactionRequests | None = None,
    ) -> None:
        """`log_settings`: those of the brokers, for retention. `requests`: where topics are asked for."""
        self._settings = settings
        self._observer = observer or CompactionObserver()
        self._store = stores.streams
        self._runtime = runtime
        self._writer = CarefulWriter(writer, runtime)
        self._topics = topics
        self._board = JobBoard(self._store, runtime)
        self._hints = Hints(self._store, runtime)
        self._known = StreamMemories(self._settings)
        self._starts = RaisedStarts()
        self._saga = Saga(self._store, runtime, runtime.uuid().hex, expiry)
        self._asked = (
            None if requests is None else AskedTopics(requests, self._store, runtime, self._saga.owner)
        )
        self._commits = TableCommits(tables, self._saga, runtime, self._observer)
        retention = Retention(
            self._store,
            runtime,
            log_settings,
            on_deleted=self._observer.records_deleted,
            expiry=expiry,
        )
        self._planner = StreamPlanner(
            self._store,
            runtime,
            self._board,
            self._saga,
            retention,
            self._settings,
            self._known,
            self._starts,
            has_tables=tables is not None,
            expiry=expiry or UndoubtedClock(runtime),
            asked=self._asked,
        )
        self._kept = TopicRetention(retention, runtime.background, self._settings.streams_at_once)
        self.upkeep = Upkeep(
            stores.streams,
            stores.objects,
            runtime,
            tables,
            topics,
            self._settings,
            may_delete=stores.may_delete,
            expiry=expiry,
            starts=self._starts,
        )
        self._next_collection = runtime.monotonic()

    @property
    def owner(self) -> str:
        """The name by which jobs name this compactor."""
        return self._saga.owner

    async def run(self, stop: asyncio.Event) -> None:
        """Cycle after cycle until `stop` is set. Only `WriterGone` ends it."""
        self.follow()
        try:
            while not stop.is_set():
                await self._run_once(stop)
        finally:
            await self._hints.stop()

    def follow(self) -> None:
        """Follow the watches from now on, so that cycles need not ask about streams without a hint."""
        self._hints.start()

    async def _run_once(self, stop: asyncio.Event) -> None:
        more = False
        try:
            more = (await self.run_cycle(everything=False)).more
        except WriterGone:
            raise
        except Exception as error:
            if not isinstance(error, FORESEEN):
                self._runtime.background.report("compaction", error)
            self._observer.interrupted()
            _log.warning("compaction cycle interrupted", error=str(error) or type(error).__name__)
        await self._rest(stop, 0.0 if more else self._settings.interval_seconds)

    async def _rest(self, stop: asyncio.Event, seconds: float) -> None:
        """Until the next cycle: sooner if a topic is asked for."""
        until = self._runtime.monotonic() + seconds
        while True:
            left = max(0.0, until - self._runtime.monotonic())
            pause = left if self._asked is None else min(left, LOOK_SECONDS)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            if stop.is_set() or left <= pause or (self._asked is not None and await self._asked.has_new()):
                return

    async def run_cycle(self, *, everything: bool) -> CycleSummary:
        """`everything`: seal and compact all there is, of any age, carry on the jobs of any compactor, and
        collect."""
        summary = CycleSummary()
        started = self._runtime.monotonic()
        for _ in range(_MOST_ROUNDS):
            summary.more = False
            progressed = await self._round(summary, everything)
            if not (everything and progressed) and not (progressed and self._is_asked()):
                break
        if self._asked is not None:
            await self._asked.report(summary)
        collects = everything or self._runtime.monotonic() >= self._next_collection
        with self._timed(Phase.RETAIN):
            topics = await self._retain(summary, everything)
            if not collects:
                await self.upkeep.remove_deleted(topics, summary)
        if collects:
            self._observer.progress(Phase.COLLECT, 0, 1)
            with self._timed(Phase.COLLECT):
                await self.upkeep.run(summary)
            summary.collected = True
            self._next_collection = self._runtime.monotonic() + self._settings.collect_seconds
            self._observer.progress(Phase.COLLECT, 1, 1)
        summary.seconds = self._runtime.monotonic() - started
        self._observer.finished(summary)
        return summary

    def _is_asked(self) -> bool:
        return self._asked is not None and self._asked.is_open

    async def _round(self, summary: CycleSummary, everything: bool) -> bool:
        live = await self._topics.live()
        now = Round(live.known, summary, everything, self._settings.streams_at_once, self._runtime.background)
        if self._asked is not None:
            await self._asked.take(live.known)
        self._known.keep_only(now.places)
        self._starts.keep_only(now.places)
        self._known.hear(*self._hints.take(), self._store.domains)  # before the barriers of the board
        with self._timed(Phase.PLAN):
            await self._board.read()  # before any index is looked at: stale plans must not start
            await now.each(list(self._board.jobs.items()), self._planner.sort, self._progress_of(Phase.PLAN))
        summary.backlog = summary.backlog or self._known.backlog(now.places)
        summary.clean_shares = summary.clean_shares or self._known.clean_shares(now.places)
        with self._timed(Phase.WRITE):
            await self._write(now)
        with self._timed(Phase.COMMIT):
            await self._commit(now)
        committed = [(job.stream, job) for job in now.committed]
        with self._timed(Phase.SWAP):
            await now.each(committed, self._swap, self._progress_of(Phase.SWAP))
        if self._commits.raced:
            self._commits.raced, now.progressed = False, True
        if self._commits.refused:
            await self._clear_the_way(now)
        return now.progressed

    async def _clear_the_way(self, now: Round) -> None:
        """A topic's name may have been that of a deleted one, whose table is still there."""
        self._commits.refused = False
        before = now.summary.tables_dropped
        await self.upkeep.drop_dead_tables(now.summary)
        if now.summary.tables_dropped > before:
            now.progressed = now.summary.more = True

    # --- write

    async def _write(self, now: Round) -> None:
        if not (now.units or now.key_units):
            return
        by_job = {(unit.stream, unit.job): (underway, unit) for underway, unit in now.units}
        now.summary.units += len(by_job)
        key_units = {(unit.stream, unit.job): unit for unit in now.key_units}
        units = [*(unit for _, unit in by_job.values()), *key_units.values()]
        try:
            results = await self._writer.write(units, self._progress_of(Phase.WRITE))
        except WriterGone:
            raise
        except Exception as error:
            if now.everything:
                raise
            now.unforeseen(error)  # no unit in particular failed: their jobs stay, and all else goes on
            for unit in units:
                now.note(unit.stream, str(error) or type(error).__name__)
            return
        answered = [
            (result.stream, (*by_job[result.stream, result.job], result))
            for result in results
            if (result.stream, result.job) in by_job and not isinstance(result, WrittenKeys)
        ]
        keys_of = [
            (result.stream, (key_units[result.stream, result.job], result))
            for result in results
            if (result.stream, result.job) in key_units and not isinstance(result, WrittenFile)
        ]
        await now.each(answered, self._take_result)
        await now.each(keys_of, self._take_keys)

    async def _take_result(
        self, now: Round, _: int, answer: tuple[RunningJob, Unit, WrittenFile | UnitFailed]
    ) -> None:
        underway, unit, result = answer
        if isinstance(result, WrittenFile):
            wrong = mismatch(unit, result, by_day=underway.compaction.by_day)
            result = result if wrong is None else UnitFailed(unit.stream, unit.job, wrong, retriable=False)
        if isinstance(result, UnitFailed):
            await self._failed(now, underway, unit, result)
            return
        written = await self._saga.written(underway, result)
        if written is not None:
            now.written.append(written)
            now.summary.files += 1
            now.summary.records += result.record_count
            now.summary.output_bytes += result.file_size
            now.summary.removed_by_key += removed_by_key(unit, result)

    async def _take_keys(
        self, now: Round, stream: int, answer: tuple[Unit, WrittenKeys | UnitFailed]
    ) -> None:
        """The keys of a dirty part are there: its cleaning round begins."""
        unit, result = answer
        if isinstance(result, WrittenKeys):
            begun = await self._saga.begin_round(unit, result)
            now.summary.key_rounds += begun
            now.progressed = now.progressed or begun
        elif result.retriable:
            now.note(stream, result.reason)
        else:
            self._planner.stop(now, stream, result.reason)

    async def _failed(self, now: Round, underway: RunningJob, unit: Unit, failed: UnitFailed) -> None:
        """Nothing is swapped; the job is given up, so that retention can go on. A stream that would fail
        again is left alone for a while."""
        if failed.retriable:
            now.note(underway.stream, failed.reason)
            return
        if failed.empty:
            self._planner.found_empty(now, unit)
        else:
            self._planner.stop(now, underway.stream, failed.reason)
        cleaning = underway.compaction.cleaning
        if cleaning is not None and cleaning.keys is not None:
            await self._saga.end_round(underway.stream, cleaning.keys)
        if await self._saga.abandon(underway):
            now.summary.abandoned += 1

    # --- commit

    async def _commit(self, now: Round) -> None:
        by_topic: dict[TopicTable, list[RunningJob]] = {}
        for job in now.written:
            by_topic.setdefault(table_of_job(job), []).append(job)
        limit = asyncio.Semaphore(self._settings.topics_at_once)

        async def commit(table: TopicTable, jobs: list[RunningJob]) -> None:
            async with limit:
                try:
                    await self._commit_topic(now, table, jobs)
                except Exception as error:
                    now.unforeseen(error)
                    interrupted(now.summary, table.topic, -1, error)

        self._observer.progress(Phase.COMMIT, 0, len(by_topic))
        await asyncio.gather(*[commit(table, jobs) for table, jobs in by_topic.items()])
        self._observer.progress(Phase.COMMIT, len(by_topic), len(by_topic))

    async def _commit_topic(self, now: Round, table: TopicTable, jobs: list[RunningJob]) -> None:
        open_jobs: list[RunningJob] = []
        for job in jobs:
            try:
                job.written  # noqa: B018 - one that says nothing of its file must not stop the others
                closed = await self._saga.is_closed(job.stream)
            except UnreadableValue as error:
                now.note(job.stream, str(error))
                continue
            if closed:
                await self._take_out(now, table, job)
            else:
                open_jobs.append(job)
        passed = await self._commits.commit(table, open_jobs, now.summary)
        now.committed += passed
        now.progressed = now.progressed or bool(passed)

    # --- swap

    async def _swap(self, now: Round, _: int, job: RunningJob) -> None:
        try:
            finished = await self._saga.finish(job)
        except SwapImpossible as error:
            if not await self._saga.is_closed(job.stream):
                raise  # a rule was broken: report it, and change nothing
            _log.info("the stream of a compaction was deleted", stream=job.stream, reason=str(error))
            await self._take_out(now, table_of_job(job), job)
            return
        if finished:
            now.summary.finished += 1
            now.progressed = True

    async def _take_out(self, now: Round, table: TopicTable, job: RunningJob) -> None:
        if await self._commits.take_out(table, job, now.summary):
            now.summary.finished += 1
            now.progressed = True

    # --- retain

    async def _retain(self, summary: CycleSummary, everything: bool) -> list[Topic]:
        topics = (await self._topics.live()).known
        now_ms = self._runtime.wall_ms()

        def failed(topic: Topic, partition: int, error: Exception) -> None:
            interrupted(summary, topic.name, partition, error)

        def may_expire(topic: Topic, partition: int) -> bool:
            return everything or self._known.may_expire(topic.streams[partition], topic.settings, now_ms)

        raised = await self._kept.keep(topics, failed, self._progress_of(Phase.RETAIN), may_expire)
        summary.raised += len(raised)
        follow = {topic.topic_id for topic in raised.values()} | self._commits.fresh
        self._commits.fresh = set()
        await self.upkeep.follow([topic for topic in topics if topic.topic_id in follow], summary)
        return topics

    @contextmanager
    def _timed(self, phase: Phase) -> Iterator[None]:
        started = self._runtime.monotonic()
        try:
            yield
        finally:
            self._observer.took(phase, self._runtime.monotonic() - started)

    def _progress_of(self, phase: Phase) -> Progress:
        return lambda done, total: self._observer.progress(phase, done, total)
