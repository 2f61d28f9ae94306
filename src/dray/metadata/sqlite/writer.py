"""The writing half: group commit.

All writes that queued up while a transaction ran go into the next one together: one sync of the disk
for all of them. Each statement handles the whole group at once, because every call into SQLite lets go of
the interpreter lock and must win it back from a busy event loop: with one statement per row, a group of forty
rows took 10 ms where it now takes 2. The rows of a large group travel as one JSON text and one blob. For a
small one there is a statement with as many places as it has rows: without JSON, a read of ten keys takes 23
microseconds, not 60.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from dray.base.runtime.workers import Afterwards, WorkItem
from dray.metadata.contract import Ambiguous, MetadataError, Operation, Outcome, SessionEnded
from dray.metadata.keys import WAL, WATCHED
from dray.metadata.sqlite.changes import Neighbours
from dray.metadata.sqlite.group import Group, Place, conditional_places
from dray.metadata.sqlite.schema import STORE_DOMAIN, VERSION_KEY, connect_writer, error_code, failure

Changed: TypeAlias = dict[int, dict[str, None] | None]
"""Per domain the keys that changed; None when there is no telling which."""

CHANGES_KEPT: Final = 1024
CHANGES_TRIMMED_EVERY: Final = 256
CHANGE_KEYS_LENGTH: Final = 64 << 10
PUT_BYTES: Final = 32 << 20
"""Values per statement: far below the size at which SQLite refuses a blob."""

_PAGE_BYTES: Final = 4096
_PAGES_OF_A_GROUP: Final = 2
_TIMES_AS_LONG: Final = 4

ALIVE: Final = "expires > ?1 AND expires <= ?1 + ttl"

_READ = f"""
    SELECT
        (SELECT version FROM records WHERE domain = {STORE_DOMAIN} AND key = '{VERSION_KEY}'),
        (SELECT json_group_object(asked.key, records.version)
            FROM json_each(?2) AS asked
            CROSS JOIN records ON records.domain = asked.value ->> 0 AND records.key = asked.value ->> 1
            WHERE session IS NULL OR session IN (SELECT id FROM sessions WHERE {ALIVE})),
        (SELECT json_group_array(id) FROM sessions
            WHERE id IN (SELECT value FROM json_each(?3)) AND {ALIVE})
"""
_PUT = """
    INSERT INTO records (domain, key, value, version, session)
    SELECT value ->> 0, value ->> 1, substr(?2, value ->> 2, value ->> 3), value ->> 4, value ->> 5
    FROM json_each(?1) WHERE TRUE
    ON CONFLICT (domain, key) DO UPDATE
    SET value = excluded.value, version = excluded.version, session = excluded.session
"""
SMALL_ROWS: Final = 32
"""Each number of rows up to this has its own statements, which the connection keeps."""

_READ_SMALL: Final = [
    f"""
    WITH asked (place, domain, key) AS
        (VALUES {", ".join([f"({place}, ?{2 * place + 2}, ?{2 * place + 3})" for place in range(rows)])})
    SELECT place, version FROM asked CROSS JOIN records USING (domain, key)
        WHERE session IS NULL OR session IN (SELECT id FROM sessions WHERE {ALIVE})
    UNION ALL
    SELECT -1, version FROM records WHERE domain = {STORE_DOMAIN} AND key = '{VERSION_KEY}'
    """
    for rows in range(1, SMALL_ROWS + 1)
]
_PUT_SMALL: Final = [
    f"""
    INSERT INTO records (domain, key, value, version, session)
    VALUES {", ".join(["(?, ?, ?, ?, ?)"] * rows)}
    ON CONFLICT (domain, key) DO UPDATE
    SET value = excluded.value, version = excluded.version, session = excluded.session
    """
    for rows in range(1, SMALL_ROWS + 1)
]
_DELETE = "DELETE FROM records WHERE domain = ?1 AND key IN (SELECT value FROM json_each(?2))"
_DELETE_RANGE = "DELETE FROM records WHERE domain = ?1 AND key >= ?2 AND key < ?3"
_TELL = """
    INSERT INTO changes (writer, domain, keys)
    SELECT ?1, value ->> 0, value ->> 1 FROM json_each(?2)
"""
_FORGET = "DELETE FROM changes WHERE sequence <= ?1"


class WriteJob(WorkItem[list[Outcome]]):
    __slots__ = ("domain", "is_known", "operations", "session")

    def __init__(
        self, domain: int, operations: Sequence[Operation], session: int | None, *, is_known: bool = False
    ) -> None:
        """`is_known`: who writes it takes care of what this process knows; its watchers need not hear."""
        super().__init__()
        self.domain = domain
        self.operations = operations
        self.session = session
        self.is_known = is_known


class SessionJob(WorkItem[bool]):
    """Something done to sessions in a group's transaction, before its writes."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[sqlite3.Connection, float, Changed], bool]) -> None:
        super().__init__()
        self.act = act


AnyWrite: TypeAlias = WriteJob | SessionJob


class GroupWriter:
    """Runs in the writer's thread, with the writers' lock held around each group."""

    def __init__(
        self,
        path: Path,
        *,
        identity: int,
        clock: Callable[[], float],
        busy_timeout: float,
        checkpoint_pages: int,
        published: Callable[[Changed], None],
    ) -> None:
        self._path = path
        self._identity = identity
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._checkpoint_pages = checkpoint_pages
        self._published = published
        self._neighbours = Neighbours(path, identity, clock)
        self._connection: sqlite3.Connection | None = None
        self._pages = 0  # written since the last checkpoint, about

    def run(self, jobs: Sequence[AnyWrite]) -> Afterwards:
        """One transaction for all of them. Until COMMIT is tried nothing can have happened; when it
        fails, its frames may already be in the log, and a later recovery may find them."""
        changed: Changed = {}
        committing = False
        try:
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            self._apply(connection, jobs, changed)
            committing = True
            connection.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            unclear = committing and error_code(error) != sqlite3.SQLITE_BUSY
            found = Ambiguous(f"{self._path}: {error}") if unclear else failure(self._path, error)
            self._fail(jobs, type(found), str(found))
            self.close()
            return None
        except MetadataError as error:
            self._fail(jobs, type(error), str(error))
            self.close()
            return None
        except BaseException:
            self.close()
            raise
        if not changed:
            return None
        if any(map(_is_waited_for, changed.values())):
            self._neighbours.ring()
        if all(isinstance(job, WriteJob) and job.is_known for job in jobs):
            changed = {}
        return lambda: self._published(changed)

    def is_checkpoint_due(self) -> bool:
        """Is SQLite's log about as long as it should get? Once this was answered with yes, the caller has a
        checkpoint made (`checkpoints`), and the next is due after as many pages."""
        if self._pages < self._checkpoint_pages:
            return False
        self._pages = 0
        return True

    def finish(self) -> None:
        self.close()
        self._neighbours.close()

    def close(self) -> None:
        """Let go of the connection, and with it of any transaction left open."""
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            # If checkpoints do not come or do not finish, the writer makes one itself.
            at_last = _TIMES_AS_LONG * self._checkpoint_pages
            self._connection = connect_writer(self._path, self._busy_timeout, at_last)
        return self._connection

    def _fail(self, jobs: Sequence[AnyWrite], kind: type[MetadataError], text: str) -> None:
        for job in jobs:
            job.error = kind(text)

    def _apply(self, connection: sqlite3.Connection, jobs: Sequence[AnyWrite], changed: Changed) -> None:
        now = self._clock()
        writes: list[WriteJob] = []
        for job in jobs:
            if isinstance(job, SessionJob):
                job.result = job.act(connection, now, changed)
            else:
                writes.append(job)
        if writes:
            self._apply_writes(connection, now, writes, changed)
        if changed:
            self._tell_others(connection, changed)

    def _apply_writes(
        self, connection: sqlite3.Connection, now: float, writes: list[WriteJob], changed: Changed
    ) -> None:
        group, alive = self._read(connection, now, writes)
        group.changed = changed
        last_version = group.last_version
        for job in writes:
            if job.session is not None and job.session not in alive:
                job.error = SessionEnded(f"session {job.session} is over")
            else:
                job.result = group.play(job.domain, job.operations, job.session)
        for span in group.ranges:
            connection.execute(_DELETE_RANGE, span)
        for domain, keys in _by_domain(group.deletes).items():
            connection.execute(_DELETE, (domain, json.dumps(keys)))
        if group.last_version != last_version:
            # Also when nothing is left of what was put: its versions were given out.
            group.puts[STORE_DOMAIN, VERSION_KEY] = (b"", group.last_version, None)
        if 0 < len(group.puts) <= SMALL_ROWS:
            values = [value for place, put in group.puts.items() for value in (*place, *put)]
            connection.execute(_PUT_SMALL[len(group.puts) - 1], values)
            self._pages += sum([len(put[0]) for put in group.puts.values()]) // _PAGE_BYTES
        else:
            for arguments in _put_arguments(group.puts):
                connection.execute(_PUT, arguments)
                self._pages += len(arguments[1]) // _PAGE_BYTES
        self._pages += _PAGES_OF_A_GROUP + len(group.puts) + len(group.deletes)

    def _read(
        self, connection: sqlite3.Connection, now: float, writes: list[WriteJob]
    ) -> tuple[Group, set[int]]:
        places: dict[Place, None] = {}
        sessions: set[int] = set()
        for job in writes:
            places.update(dict.fromkeys(conditional_places(job.domain, job.operations)))
            if job.session is not None:
                sessions.add(job.session)
        asked = list(places)
        versions = dict.fromkeys(asked, 0)
        if 0 < len(asked) <= SMALL_ROWS and not sessions:
            return Group(versions, self._read_small(connection, now, asked, versions)), sessions
        arguments = (now, json.dumps(asked), json.dumps(list(sessions)))
        last_version, found, alive = connection.execute(_READ, arguments).fetchone()
        for position, version in json.loads(found).items():
            versions[asked[int(position)]] = version
        return Group(versions, last_version), set(json.loads(alive))

    @staticmethod
    def _read_small(
        connection: sqlite3.Connection, now: float, asked: list[Place], versions: dict[Place, int]
    ) -> int:
        """Fill in the versions of what is there. Gives the last one that was given out."""
        arguments = [now, *chain.from_iterable(asked)]
        found: dict[int, int] = dict(connection.execute(_READ_SMALL[len(asked) - 1], arguments).fetchall())
        last_version = found.pop(-1)
        for position, version in found.items():
            versions[asked[position]] = version
        return last_version

    def _tell_others(self, connection: sqlite3.Connection, changed: Changed) -> None:
        rows = [(domain, _joined(keys)) for domain, keys in changed.items()]
        last = connection.execute(_TELL, (self._identity, json.dumps(rows))).lastrowid or 0
        if last // CHANGES_TRIMMED_EVERY != (last - len(rows)) // CHANGES_TRIMMED_EVERY:
            connection.execute(_FORGET, (last - CHANGES_KEPT,))


def _is_waited_for(changed: Iterable[str] | None) -> bool:
    """May a process wait for one of these keys? None waits for what is noted of WAL objects, which is half of
    all writes."""
    return changed is None or not all(key.startswith(WAL) for key in changed)


def _by_domain(places: Iterable[Place]) -> dict[int, list[str]]:
    keys: dict[int, list[str]] = {}
    for domain, key in places:
        keys.setdefault(domain, []).append(key)
    return keys


def _put_arguments(puts: dict[Place, tuple[bytes, int, int | None]]) -> Iterator[tuple[str, bytes]]:
    """The puts as rows that point into one blob of their values, in parts of a bounded size."""
    rows: list[tuple[Any, ...]] = []
    values = [b"\0"]
    position = 2  # SQL counts from one, and substr of an empty blob is NULL: a spare byte leads
    for (domain, key), (value, version, session) in puts.items():
        rows.append((domain, key, position, len(value), version, session))
        values.append(value)
        position += len(value)
        if position > PUT_BYTES:
            yield json.dumps(rows), b"".join(values)
            rows, values, position = [], [b"\0"], 2
    if rows:
        yield json.dumps(rows), b"".join(values)


def _joined(keys: Iterable[str] | None) -> str | None:
    """What a change names: all keys; an empty one and those of the beginnings and ends of streams, where all
    are too many; or nothing."""
    if keys is None:
        return None
    names = list(keys)
    for some in (names, ["", *(name for name in names if name.endswith(WATCHED))]):
        text = "\n".join(some)
        if len(text) <= CHANGE_KEYS_LENGTH:
            return text
    return None


# --- the engine's half of a session: acts that ride in a group's transaction


ANY_EXPIRED = f"SELECT EXISTS (SELECT 1 FROM sessions WHERE NOT ({ALIVE}))"


def open_session(identity: int, domain: int, ttl: float) -> SessionJob:
    def act(connection: sqlite3.Connection, now: float, _changed: Changed) -> bool:
        connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?)", (identity, domain, ttl, now + ttl))
        return True

    return SessionJob(act)


def renew_session(identity: int) -> SessionJob:
    """Says whether the session still lives: one that ran out is never brought back."""

    def act(connection: sqlite3.Connection, now: float, _changed: Changed) -> bool:
        renewal = f"UPDATE sessions SET expires = ?1 + ttl WHERE id = ?2 AND {ALIVE}"
        return connection.execute(renewal, (now, identity)).rowcount == 1

    return SessionJob(act)


def remove_session(identity: int) -> SessionJob:
    def act(connection: sqlite3.Connection, _now: float, changed: Changed) -> bool:
        _remove(connection, [identity], changed)
        return True

    return SessionJob(act)


def reap_sessions() -> SessionJob:
    """Remove what has run out, whosever it was."""

    def act(connection: sqlite3.Connection, now: float, changed: Changed) -> bool:
        expired = connection.execute(f"SELECT id FROM sessions WHERE NOT ({ALIVE})", (now,)).fetchall()
        _remove(connection, [identity for (identity,) in expired], changed)
        return bool(expired)

    return SessionJob(act)


def _remove(connection: sqlite3.Connection, identities: Iterable[int], changed: Changed) -> None:
    chosen = (json.dumps(list(identities)),)
    of_chosen = "FROM records WHERE session IN (SELECT value FROM json_each(?1))"
    for domain, key in connection.execute(f"SELECT domain, key {of_chosen}", chosen).fetchall():
        keys = changed.setdefault(domain, {})
        if keys is not None:
            keys[key] = None
    connection.execute(f"DELETE {of_chosen}", chosen)
    connection.execute("DELETE FROM sessions WHERE id IN (SELECT value FROM json_each(?1))", chosen)
