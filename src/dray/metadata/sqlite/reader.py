"""The reading half. In WAL mode a reader waits for no writer, and sees all that was committed before
its statement began, by whichever process.

Reads run in threads although a cached one takes only some ten microseconds: the one in a thousand
that must fetch pages from the disk would stop the whole broker. Whatever queued up meanwhile shares
the hop. Scans have a thread of their own, so that a long one holds up no `get`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dray.base.runtime.workers import WorkItem
from dray.metadata.contract import StoredValue
from dray.metadata.sqlite.schema import connect_reader, failure

_COLUMNS = "SELECT key, value, version FROM records"
# Twice the time to live: the clock is read before the statement sees the file, and a session that was renewed
# in between expires later than a time to live from then. Writers judge under the lock, and need no such room.
_VISIBLE = (
    "(session IS NULL OR session IN (SELECT id FROM sessions WHERE expires > ?1 AND expires <= ?1 + 2 * ttl))"
)

GET = f"{_COLUMNS} WHERE domain = ?2 AND key = ?3 AND {_VISIBLE}"
GREATEST = f"""
    {_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key <= ?4 AND {_VISIBLE} ORDER BY key DESC LIMIT 1
"""
LEAST = f"""
    {_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key < ?4 AND {_VISIBLE} ORDER BY key LIMIT 1
"""
SCAN = f"{_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key < ?4 AND {_VISIBLE} ORDER BY key LIMIT ?5"


class ReadJob(WorkItem[list[Any]]):
    """One statement; its first parameter is the time, filled in when it runs."""

    __slots__ = ("arguments", "statement")

    def __init__(self, statement: str, *arguments: object) -> None:
        super().__init__()
        self.statement = statement
        self.arguments = arguments


class SqliteReader:
    """Runs in a reader's thread."""

    def __init__(self, path: Path, clock: Callable[[], float], busy_timeout: float) -> None:
        self._path = path
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None

    def run(self, jobs: Sequence[ReadJob]) -> None:
        for job in jobs:
            try:
                if self._connection is None:
                    self._connection = connect_reader(self._path, self._busy_timeout)
                cursor = self._connection.execute(job.statement, (self._clock(), *job.arguments))
                job.result = cursor.fetchall()
            except sqlite3.Error as error:
                job.error = failure(self._path, error)
                self.close()
            except (ValueError, OverflowError) as error:  # an argument that SQLite cannot hold
                job.error = error

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def records_of(rows: list[tuple[str, bytes, int]]) -> list[StoredValue]:
    return [StoredValue(*row) for row in rows]
