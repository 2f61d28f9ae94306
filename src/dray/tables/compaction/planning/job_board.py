"""Every stream's job in a few scans, and how long each has stood still.

Read at the start of a round, before any index: a plan made from a later look at a stream is put over the
version found here, so it cannot start if another process changed the job meanwhile.

Some jobs wait for their table. A written job is never abandoned, and only a compactor can put its file into
the table. Until then the stream keeps its records: retention and DeleteRecords wait. If compaction was given
up, that is for ever. Finishing such a job without the table loses nothing: its file takes its place in the
index, and the job says that its stream has left its table. A compactor does so by itself after
an hour, and one that comes after all brings the table up to the log (`left_tables.py`).
`drayd admin finish-compactions` does so where no compactor will ever come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.log.jobs.machine import Awaits, Job, JobState
from dray.log.life.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import StreamClosed
from dray.metadata import keys
from dray.metadata.values import UnreadableValue
from dray.tables.compaction.saga import RunningJob, Saga

_log = structlog.get_logger(__name__)

_PAGE: Final = 1024


class JobBoard:
    def __init__(self, store: StreamStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self.jobs: dict[int, Versioned[Job]] = {}
        self.unreadable: set[int] = set()  # streams whose job is there and cannot be read
        # On our own clock: when an unfinished job was first seen at its version.
        self._since: dict[tuple[int, int], float] = {}

    async def read(self) -> None:
        jobs: dict[int, Versioned[Job]] = {}
        unreadable: set[int] = set()
        for domain in range(self._store.domains):
            await self._store.barrier_in(domain)
            async for page in self._store.pages_in(domain, keys.JOBS, _PAGE):
                for record in page:
                    stream = keys.stream_of_job(record.key)
                    if stream is None:
                        continue
                    try:
                        jobs[stream] = Versioned(Job.decode(record.value), record.version)
                    except UnreadableValue as error:
                        _log.error("a stream is not compacted", stream=stream, error=str(error))
                        unreadable.add(stream)
        self.jobs, self.unreadable = jobs, unreadable
        now = self._runtime.monotonic()
        self._since = {
            (stream, job.version): self._since.get((stream, job.version), now)
            for stream, job in self.unfinished().items()
        }

    def has_left_table(self, stream: int) -> bool:
        """Did jobs of the stream go on without its table, which was not brought up to the log since?"""
        job = self.jobs.get(stream)
        return job is not None and job.value.left_table is not None

    def unfinished(self) -> dict[int, Versioned[Job]]:
        return {stream: job for stream, job in self.jobs.items() if job.value.state is not JobState.DONE}

    def versions(self, streams: Iterable[int]) -> tuple[int, ...]:
        """Of the streams' jobs, 0 where there is none; what cannot be read counts as that."""
        return tuple(self.jobs[each].version if each in self.jobs else 0 for each in streams)

    def stood_still(self, stream: int) -> float:
        """For how many seconds the stream's job has not moved, as far as this process has seen."""
        since = self._since.get((stream, self.jobs[stream].version))
        return 0.0 if since is None else self._runtime.monotonic() - since

    def unfinished_names(self, streams: set[int]) -> list[str]:
        """The names, as tables know them, of the jobs of these streams that may still ask whether they were
        committed."""
        return [
            f"{stream}-{job.value.number}" for stream, job in self.unfinished().items() if stream in streams
        ]


# --- jobs that wait for their table, finished without it


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
        moved = await self._saga.without_table(RunningJob(waiting.stream, waiting.job))
        if moved is None:
            return False
        try:
            await self._retention.finish(waiting.stream, moved.job)
        except StreamClosed:
            return False  # deleted meanwhile: a compactor takes the file out again
        return True
