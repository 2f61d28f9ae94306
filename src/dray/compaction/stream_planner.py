"""The first part of a round: what is next for every stream.

An unfinished job is carried on from where it stands; where there is none, the stream is looked at, swept and
sealed as it needs, and perhaps a new job is begun.
"""

from __future__ import annotations

from dataclasses import replace

from dray.compaction.asked_topics import AskedTopics
from dray.compaction.clean_plan import CleaningRules
from dray.compaction.empty_stretches import EmptyStretch, parted
from dray.compaction.job_board import JobBoard
from dray.compaction.model import Unit
from dray.compaction.plan import StreamPlan, plan_stream, size_of
from dray.compaction.raised_starts import RaisedStarts
from dray.compaction.round import Round
from dray.compaction.saga import RunningJob, Saga, keys_unit
from dray.compaction.settings import CompactionSettings
from dray.compaction.stream_memory import StreamMemories, StreamMemory
from dray.log.jobs import Awaits, Job
from dray.log.retention import Retention, sweep
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.runtime import ExpiryClock, Runtime
from dray.topics.model import Topic


class StreamPlanner:
    def __init__(
        self,
        store: StreamStore,
        runtime: Runtime,
        board: JobBoard,
        saga: Saga,
        retention: Retention,
        settings: CompactionSettings,
        known: StreamMemories,
        starts: RaisedStarts,
        *,
        has_tables: bool,
        expiry: ExpiryClock,
        asked: AskedTopics | None = None,
    ) -> None:
        """`asked`: topics that are compacted whatever the age of their records."""
        self._asked = asked
        self._expiry = expiry
        self._store = store
        self._runtime = runtime
        self._board = board
        self._saga = saga
        self._retention = retention
        self._settings = settings
        self._known = known
        self._starts = starts
        self._has_tables = has_tables
        self._stopped_until: dict[int, float] = {}  # streams whose unit could not be written
        self._trimming: set[int] = set()  # streams whose last unit was a file to be trimmed
        self._untrimmed_until: dict[int, float] = {}  # streams whose trimmed file could not be written
        self._empty: dict[int, EmptyStretch] = {}  # by stream: where a unit had no record

    def stop(self, now: Round, stream: int, reason: str) -> None:
        """Leave a stream alone for a while, since it would only fail again. If only a file could not be
        trimmed, leave only that file alone: new records must not wait for it."""
        until = self._untrimmed_until if stream in self._trimming else self._stopped_until
        until[stream] = self._runtime.monotonic() + self._settings.failed_pause_seconds
        now.note(stream, reason)

    def found_empty(self, now: Round, unit: Unit) -> None:
        """The unit has no record that is committed: the next plan joins it with what lies beside it."""
        self._empty[unit.stream] = EmptyStretch(unit.start, unit.end)
        now.progressed = now.summary.more = True

    def _is_stopped(self, stream: int) -> bool:
        return self._runtime.monotonic() < self._stopped_until.get(stream, 0.0)

    def _trims(self, topic: Topic, stream: int) -> bool:
        """Is a file trimmed that reaches below the start? Where no table shows it, its first records are a
        matter of bytes only, and go when the rest of it does."""
        has_table = self._has_tables and topic.settings.iceberg_enabled
        return has_table and self._runtime.monotonic() >= self._untrimmed_until.get(stream, 0.0)

    async def sort(self, now: Round, stream: int, job: Versioned[Job]) -> None:
        """What is next for a stream: its unfinished job, or a new plan."""
        match job.value.awaits:
            case Awaits.PLAN:
                await self._begin(now, stream, job)
            case Awaits.START | Awaits.PACK:
                await self._finish_in_log(stream, job)
            case _ if not (now.everything or self._may_carry_on(stream, job)):
                now.summary.left_to_others += 1
            case Awaits.FILE:
                await self._take_over(now, RunningJob(stream, job))
            case Awaits.TABLE:
                now.written.append(RunningJob(stream, job))
            case Awaits.INDEX:
                now.committed.append(RunningJob(stream, job))

    async def _begin(self, now: Round, stream: int, job: Versioned[Job]) -> None:
        place = now.places.get(stream)
        if place is not None:
            await self._plan(now, place, stream, job)
        elif await self._saga.is_closed(stream):
            # Otherwise the board would read this job in every round, for ever. Its topic is deleted, so no
            # job will follow it.
            await self._saga.forget(stream, job)

    def _may_carry_on(self, stream: int, job: Versioned[Job]) -> bool:
        mine = job.value.compacted.owner == self._saga.owner
        return mine or self._board.stood_still(stream) >= self._settings.takeover_seconds

    async def _plan(self, now: Round, place: tuple[Topic, int], stream: int, job: Versioned[Job]) -> None:
        topic, partition = place
        if self._is_stopped(stream):
            return
        plan = await self._examine(now, topic, stream, job)
        if plan is not None and plan.seal:
            plan = await self._examine(now, topic, stream, job)  # what was the head can be compacted now
        if plan is None:
            return
        now.progressed = now.progressed or plan.seal  # and there is another head already
        if plan.refused is not None:
            self.stop(now, stream, plan.refused)
        if not plan.inputs:
            return
        size = sum(size_of(entry.value) for entry in plan.inputs)
        if now.planned_bytes and now.planned_bytes + size > self._settings.cycle_bytes:
            now.progressed = now.summary.more = True  # there is a next round for it
            return
        now.planned_bytes += size
        if plan.collects_keys:
            now.key_units.append(
                keys_unit(topic, partition, job.value, plan.inputs, plan.start, self._settings.round_keys)
            )
            now.summary.more = True
            return
        table = self._has_tables and topic.settings.iceberg_enabled
        created = await self._saga.create(
            topic, partition, job, plan.inputs, start=plan.start, table=table, cleaning=plan.cleaning
        )
        (self._trimming.add if plan.trims else self._trimming.discard)(stream)
        if created is not None:
            now.units.append(created)
            now.summary.more = now.summary.more or plan.more
            now.summary.input_bytes += size

    async def _examine(self, now: Round, topic: Topic, stream: int, job: Versioned[Job]) -> StreamPlan | None:
        """One look at a stream, unless it is known to rest; what late writes brought back is swept, and an
        old head is sealed."""
        recalled = self._known.recall(stream, topic.settings, self._runtime.monotonic())
        known = None if self._wants_everything(now, stream) else recalled
        if known is not None and await self._rests(stream, known, job):
            return None
        if topic.settings.compacts or stream in self._empty:
            known = None  # a merge by key may begin at the very start; an empty stretch joins any file
        view = None if known is None else await self._end_of_index(stream, known)
        if view is None or view.split()[1]:
            known, view = None, await self._store.view(stream)  # what is dead is judged in one snapshot
        if view is None or view.high_watermark.value.closed:
            return None
        now.summary.looked += 1
        if view.cleaned.round is not None and not topic.settings.compacts:
            await self._saga.end_round(stream, view.cleaned.round.keys)  # and its keys are collected
        if self._asked is not None:
            self._asked.saw(stream, view)
        trim = self._trims(topic, stream)
        plan = plan_stream(
            view,
            self._runtime.wall_ms(),
            self._settings,
            everything=self._wants_everything(now, stream),
            by_day=topic.settings.partition_by_day,
            most_inputs=self._most_inputs(),
            settled_files=0 if known is None else known.settled_files,
            trim=trim,
            rules=self._rules(topic, view),
            empty=self._empty.get(stream),
        )
        if stream in self._empty and not parted(view.split()[0], self._empty[stream]).empty:
            del self._empty[stream]  # it has become part of a file
        plan = replace(plan, start=view.start)
        now_seconds = self._runtime.monotonic()
        seen = self._known.remember(stream, view, topic.settings, known, now_seconds, trim=trim)
        self._starts.see(stream, view.start)
        if plan.is_empty and not plan.waits:
            self._known.rests(seen, view, job.version)
        if plan.dead:
            await sweep(self._store, stream, plan.dead)
            now.summary.swept += len(plan.dead)
        if plan.seal:
            sealed = view.high_watermark.value.sealed()
            await self._store.write(stream, self._store.advance(stream, view.high_watermark, sealed))
            now.summary.sealed += 1
        return plan

    def _rules(self, topic: Topic, view: StreamView) -> CleaningRules | None:
        """None: nothing is compacted by key, since the topic is not, or as long as the clock is doubted."""
        now_ms = self._expiry.now_ms() if topic.settings.compacts else None
        if now_ms is None:
            return None
        settings = topic.settings
        return CleaningRules(
            settings, view.cleaned, now_ms, self._settings.bottom_raw_bytes, settings.partition_by_day
        )

    def _wants_everything(self, now: Round, stream: int) -> bool:
        return now.everything or (self._asked is not None and self._asked.wants(stream))

    def _most_inputs(self) -> int:
        """The write that ends a job names each of its inputs, and so does the job's own value: in half a
        kibibyte at most, and as much of it is left for what describes the file."""
        limits = self._store.limits
        return max(2, min(limits.operations - 2, limits.value_bytes // 1024))

    async def _rests(self, stream: int, known: StreamMemory, job: Versioned[Job]) -> bool:
        """Is the stream as it was when there was nothing to do in it, and nothing has come of age?"""
        if known.mark is None or known.job != job.version:
            return False
        if known.due_ms is not None and self._runtime.wall_ms() >= known.due_ms:
            return False
        if known.doubted:
            mark = await self._store.high_watermark(stream)
            if mark is None or mark.version != known.mark:
                return False
            known.doubted = False
        return True

    async def _end_of_index(self, stream: int, known: StreamMemory) -> StreamView | None:
        """The stream without the files that need no plan any more. None: all of it has to be read.

        These are several reads, so the high watermark comes first: what was filed after it is left out, and
        its version will be another the next time."""
        mark = await self._store.high_watermark(stream)
        start = (await self._store.start(stream)).value
        if mark is None or start != known.start:
            return None
        head = mark.value.head
        reached = mark.value.end if head is None else head.start
        entries = await self._store.entries_above(stream, known.settled_end)
        return StreamView(mark, start, [entry for entry in entries if entry.value.end <= reached])

    async def _take_over(self, now: Round, underway: RunningJob) -> None:
        closed = await self._saga.is_closed(underway.stream)
        unit = None if closed else await self._saga.take_over(underway)
        if unit is not None and not self._is_stopped(underway.stream):
            now.units.append((underway, unit))
        elif await self._saga.abandon(underway):
            now.summary.abandoned += 1
            now.progressed = True

    async def _finish_in_log(self, stream: int, job: Versioned[Job]) -> None:
        """A job that needs the log alone: retention, or a pack."""
        if await self._saga.is_closed(stream):  # there is nothing left to raise or to replace
            await self._saga.give_up(RunningJob(stream, job))
        else:
            await self._retention.finish(stream, job)
