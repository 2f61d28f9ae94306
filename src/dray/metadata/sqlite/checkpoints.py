"""Checkpoints: copying SQLite's log into its file, in a thread of its own.

SQLite does this within the commit that finds the log long: every 500th append waited 8 ms for it. Here
another connection copies while the writer goes on, which SQLite allows at any time: it syncs the log before
it copies, and the file before it lets the log be written from its beginning again. That takes `synchronous`
on this connection too.

The log begins anew only once all of it is copied, and meanwhile the writer adds to it. So the last of three
passes holds the writers' lock: it copies the few pages that the others left, and writers wait for one sync.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from dray.base.runtime.logger import get_logger
from dray.base.runtime.workers import WorkItem
from dray.metadata.contract import Unavailable
from dray.metadata.sqlite.lock import WriterLock
from dray.metadata.sqlite.schema import connect_checkpointer

_log = get_logger(__name__)

_PASSES_BESIDE_WRITERS: Final = 2
_COPY: Final = "PRAGMA wal_checkpoint(PASSIVE)"


class CheckpointJob(WorkItem[bool]):
    """One checkpoint. Its result says whether the whole log was copied."""

    __slots__ = ()


class Checkpointer:
    """Runs in a thread of its own. `lock` is another than the writer's: the writer has to wait for it."""

    def __init__(self, path: Path, lock: WriterLock, busy_timeout: float) -> None:
        self._path = path
        self._lock = lock
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None

    def run(self, jobs: Sequence[CheckpointJob]) -> None:
        """A checkpoint that fails does no harm: the log grows on, and the writer copies it itself when it is
        four times as long (`GroupWriter`)."""
        try:
            done = self._copy_all()
        except (sqlite3.Error, Unavailable) as error:
            _log.warning("the metadata file's log was not copied", path=str(self._path), error=str(error))
            self.close()
            done = False
        for job in jobs:
            job.result = done

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def finish(self) -> None:
        self.close()
        self._lock.close()

    def _copy_all(self) -> bool:
        if self._connection is None:
            self._connection = connect_checkpointer(self._path, self._busy_timeout)
        for _ in range(_PASSES_BESIDE_WRITERS):
            self._copy(self._connection)
        with self._lock.held():
            return self._copy(self._connection)

    @staticmethod
    def _copy(connection: sqlite3.Connection) -> bool:
        """Was the log copied as far as it went when this began? Not beyond what a reader still looks at."""
        busy, pages, copied = connection.execute(_COPY).fetchone()
        return not busy and pages == copied
