"""The contents of the file, how a connection to it is set up, and which files are refused.

`records` holds every key of every domain, and one row in a domain of its own whose version is the
last one given out: it is read and written by the statements that read and write records, in the
same transaction, so a version can never be given twice. It is an ordinary table with an index, not
`WITHOUT ROWID`: the new index entries of many streams then land on a few pages at its end instead of
one page each, and large values stay out of the inner nodes (a commit over 20 streams: 19 against 26
microseconds per operation with values of 400 bytes, 31 against 46 with 2,000).

`sessions` needs no note of the machine's last boot. Times are the monotonic clock's, which all
processes of a machine share and which starts again at boot; a session lives while
`now < expires <= now + ttl`. A session that an earlier boot left behind is out of that window, or in it by
chance and then out of it within `ttl`; either way it is swept when the file is next opened.

`changes` tells the other processes which keys changed: one row per transaction and domain, the
oldest trimmed. It may forget: watchers notice a gap and re-read.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from dray.metadata.contract import MetadataError, Unavailable

SCHEMA_VERSION: Final = 1
APPLICATION_ID: Final = 0x44726179  # "Dray"
MINIMUM_SQLITE: Final = (3, 38, 0)  # STRICT tables and ->>

STORE_DOMAIN: Final = -1
VERSION_KEY: Final = "last version"

_CHECKED_WHOLLY: Final = 256 << 20
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_ADVICE: Final = (
    "a copy that was made while brokers ran is often so; bring back a backup with drayd restore, or copy the "
    "file anew with all brokers stopped"
)

_CACHE_SIZE: Final = "PRAGMA cache_size = -8192"  # kibibytes, for each connection

_CREATE: Final = (
    """
    CREATE TABLE records (
        domain INTEGER NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        version INTEGER NOT NULL,
        session INTEGER,
        UNIQUE (domain, key)
    ) STRICT
    """,
    "CREATE INDEX records_of_session ON records (session) WHERE session IS NOT NULL",
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        domain INTEGER NOT NULL,
        ttl REAL NOT NULL,
        expires REAL NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE changes (
        sequence INTEGER PRIMARY KEY,
        writer INTEGER NOT NULL,
        domain INTEGER NOT NULL,
        keys TEXT
    ) STRICT
    """,
    f"INSERT INTO records VALUES ({STORE_DOMAIN}, '{VERSION_KEY}', x'', 0, NULL)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


class UnusableFile(MetadataError):
    """The file is not one this version can work with: trying again will not help."""


class DamagedFile(UnusableFile):
    """The contents of the file contradict themselves."""


def no_matter(_: str) -> None:
    """For those whom damage of the file concerns no more than any error."""


def error_code(error: Exception) -> int | None:
    """SQLite's primary result code, if it was SQLite that complained."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def failure(path: Path, error: Exception) -> MetadataError:
    """Of a read, or of a write that did not happen: damage does not pass, and everything else may."""
    if error_code(error) in _DAMAGE:
        return DamagedFile(f"{path} is damaged ({error}): {_ADVICE}")
    return Unavailable(f"{path}: {error}")


def check_whole(path: Path, busy_timeout: float) -> None:
    """`DamagedFile` for one that is damaged, as a copy of a running store is: a part of it may be read
    for days before the damage shows. A large file is not held against its index, which would take seconds.
    The owner of the file is judged elsewhere."""
    if not path.exists():
        return
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    try:
        if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
            return
        check = "integrity_check" if path.stat().st_size <= _CHECKED_WHOLLY else "quick_check"
        (found,) = connection.execute(f"PRAGMA {check}(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if error_code(error) == sqlite3.SQLITE_NOTADB:
            return
        raise failure(path, error) from error
    finally:
        connection.close()
    if found != "ok":
        raise DamagedFile(f"{path} is damaged ({found}): {_ADVICE}")


def connect_writer(path: Path, busy_timeout: float, checkpoint_pages: int) -> sqlite3.Connection:
    """A connection that may write, creating the file if need be. The writers' lock is held."""
    if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
        needed = ".".join(map(str, MINIMUM_SQLITE))
        raise UnusableFile(f"SQLite {needed} or newer is needed, this Python has {sqlite3.sqlite_version}")
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    try:
        _check_or_create(connection, path)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = OFF")
        # Before a statement changes pages, SQLite notes what they were: with a group of any size, in a file
        # that is made and removed for it. The group is in memory anyway, and so may this be.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        connection.execute(_CACHE_SIZE)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_reader(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """A connection for reads of a file that `connect_writer` has seen."""
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(_CACHE_SIZE)
    return connection


def connect_checkpointer(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """A connection that only copies the log into the file. As the file's pages must be on the disk before the
    log begins anew, it syncs like a writer."""
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _check_or_create(connection: sqlite3.Connection, path: Path) -> None:
    try:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.DatabaseError as error:
        if error_code(error) == sqlite3.SQLITE_NOTADB:
            raise UnusableFile(f"{path} is not a SQLite file") from error
        raise
    if application == APPLICATION_ID and found > SCHEMA_VERSION:
        raise UnusableFile(
            f"{path} was written by a newer Dray: its schema is {found}, this one knows {SCHEMA_VERSION}"
        )
    if application == APPLICATION_ID and found == SCHEMA_VERSION:
        return
    if application != 0 or tables != 0:
        raise UnusableFile(f"{path} is a SQLite file, but not one of Dray's")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    for statement in _CREATE:
        connection.execute(statement)
    connection.execute("COMMIT")
    _sync_directory(path.parent)
    with suppress(PermissionError):  # the directory itself may be new
        _sync_directory(path.parent.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
