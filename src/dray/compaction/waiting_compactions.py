"""Compactions that wait for their table, finished without it: the way out where no compactor will ever come.

A written job is never abandoned, and only a compactor can put its file into the table. Until then the stream
keeps its records: retention and DeleteRecords wait. Where compaction was given up, that is for ever.

Finishing such a job without the table loses nothing: its file takes its place in the index, and a compactor
that comes after all finds that the index names a file that the table lacks, and adds it (`table_keeper.py`).
But nothing stops a compactor that is *about* to commit that file: were the records deleted meanwhile, it
would add a file to the table that the log no longer has. So no broker does this by itself, however long a job
waits. Only a person does it, who knows that no compactor runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from dray.compaction.job_board import JobBoard
from dray.compaction.saga import RunningJob, Saga
from dray.log.jobs import Awaits, Job
from dray.log.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import StreamClosed
from dray.runtime import Runtime


@dataclass(frozen=True, slots=True)
class WaitingCompaction:
    """A compaction that is written and not in its table."""

    stream: int
    job: Versioned[Job]
    deleted: bool  # the stream was deleted: only a compactor can take the file out again

    @property
    def topic(self) -> str:
        return self.job.value.compacted.topic

    @property
    def partition(self) -> int:
        return self.job.value.compacted.partition

    @property
    def offsets(self) -> tuple[int, int]:
        compaction = self.job.value.compacted
        return compaction.start, compaction.end


class WaitingCompactions:
    def __init__(self, store: StreamStore, runtime: Runtime, settings: LogSettings) -> None:
        self._store = store
        self._board = JobBoard(store, runtime)
        self._saga = Saga(store, runtime, owner="")
        self._retention = Retention(store, runtime, settings)

    async def waiting(self) -> list[WaitingCompaction]:
        """All of them, as they are now."""
        await self._board.read()
        return [
            WaitingCompaction(stream, job, await self._saga.is_closed(stream))
            for stream, job in sorted(self._board.jobs.items())
            if job.value.awaits is Awaits.TABLE and job.value.compacted.table
        ]

    async def finish(self, waiting: WaitingCompaction) -> bool:
        """Finish the job without its table. False: another process was quicker, or the stream was deleted."""
        if waiting.deleted or await self._saga.is_closed(waiting.stream):
            return False
        moved = await self._saga.committed(RunningJob(waiting.stream, waiting.job))
        if moved is None:
            return False
        try:
            await self._retention.finish(waiting.stream, moved.job)
        except StreamClosed:
            return False  # deleted meanwhile: a compactor takes the file out again
        return True
