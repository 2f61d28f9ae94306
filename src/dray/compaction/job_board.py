"""Every stream's job in a few scans, and how long each has stood still.

Read at the start of a round, before any index: a plan made from a later look at a stream is put over the
version found here, so it cannot start if another process changed the job meanwhile.
"""

from __future__ import annotations

from typing import Final

import structlog

from dray.log.jobs import Job, JobState
from dray.log.stream_store import StreamStore, Versioned
from dray.metadata import keys
from dray.metadata.values import UnreadableValue
from dray.runtime import Runtime

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

    def unfinished(self) -> dict[int, Versioned[Job]]:
        return {stream: job for stream, job in self.jobs.items() if job.value.state is not JobState.DONE}

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
