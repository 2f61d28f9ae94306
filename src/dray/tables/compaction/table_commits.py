"""The table steps of a cycle: one commit per topic for all of its jobs. `tables/iceberg/tables.py` sends it.

If the catalog is down, the jobs of the topics concerned wait, and everything else goes on. A table that is
refused (it was dropped or changed, or belongs to another topic) is logged in one line, and its jobs wait too.
They do not wait for ever, whatever it is that a table raises: after `table_patience` they go on without it,
and say so (`LeftTable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

import structlog

from dray.base.runtime import Runtime, gather_some, side_by_side
from dray.objects.contract import ObjectError, ObjectStore
from dray.tables.compaction.round import FORESEEN
from dray.tables.compaction.saga import RunningJob, Saga
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import Cause, CompactionObserver, CycleSummary, StalledStream
from dray.tables.contract import (
    CleanRange,
    CommitOutcome,
    TableChange,
    TableChanged,
    TableFile,
    TableMissing,
    TableRefused,
    Tables,
    TablesError,
    TopicTable,
)

_log = structlog.get_logger(__name__)


class TableCommits:
    def __init__(
        self,
        tables: Tables | None,
        saga: Saga,
        runtime: Runtime,
        observer: CompactionObserver,
        settings: CompactionSettings,
        objects: ObjectStore,
    ) -> None:
        self._tables = tables
        self._objects = objects
        self._saga = saga
        self._runtime = runtime
        self._observer = observer
        self._settings = settings
        self._failing_since: dict[UUID, float] = {}  # topics whose table takes no commit, on our own clock
        self.left: set[UUID] = set()  # topics some of whose streams have left their table already
        self.fresh: set[UUID] = set()  # topics whose table was just made: older files may be missing in it
        self.raced = False  # another commit came first: the next round may come through
        self.refused = False  # something was in the way of a table, perhaps that of a deleted topic
        self.changed: set[UUID] = set()  # topics into whose table the log's files may be put back

    async def commit(
        self, table: TopicTable, jobs: Sequence[RunningJob], summary: CycleSummary
    ) -> list[RunningJob]:
        """Commit the jobs of one topic to its table; the jobs that may be swapped now."""
        passed: list[RunningJob] = []
        changing: dict[str, RunningJob] = {}
        for job in jobs:
            if self._tables is None or not job.compaction.table:
                passed.append(job)  # no table, no step
            else:
                changing[job.identity] = job
        if changing and self._tables is not None:
            changes = [await self._change(job) for job in changing.values()]
            outcomes = await self._commit(self._tables, table, changes, changing, summary)
            passed += [job for identity, job in changing.items() if outcomes.get(identity)]
        moved = await side_by_side(self._saga.committed(job) for job in passed)
        if changing and self._is_out_of_patience(table):
            moved += [await self._saga.without_table(job) for job in changing.values()]
            summary.without_table += len(changing)
            _log.warning(
                "the log goes on without a table, which is brought up to it when it can be",
                topic=table.topic,
                jobs=len(changing),
            )
        return [job for job in moved if job is not None]

    def _is_out_of_patience(self, table: TopicTable) -> bool:
        """Has the last commit failed, and for so long? A table that takes commits is never left."""
        since = self._failing_since.get(table.topic_id)
        if since is None:
            return False
        patience = self._settings.table_patience_seconds
        return table.topic_id in self.left or self._runtime.monotonic() - since >= patience

    async def take_out(self, table: TopicTable, job: RunningJob, summary: CycleSummary) -> bool:
        """The stream of a written job is gone: its file leaves the table, then the job is done. The commit is
        made even if the file is not in the table: it stops a slower compactor that is about to add the
        file. A table that is to be dropped with its topic is not waited for either."""
        if self._tables is not None and job.compaction.table:
            identity = f"{job.identity}-out"
            change = TableChange(identity, removed=(job.written.path,))
            outcomes = await self._commit(self._tables, table, [change], {identity: job}, summary)
            given_up = self._settings.drop_tables and self._is_out_of_patience(table)
            if not (outcomes.get(identity) or given_up):
                return False
        return await self._saga.give_up(job)

    async def _commit(
        self,
        tables: Tables,
        table: TopicTable,
        changes: Sequence[TableChange],
        jobs: dict[str, RunningJob],
        summary: CycleSummary,
    ) -> dict[str, bool]:
        """By job id: is it done with the table?"""

        async def still_ours(change: TableChange) -> bool:
            return await self._saga.still_ours(jobs[change.job])

        started = self._runtime.monotonic()
        try:
            adds = any(change.added for change in changes)
            if not adds and await tables.live_files(table) is None:
                # There is no table to take the file out of, and no commit can add it: a commit asserts the
                # table's own id.
                return {change.job: True for change in changes}
            try:
                outcomes = await tables.commit(table, changes, still_ours)
            except TableMissing:
                if not adds:
                    raise
                if (await tables.ensure(table)).created:
                    self.fresh.add(table.topic_id)
                outcomes = await tables.commit(table, changes, still_ours)
        except Exception as error:
            if not isinstance(error, TablesError):
                if isinstance(error, FORESEEN):
                    raise  # a store of the log failed, and not the table
                self._runtime.background.report("commit a table", error)
            if table.topic_id not in self._failing_since:
                waited = await self._waited(jobs.values())
                self._failing_since[table.topic_id] = self._runtime.monotonic() - waited
            self.refused = self.refused or isinstance(error, TableRefused)
            if isinstance(error, TableChanged):
                self.changed.add(table.topic_id)
            self._waits(table, len(changes), error, summary)
            self._observer.committed(self._runtime.monotonic() - started, "refused")
            return {}
        summary.commits += 1
        self._failing_since.pop(table.topic_id, None)
        waiting = [job for job, outcome in outcomes.items() if outcome is CommitOutcome.LOST_RACE]
        self._observer.committed(self._runtime.monotonic() - started, "raced" if waiting else "done")
        summary.waiting += len(waiting)
        summary.more = summary.more or bool(waiting)
        self.raced = self.raced or bool(waiting)
        return {job: outcome is CommitOutcome.COMMITTED for job, outcome in outcomes.items()}

    async def _waited(self, jobs: Iterable[RunningJob]) -> float:
        """For how long the oldest of their files has been there. A process's own memory is not enough: it may
        be started again and again, or for one cycle at a time. A table that is left too early costs no more
        than catching up."""
        written = await gather_some(self._written_ms(job.written.path) for job in jobs)
        now_ms = self._runtime.wall_ms()
        return max(
            [(now_ms - at_ms) / 1000 for at_ms in written if at_ms is not None and at_ms < now_ms] or [0.0]
        )

    async def _written_ms(self, path: str) -> int | None:
        try:
            return (await self._objects.head(path)).modified_ms
        except ObjectError:
            return None

    async def _change(self, job: RunningJob) -> TableChange:
        """The new file instead of those that it was merged from. Of a gap there is none."""
        compaction = job.compaction
        removed = tuple(each.path for each in compaction.inputs if each.path)
        found = await self._saga.clean_range(job)
        clean = None if found is None else CleanRange(compaction.partition, *found)
        added = (TableFile(compaction.partition, job.written),) if job.written.record_count else ()
        return TableChange(job.identity, added, removed, clean)

    @staticmethod
    def _waits(table: TopicTable, jobs: int, error: Exception, summary: CycleSummary) -> None:
        summary.waiting += jobs
        reason = str(error) or type(error).__name__
        summary.troubles.append(StalledStream(table.topic, -1, reason, Cause.TABLE))
        _log.warning("compaction waits for a table", topic=table.topic, jobs=jobs, error=reason)


def table_of_job(job: RunningJob) -> TopicTable:
    """As it was when the job was planned: the topic may be gone."""
    compaction = job.compaction
    return TopicTable(compaction.topic, compaction.topic_id, compaction.by_day)
