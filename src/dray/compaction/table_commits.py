"""The table steps of a cycle: one commit per topic for all of its jobs. `tables/iceberg/tables.py` sends it.

If the catalog is down, the jobs of the topics concerned wait, and everything else goes on. A table that is
refused (it was dropped or changed, or belongs to another topic) is logged in one line, and its jobs wait too.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import structlog

from dray.compaction.saga import RunningJob, Saga
from dray.compaction.summary import Cause, CompactionObserver, CycleSummary, StalledStream
from dray.runtime import Runtime
from dray.tables.contract import (
    CleanRange,
    CommitOutcome,
    TableChange,
    TableFile,
    TableMissing,
    TableRefused,
    Tables,
    TablesUnavailable,
    TopicTable,
)

_log = structlog.get_logger(__name__)


class TableCommits:
    def __init__(
        self, tables: Tables | None, saga: Saga, runtime: Runtime, observer: CompactionObserver
    ) -> None:
        self._tables = tables
        self._saga = saga
        self._runtime = runtime
        self._observer = observer
        self.fresh: set[UUID] = set()  # topics whose table was just made: older files may be missing in it
        self.raced = False  # another commit came first: the next round may come through
        self.refused = False  # something was in the way of a table, perhaps that of a deleted topic

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
        moved = [await self._saga.committed(job) for job in passed]
        return [job for job in moved if job is not None]

    async def take_out(self, table: TopicTable, job: RunningJob, summary: CycleSummary) -> bool:
        """The stream of a written job is gone: its file leaves the table, then the job is done. The commit is
        made even if the file is not in the table: it stops a slower compactor that is about to add the
        file."""
        if self._tables is not None and job.compaction.table:
            identity = f"{job.identity}-out"
            change = TableChange(identity, removed=(job.written.path,))
            outcomes = await self._commit(self._tables, table, [change], {identity: job}, summary)
            if not outcomes.get(identity):
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
            if any(change.added for change in changes):
                if (await tables.ensure(table)).created:
                    self.fresh.add(table.topic_id)
            elif await tables.live_files(table) is None:
                # There is no table to take the file out of, and no commit can add it: a commit asserts the
                # table's own id.
                return {change.job: True for change in changes}
            outcomes = await tables.commit(table, changes, still_ours)
        except (TableMissing, TablesUnavailable, TableRefused) as error:
            self.refused = self.refused or isinstance(error, TableRefused)
            self._waits(table, len(changes), error, summary)
            self._observer.committed(self._runtime.monotonic() - started, "refused")
            return {}
        summary.commits += 1
        waiting = [job for job, outcome in outcomes.items() if outcome is CommitOutcome.LOST_RACE]
        self._observer.committed(self._runtime.monotonic() - started, "raced" if waiting else "done")
        summary.waiting += len(waiting)
        summary.more = summary.more or bool(waiting)
        self.raced = self.raced or bool(waiting)
        return {job: outcome is CommitOutcome.COMMITTED for job, outcome in outcomes.items()}

    async def _change(self, job: RunningJob) -> TableChange:
        """The new file instead of those that it was merged from."""
        compaction = job.compaction
        removed = tuple(each.path for each in compaction.inputs if each.path)
        found = await self._saga.clean_range(job)
        clean = None if found is None else CleanRange(compaction.partition, *found)
        return TableChange(job.identity, (TableFile(compaction.partition, job.written),), removed, clean)

    @staticmethod
    def _waits(table: TopicTable, jobs: int, error: Exception, summary: CycleSummary) -> None:
        summary.waiting += jobs
        summary.troubles.append(StalledStream(table.topic, -1, str(error), Cause.TABLE))
        _log.warning("compaction waits for a table", topic=table.topic, jobs=jobs, error=str(error))


def table_of_job(job: RunningJob) -> TopicTable:
    """As it was when the job was planned: the topic may be gone."""
    compaction = job.compaction
    return TopicTable(compaction.topic, compaction.topic_id, compaction.by_day)
