"""The first part of a round: what is next for every stream.

An unfinished job is carried on from where it stands; where there is none, the stream is looked at, swept and
sealed as it needs, and perhaps a new job is begun.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from dray.base.runtime import ExpiryClock, Runtime
from dray.broker.topics.model import Topic
from dray.log.jobs.machine import Awaits, Job
from dray.log.life.retention import Retention, sweep
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.tables.compaction.model import Unit
from dray.tables.compaction.planning.ahead import StreamAhead, units_ahead
from dray.tables.compaction.planning.asked_topics import AskedTopics
from dray.tables.compaction.planning.clean_plan import CleaningRules
from dray.tables.compaction.planning.job_board import JobBoard
from dray.tables.compaction.planning.plan import EmptyStretch, StreamPlan, parted, plan_stream, size_of
from dray.tables.compaction.planning.shares import WHOLE, ShareNow
from dray.tables.compaction.planning.stream_memory import RaisedStarts, StreamMemories, StreamMemory
from dray.tables.compaction.round import Round
from dray.tables.compaction.saga import RunningJob, Saga, keys_unit
from dray.tables.compaction.settings import CompactionSettings


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
        share: ShareNow = lambda: WHOLE,
    ) -> None:
        """`asked`: topics that are compacted whatever the age of their records. `share`: the topics that are
        left to no other compactor."""
        self._asked = asked
        self._share = share
        # By stream that is left to another compactor: the version of its job, and since when it has that.
        self._left: dict[int, tuple[int, float]] = {}
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
        self._failed_with: dict[int, str] = {}  # why, by stream, until one is written
        self._trimming: set[int] = set()  # streams whose last unit was a file to be trimmed
        self._untrimmed_until: dict[int, float] = {}  # streams whose trimmed file could not be written
        self._empty: dict[int, EmptyStretch] = {}  # by stream: where a unit had no record

    def stop(self, now: Round, stream: int, reason: str, *, may_pass: bool = False) -> None:
        """Leave a stream alone for a while, since it would only fail again. If only a file could not be
        trimmed, leave only that file alone: new records must not wait for it. `may_pass`: only for a short
        while, unless the last try failed for the same reason."""
        doubted = may_pass and self._failed_with.get(stream) != reason
        self._failed_with[stream] = reason
        seconds = self._settings.doubt_pause_seconds if doubted else self._settings.failed_pause_seconds
        until = self._untrimmed_until if stream in self._trimming else self._stopped_until
        until[stream] = self._runtime.monotonic() + seconds
        at = datetime.fromtimestamp(self._runtime.wall_ms() // 1000 + seconds, UTC)
        topic, _ = now.name_of(stream)
        now.note(
            stream, f"{reason} (next try at {at:%Y-%m-%d %H:%M:%S} UTC, or by drayd admin compact {topic})"
        )

    def wrote(self, stream: int) -> None:
        self._failed_with.pop(stream, None)

    def found_empty(self, now: Round, unit: Unit) -> None:
        """The unit has no record that is committed: the next plan joins it with what lies beside it."""
        self._empty[unit.stream] = EmptyStretch(unit.start, unit.end)
        now.progressed = now.summary.more = True

    def _is_stopped(self, stream: int) -> bool:
        if self._asked is not None and self._asked.is_fresh(stream):
            self._stopped_until.pop(stream, None)
            self._untrimmed_until.pop(stream, None)
        return self._runtime.monotonic() < self._stopped_until.get(stream, 0.0)

    def _trims(self, topic: Topic, stream: int) -> bool:
        """Is a file trimmed that reaches below the start? If no table shows it, its first records are a
        matter of bytes only, and go when the rest of it does."""
        return self.has_table(topic) and self._runtime.monotonic() >= self._untrimmed_until.get(stream, 0.0)

    def has_table(self, topic: Topic) -> bool:
        return self._has_tables and topic.settings.iceberg_enabled

    def _has_left_table(self, topic: Topic, job: Job) -> bool:
        """Then new records get their files, and nothing else is written: a file that replaces others would
        mix what the table has with what it has not, and could only be brought into it as new rows beside
        old ones, at which readers that follow it stop."""
        return self.has_table(topic) and job.left_table is not None

    async def sort(self, now: Round, stream: int, job: Versioned[Job]) -> None:
        """Sort a stream into the next step for it: its unfinished job, or a new plan."""
        match job.value.awaits:
            case Awaits.PLAN:
                await self._begin(now, stream, job)
            case Awaits.START | Awaits.PACK:
                now.progressed |= await self._finish_in_log(stream, job)
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
            return
        self._left.pop(stream, None)
        if await self._saga.is_closed(stream):
            # Otherwise the board would read this job in every round, for ever. Its topic is deleted, so no
            # job will follow it.
            await self._saga.forget(stream, job)

    def _may_carry_on(self, stream: int, job: Versioned[Job]) -> bool:
        mine = job.value.compacted.owner == self._saga.owner
        return mine or self._board.stood_still(stream) >= self._settings.takeover_seconds

    async def _plan(self, now: Round, place: tuple[Topic, int], stream: int, job: Versioned[Job]) -> None:
        topic, partition = place
        if self._is_stopped(stream) or self._is_left(now, topic, stream, job):
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
        table = self.has_table(topic) and not self._has_left_table(topic, job.value)
        created = await self._saga.create(
            topic, partition, job, plan.inputs, start=plan.start, table=table, cleaning=plan.cleaning
        )
        (self._trimming.add if plan.trims else self._trimming.discard)(stream)
        if created is not None:
            now.units.append(created)
            now.summary.more = now.summary.more or plan.more
            now.summary.input_bytes += size
            if plan.following:
                units = units_ahead(created[1], plan.following)
                now.ahead[stream] = StreamAhead(topic, partition, plan.start, units)

    def _is_left(self, now: Round, topic: Topic, stream: int, job: Versioned[Job]) -> bool:
        """Is the stream another compactor's? One that does nothing for it, for as long as jobs are waited
        for, is not waited for either: it may be there and stand still."""
        if self._wants_everything(now, stream) or self._share().has(topic.topic_id):
            self._left.pop(stream, None)
            return False
        at = self._runtime.monotonic()
        version, since = self._left.get(stream, (job.version, at))
        if version != job.version:
            since = at
        self._left[stream] = job.version, since
        waits = self._settings.takeover_seconds + self._settings.wal_max_age_ms / 1000
        if at - since >= waits:
            return False
        self._known.forget(stream)
        return True

    async def _examine(self, now: Round, topic: Topic, stream: int, job: Versioned[Job]) -> StreamPlan | None:
        """One look at a stream, unless it is known to rest; what late writes brought back is swept, and an
        old head is sealed."""
        recalled = self._known.recall(stream, topic.settings, self._runtime.monotonic())
        known = None if self._wants_everything(now, stream) else recalled
        if known is not None and await self._rests(stream, known, job):
            return None
        left = self._has_left_table(topic, job.value)
        if left and stream in self._empty:
            return None  # it could only be joined with a file
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
        trim = self._trims(topic, stream) and not left
        plan = plan_stream(
            view,
            self._runtime.wall_ms(),
            self._settings,
            everything=self._wants_everything(now, stream),
            by_day=topic.settings.partition_by_day,
            most_inputs=self._most_inputs(),
            settled_files=0 if known is None else known.settled_files,
            trim=trim,
            rules=None if left else self._rules(topic, view),
            empty=self._empty.get(stream),
            merges=not left,
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

    async def _finish_in_log(self, stream: int, job: Versioned[Job]) -> bool:
        """A job that needs the log alone: retention, or a pack. True at its end: a cycle that does all there
        is looks at the stream once more."""
        if await self._saga.is_closed(stream):  # there is nothing left to raise or to replace
            return await self._saga.give_up(RunningJob(stream, job))
        return (await self._retention.finish(stream, job)).value.awaits is Awaits.PLAN
