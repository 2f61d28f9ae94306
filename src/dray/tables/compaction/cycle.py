"""The compactor: plan, write, commit, swap, retain, collect; then again.

All units of a round go to the writer in one call, all jobs of a topic into one commit of its table. A round's
memory of earlier ones (`stream_memory.py`) only says where to look. Everything that counts is in the stores,
so a compactor may die at any point, and any number of them may run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import structlog

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock, side_by_side
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import Topic
from dray.broker.topics.retention import TopicRetention
from dray.log.jobs.machine import Awaits, SwapImpossible
from dray.log.jobs.values import WrittenFile
from dray.log.life.deletions import MayDelete, nothing_may_go
from dray.log.life.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectStore
from dray.tables.compaction.model import (
    Progress,
    Unit,
    UnitAnswer,
    UnitFailed,
    UnitWriter,
    WriterGone,
    WrittenKeys,
)
from dray.tables.compaction.planning.ahead import AheadUnit, StreamAhead, deal
from dray.tables.compaction.planning.asked_topics import LOOK_SECONDS, AskedTopics
from dray.tables.compaction.planning.job_board import JobBoard
from dray.tables.compaction.planning.shares import WHOLE, ShareNow
from dray.tables.compaction.planning.stream_memory import Hints, RaisedStarts, StreamMemories
from dray.tables.compaction.planning.stream_planner import StreamPlanner
from dray.tables.compaction.round import FORESEEN, Round, interrupted
from dray.tables.compaction.saga import RunningJob, Saga, mismatch, removed_by_key
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import CompactionObserver, CycleSummary, Phase
from dray.tables.compaction.table_commits import TableCommits, table_of_job
from dray.tables.compaction.table_keeper import TableGuard
from dray.tables.compaction.upkeep.rounds import CollectionRounds, Upkeep
from dray.tables.compaction.writing.careful_writer import CarefulWriter
from dray.tables.compaction.writing.deliveries import Deliveries
from dray.tables.contract import Tables, TopicTable

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
        share: ShareNow = lambda: WHOLE,
    ) -> None:
        """`log_settings`: those of the brokers, for retention. `requests`: where topics are asked for.
        `share`: the topics that are this compactor's now."""
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
        self._commits = TableCommits(tables, self._saga, runtime, self._observer, settings, stores.objects)
        self._set_up_plans(log_settings, expiry, share, has_tables=tables is not None)
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
        self.collection = CollectionRounds(self.upkeep, runtime, settings.collect_seconds, share)
        self._guard = None if tables is None else TableGuard(tables, topics, runtime, share)
        self._answered = 0  # bytes of the units that came back from the writer in this cycle

    def _set_up_plans(
        self, log_settings: LogSettings, expiry: ExpiryClock | None, share: ShareNow, *, has_tables: bool
    ) -> None:
        retention = Retention(
            self._store,
            self._runtime,
            log_settings,
            on_deleted=self._observer.records_deleted,
            expiry=expiry,
        )
        self._planner = StreamPlanner(
            self._store,
            self._runtime,
            self._board,
            self._saga,
            retention,
            self._settings,
            self._known,
            self._starts,
            has_tables=has_tables,
            expiry=expiry or UndoubtedClock(self._runtime),
            asked=self._asked,
            share=share,
        )
        self._kept = TopicRetention(retention, self._runtime.background, self._settings.streams_at_once)

    @property
    def owner(self) -> str:
        """The name by which jobs name this compactor."""
        return self._saga.owner

    async def run(self, stop: asyncio.Event) -> None:
        """Cycle after cycle until `stop` is set. Only `WriterGone` ends it."""
        self.follow()
        if self._guard is not None:
            self._guard.start()
        self.collection.start()
        try:
            while not stop.is_set():
                await self._run_once(stop)
        finally:
            await self.collection.stop()
            if self._guard is not None:
                await self._guard.stop()
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
        await self._rest(stop, 0.0 if more else self._settings.interval)

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
        self._answered = 0
        started = self._runtime.monotonic()
        for number in range(_MOST_ROUNDS):
            summary.more = False
            progressed = await self._round(summary, everything, first=not number)
            if not (everything and progressed) and not (progressed and self._is_asked()):
                break
        if self._asked is not None:
            await self._asked.report(summary)
        with self._timed(Phase.RETAIN):
            topics = await self._retain(summary, everything)
            collects = everything or self.collection.is_due
            if not collects:
                await self.upkeep.remove_deleted(topics, summary)
        if collects:
            await self._collect(summary)
        self.collection.tell(summary)
        if summary.collected:
            self._observer.took(Phase.COLLECT, summary.collection_seconds)
        summary.seconds = self._runtime.monotonic() - started
        self._observer.finished(summary)
        return summary

    async def _collect(self, summary: CycleSummary) -> None:
        """As a part of the cycle, where it does all that there is to do, or stands alone."""
        self._observer.progress(Phase.COLLECT, 0, 1)
        await self.collection.collect(summary, WHOLE)
        self._observer.progress(Phase.COLLECT, 1, 1)

    def _is_asked(self) -> bool:
        return self._asked is not None and self._asked.is_open

    async def _round(self, summary: CycleSummary, everything: bool, *, first: bool = True) -> bool:
        live = await self._topics.live()
        now = Round(live.known, summary, everything, self._settings.streams_at_once, self._runtime.background)
        if self._asked is not None:
            await self._asked.take(live.known)
        self._known.keep_only(now.places)
        self._starts.keep_only(now.places)
        self._known.hear(*self._hints.take(), self._store.domains)  # before the barriers of the board
        with self._timed(Phase.PLAN):
            await self._board.read()  # before any index is looked at: stale plans must not start
            if first:
                await self._catch_up(now)
            await now.each(list(self._board.jobs.items()), self._planner.sort, self._progress_of(Phase.PLAN))
            now.planned_bytes += deal(now.ahead, self._settings.cycle_bytes - now.planned_bytes)
        summary.backlog = summary.backlog or self._known.backlog(now.places)
        summary.clean_shares = summary.clean_shares or self._known.clean_shares(now.places)
        with self._timed(Phase.WRITE):
            await self._write(now)
        await self._carry_on(now)
        if self._commits.raced:
            self._commits.raced, now.progressed = False, True
        if self._commits.refused:
            await self._clear_the_way(now)
        return now.progressed

    async def _catch_up(self, now: Round) -> None:
        """Bring the tables up to the log that it went on without, before anything else is done for it."""
        left = [topic for topic in now.topics if any(map(self._board.has_left_table, topic.streams))]
        self._commits.left = {topic.topic_id for topic in left}
        if left:
            await self.upkeep.catch_up(left, now.summary)
            await self._board.read()
        now.summary.left_tables = sum(map(self._board.has_left_table, now.places))

    async def _clear_the_way(self, now: Round) -> None:
        """A topic's name may have been that of a deleted one, whose table is still there."""
        self._commits.refused = False
        before = now.summary.tables_dropped
        changed, self._commits.changed = self._commits.changed, set()
        for topic in now.topics:
            if topic.topic_id in changed and await self.upkeep.put_back(topic, now.summary):
                now.progressed = now.summary.more = True
        await self.upkeep.drop_dead_tables(now.summary)
        if now.summary.tables_dropped > before:
            now.progressed = now.summary.more = True

    # --- write

    async def _write(self, now: Round) -> None:
        if not (now.units or now.key_units):
            return
        ahead = [each.unit for stream in now.ahead.values() for each in stream.units]
        units = [*(unit for _, unit in now.units), *now.key_units, *ahead]
        now.summary.units += len(now.units) + len(ahead)

        async def carry(answers: list[UnitAnswer]) -> None:
            await self._take(now, answers)
            await self._carry_on(now)

        early = Deliveries(units, carry, self._runtime, self._counted(now))
        self._counted(now)(0)
        try:
            results = await self._writer.write(units, self._progress_of(Phase.WRITE), early.deliver)
            await self._take(now, [*await early.end(), *early.closed(results)])
        except WriterGone:
            raise
        except Exception as error:
            if now.everything:
                raise
            now.unforeseen(error)  # no unit in particular failed: their jobs stay, and all else goes on
            await self._take(now, await early.end())
            for unit in early.unanswered():
                now.note(unit.stream, str(error) or type(error).__name__)
        finally:
            await early.stop()

    def _counted(self, now: Round) -> Callable[[int], None]:
        """Tell of bytes that came back from the writer."""
        summary = now.summary
        found = sum(backlog.size for backlog in summary.backlog.values())

        def count(size: int) -> None:
            self._answered += size
            total = max(found, summary.input_bytes, self._answered)
            self._observer.compacted(self._answered, total)

        return count

    async def _take(self, now: Round, answers: Sequence[UnitAnswer]) -> None:
        """The results that have come back from the writer, by their kind."""
        of_job = {(unit.stream, unit.job): (underway, unit) for underway, unit in now.units}
        of_keys = {(unit.stream, unit.job): unit for unit in now.key_units}
        files: list[tuple[int, tuple[RunningJob, Unit, WrittenFile | UnitFailed]]] = []
        found: list[tuple[int, tuple[Unit, WrittenKeys | UnitFailed]]] = []
        for answer in answers:
            key = answer.stream, answer.job
            if key in of_job and not isinstance(answer, WrittenKeys):
                files.append((answer.stream, (*of_job[key], answer)))
            elif key in of_keys and not isinstance(answer, WrittenFile):
                found.append((answer.stream, (of_keys[key], answer)))
            elif answer.stream in now.ahead:
                now.ahead[answer.stream].take(answer)
        await now.each(files, self._take_result)
        await now.each(found, self._take_keys)

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
        self._planner.wrote(underway.stream)
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
            self._planner.stop(now, stream, result.reason, may_pass=result.may_pass)

    async def _failed(self, now: Round, underway: RunningJob, unit: Unit, failed: UnitFailed) -> None:
        """Nothing is swapped; the job is given up, so that retention can go on. A stream that would fail
        again is left alone for a while."""
        now.ahead.pop(underway.stream, None)
        if failed.retriable:
            now.note(underway.stream, failed.reason)
            return
        if failed.empty:
            self._planner.found_empty(now, unit)
        else:
            self._planner.stop(now, underway.stream, failed.reason, may_pass=failed.may_pass)
        cleaning = underway.compaction.cleaning
        if cleaning is not None and cleaning.keys is not None:
            await self._saga.end_round(underway.stream, cleaning.keys)
        if await self._saga.abandon(underway):
            now.summary.abandoned += 1

    # --- commit

    async def _carry_on(self, now: Round) -> None:
        """Commit what is written and swap it, and then what was written ahead of it, job by job."""
        while True:
            with self._timed(Phase.COMMIT):
                await self._commit(now)
            committed = [(job.stream, job) for job in now.committed]
            now.written, now.committed = [], []
            with self._timed(Phase.SWAP):
                await now.each(committed, self._swap, self._progress_of(Phase.SWAP))
            ready = [
                (stream, (ahead, unit))
                for stream, ahead in now.ahead.items()
                if (unit := ahead.next_after(now.ended.get(stream))) is not None
            ]
            await now.each(ready, self._begin_ahead)
            if not now.written:
                return

    async def _begin_ahead(self, now: Round, stream: int, place: tuple[StreamAhead, AheadUnit]) -> None:
        """The job of a file that is written already. If another job has its number, the file is left to the
        collector."""
        ahead, unit = place
        file = unit.written
        del ahead.units[0]
        job = await self._saga.last_job(stream)
        if file is None or job.value.awaits is not Awaits.PLAN or job.value.number + 1 != unit.unit.job:
            del ahead.units[:]
            return
        table = self._planner.has_table(ahead.topic) and job.value.left_table is None
        created = await self._saga.create(
            ahead.topic, ahead.partition, job, unit.inputs, start=ahead.start, table=table
        )
        if created is not None:
            now.summary.input_bytes += unit.size
            await self._take_result(now, stream, (*created, file))

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
        async def is_closed(job: RunningJob) -> bool | None:
            try:
                job.written  # noqa: B018 - one that says nothing of its file must not stop the others
                return await self._saga.is_closed(job.stream)
            except UnreadableValue as error:
                now.note(job.stream, str(error))
                return None

        closed = await side_by_side(is_closed(job) for job in jobs)
        for job, gone in zip(jobs, closed, strict=True):
            if gone:
                await self._take_out(now, table, job)
        open_jobs = [job for job, gone in zip(jobs, closed, strict=True) if gone is False]
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
            now.ended[job.stream] = job.job.value.number
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
