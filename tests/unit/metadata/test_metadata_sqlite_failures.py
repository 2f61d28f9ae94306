"""What goes wrong around a SQLite file: which errors mean that nothing happened, which do not."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Ambiguous, Outcome, Put, Unavailable
from dray.metadata.sqlite import SqliteSettings, SqliteStore, UnusableFile
from dray.metadata.sqlite import schema as schema_module
from dray.metadata.sqlite import writer as writer_module
from dray.metadata.sqlite.schema import DamagedFile

HASTY = SqliteSettings(upkeep_interval=0.01, lock_timeout=0.05, busy_timeout=0.05)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime(threads=1)
    yield runtime
    runtime.close()


@asynccontextmanager
async def opened(
    path: Path, runtime: SystemRuntime, settings: SqliteSettings | None = None
) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, runtime, settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


class FailingConnection:
    """A connection on which one statement fails, before it is done or after."""

    def __init__(self, connection: sqlite3.Connection, statement: str, code: int, *, after: bool) -> None:
        self._connection = connection
        self._statement = statement
        self._code = code
        self._after = after

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        failing = statement.strip().startswith(self._statement)
        if failing and not self._after:
            raise self._failure()
        cursor = self._connection.execute(statement, *arguments)
        if failing:
            raise self._failure()
        return cursor

    def close(self) -> None:
        self._connection.close()

    def _failure(self) -> sqlite3.OperationalError:
        error = sqlite3.OperationalError("made to fail")
        error.sqlite_errorcode = self._code
        return error


def fail_on(
    monkeypatch: pytest.MonkeyPatch, statement: str, code: int = sqlite3.SQLITE_IOERR, *, after: bool = False
) -> None:
    def connect(*arguments: Any) -> Any:
        return FailingConnection(schema_module.connect_writer(*arguments), statement, code, after=after)

    monkeypatch.setattr(writer_module, "connect_writer", connect)


async def reconnect(store: SqliteStore) -> None:
    """Make the writer take a new connection, as it does after any error."""
    connection = sqlite3.connect(store._path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        await store.write(0, [Put("/ignored", b"")])
    connection.close()


@pytest.mark.parametrize("statement", ["BEGIN", "SELECT", "INSERT INTO records", "INSERT INTO changes"])
async def test_an_error_before_the_commit_means_that_nothing_happened(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    async with opened(path, runtime, HASTY) as store:
        await reconnect(store)
        with monkeypatch.context() as patch:
            fail_on(patch, statement, after=True)
            with pytest.raises(Unavailable, match="made to fail"):
                await store.write(0, [Put("/a", b"1")])
        assert await store.get(0, "/a") is None
        [outcome] = await store.write(0, [Put("/a", b"2")])
        assert outcome.applied


@pytest.mark.parametrize("after", [False, True])
async def test_an_error_of_the_commit_is_ambiguous(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async with opened(path, runtime, HASTY) as store:
        await reconnect(store)
        with monkeypatch.context() as patch:
            fail_on(patch, "COMMIT", after=after)
            with pytest.raises(Ambiguous):
                await store.write(0, [Put("/a", b"1")])
        assert (await store.get(0, "/a") is not None) == after
        [outcome] = await store.write(0, [Put("/a", b"2")])
        assert outcome.applied


async def test_a_commit_that_finds_the_file_locked_did_not_happen(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, runtime, HASTY) as store:
        await reconnect(store)
        with monkeypatch.context() as patch:
            fail_on(patch, "COMMIT", sqlite3.SQLITE_BUSY)
            with pytest.raises(Unavailable):
                await store.write(0, [Put("/a", b"1")])
        assert await store.get(0, "/a") is None


async def test_everybody_in_a_failed_group_hears_of_it(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, runtime, HASTY) as store:
        await reconnect(store)
        with monkeypatch.context() as patch:
            fail_on(patch, "COMMIT")
            writes = [store.write(0, [Put(f"/{number}", b"")]) for number in range(20)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert all(isinstance(outcome, Ambiguous) for outcome in outcomes)
        assert len({id(outcome) for outcome in outcomes}) == 20


async def test_a_full_file_is_unavailable(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_small(*arguments: Any) -> sqlite3.Connection:
        connection = schema_module.connect_writer(*arguments)
        connection.execute("PRAGMA max_page_count = 20")
        return connection

    monkeypatch.setattr(writer_module, "connect_writer", connect_small)
    async with opened(path, runtime) as store:
        await store.write(0, [Put("/small", b"")])
        with pytest.raises(Unavailable, match="full"):
            await store.write(0, [Put("/large", bytes(1 << 20))])
        assert await store.get(0, "/large") is None
        assert await store.write(0, [Put("/small", b"", 5)]) == [Outcome(False)]


async def test_a_stranger_with_the_lock_makes_writes_unavailable_and_no_reads(
    path: Path, runtime: SystemRuntime
) -> None:
    async with opened(path, runtime, HASTY) as store:
        await store.write(0, [Put("/a", b"")])
        stranger = sqlite3.connect(path, isolation_level=None)
        stranger.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked"):
            await store.write(0, [Put("/b", b"")])
        assert await store.get(0, "/a") is not None
        stranger.close()
        await store.write(0, [Put("/b", b"")])


async def test_a_write_waits_for_its_turn_only_so_long(path: Path, runtime: SystemRuntime) -> None:
    """A writer that hangs (stopped, say) holds the others up; what gave up waiting never happens."""
    async with opened(path, runtime, HASTY) as store:
        with path.with_name(path.name + ".lock").open() as hanging:
            fcntl.flock(hanging, fcntl.LOCK_EX)
            writes = [store.write(0, [Put(f"/{number}", b"")]) for number in range(3)]
            outcomes = await asyncio.gather(*writes, return_exceptions=True)
            assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
            assert await store.scan(0, "/", "0") == []
        await store.write(0, [Put("/after", b"")])
        assert [record.key for record in await store.scan(0, "/", "0")] == ["/after"]


async def test_a_link_to_the_file_leads_to_the_same_lock(
    path: Path, linked: Path, runtime: SystemRuntime
) -> None:
    async with opened(linked, runtime, HASTY) as store:
        with path.with_name(path.name + ".lock").open() as hanging:
            fcntl.flock(hanging, fcntl.LOCK_EX)
            with pytest.raises(Unavailable, match="turn"):
                await store.write(0, [Put("/a", b"")])


async def test_a_store_closes_behind_a_writer_that_hangs(path: Path, runtime: SystemRuntime) -> None:
    store = SqliteStore(path, runtime, HASTY)
    await store.open()
    session = await store.session(0, 60.0)
    with path.with_name(path.name + ".lock").open() as hanging:
        fcntl.flock(hanging, fcntl.LOCK_EX)
        writing = asyncio.ensure_future(store.write(0, [Put("/a", b"")]))
        async with asyncio.timeout(60):
            await store.close()
        assert session.ended
        with pytest.raises(Unavailable):
            await writing


async def test_closing_behind_a_writer_that_hangs_leaves_nobody_waiting(
    path: Path, runtime: SystemRuntime
) -> None:
    settings = SqliteSettings(upkeep_interval=3600.0, lock_timeout=0.05)
    store = SqliteStore(path, runtime, settings)
    await store.open()
    with path.with_name(path.name + ".lock").open() as hanging:
        fcntl.flock(hanging, fcntl.LOCK_EX)
        writing = asyncio.ensure_future(store.write(0, [Put("/a", b"")]))
        await asyncio.sleep(0)
        await store.close()
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await writing


async def test_a_newer_schema_is_refused(path: Path, runtime: SystemRuntime) -> None:
    async with opened(path, runtime) as store:
        await store.write(0, [Put("/a", b"")])
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(UnusableFile, match=r"newer Dray: its schema is 2, this one knows 1$") as caught:
        await SqliteStore(path, runtime).open()
    assert "\n" not in str(caught.value)


@pytest.fixture
def linked(path: Path, tmp_path: Path) -> Path:
    link = tmp_path / "elsewhere" / "link.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    return link


@pytest.fixture
def nonsense(path: Path) -> Path:
    path.write_bytes(b"not a database, but long enough to look at" * 100)
    return path


@pytest.fixture
def theirs(path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.commit()
    connection.close()
    return path


async def test_a_file_that_is_no_database_is_refused(nonsense: Path, runtime: SystemRuntime) -> None:
    with pytest.raises(UnusableFile, match="not a SQLite file"):
        await SqliteStore(nonsense, runtime).open()


async def test_a_database_of_someone_else_is_refused_and_left_alone(
    theirs: Path, runtime: SystemRuntime
) -> None:
    with pytest.raises(UnusableFile, match="not one of Dray's"):
        await SqliteStore(theirs, runtime).open()
    connection = sqlite3.connect(theirs)
    assert connection.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    connection.close()


async def test_a_directory_that_is_missing_is_unavailable(tmp_path: Path, runtime: SystemRuntime) -> None:
    with pytest.raises(Unavailable, match="missing"):
        await SqliteStore(tmp_path / "missing" / "metadata.sqlite", runtime).open()


async def test_an_old_sqlite_is_refused(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 34, 1))
    with pytest.raises(UnusableFile, match=r"SQLite 3\.38"):
        await SqliteStore(path, runtime).open()


async def test_the_file_is_synced_at_every_commit(path: Path, runtime: SystemRuntime) -> None:
    connection = schema_module.connect_writer(path, 1.0, 1000)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()
    connection = schema_module.connect_writer(path, 1.0, 1000)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


async def test_a_bad_read_fails_alone(path: Path, runtime: SystemRuntime) -> None:
    async with opened(path, runtime) as store:
        await store.write(0, [Put("/a", b"")])
        good, bad, later = await asyncio.gather(
            store.get(0, "/a"), store.get(0, "\ud800"), store.get(0, "/a"), return_exceptions=True
        )
        assert isinstance(bad, ValueError)
        assert good == later
        assert not isinstance(good, BaseException)


async def test_what_was_written_is_there_after_opening_again(path: Path, runtime: SystemRuntime) -> None:
    async with opened(path, runtime) as store:
        [first] = await store.write(3, [Put("/a", b"kept")])
    async with opened(path, runtime) as store:
        record = await store.get(3, "/a")
        assert record is not None
        assert (record.value, record.version) == (b"kept", first.version)
        [second] = await store.write(3, [Put("/a", b"new")])
        assert second.version > first.version


async def filled(path: Path, runtime: SystemRuntime) -> None:
    async with opened(path, runtime) as store:
        await store.write(0, [Put(f"/dray/v1/topics/{number:05}", bytes(300)) for number in range(2000)])


def zeroed(path: Path, share: float) -> None:
    """From that share of its pages on."""
    first = max(1, int(path.stat().st_size // 4096 * share)) * 4096
    with path.open("r+b") as file:
        file.seek(first)
        file.write(bytes(path.stat().st_size - first))


async def test_a_damaged_file_is_refused_before_it_serves(path: Path, runtime: SystemRuntime) -> None:
    """A copy that was made while brokers wrote: most of it can be read."""
    await filled(path, runtime)
    zeroed(path, 0.5)
    with pytest.raises(DamagedFile, match="drayd restore"):
        async with opened(path, runtime):
            pass


async def test_an_index_that_does_not_fit_its_table_is_damage(path: Path, runtime: SystemRuntime) -> None:
    """A look at the pages alone does not find it, and a point read would say that a key is not there."""
    await filled(path, runtime)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute(
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = "
        "'records_of_session') WHERE name = 'sqlite_autoindex_records_1'"
    )
    connection.close()
    with pytest.raises(DamagedFile):
        async with opened(path, runtime):
            pass


async def test_damage_that_shows_later_is_told(path: Path, runtime: SystemRuntime) -> None:
    await filled(path, runtime)
    told: list[str] = []
    store = SqliteStore(path, runtime, HASTY, told.append)
    await store.open()
    try:
        zeroed(path, 0.0)
        with pytest.raises(DamagedFile):
            await store.scan(0, "/dray/v1/", "/dray/v2/")
        assert "is damaged" in told[0]
        with pytest.raises(DamagedFile):
            await store.write(0, [Put("/dray/v1/topics/00001", b"2", 1)])
    finally:
        await store.abandon()
