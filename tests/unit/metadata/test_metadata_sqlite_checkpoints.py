"""Checkpoints: SQLite's log is copied into the file beside the commits, and begins anew."""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Put
from dray.metadata.sqlite import SqliteSettings, SqliteStore
from dray.metadata.sqlite import checkpoints as checkpoints_module
from dray.metadata.sqlite.checkpoints import Checkpointer, CheckpointJob
from dray.metadata.sqlite.lock import WriterLock
from dray.metadata.sqlite.schema import connect_checkpointer, connect_reader

PATIENCE = 60.0
PAGES = 60
FREQUENT = SqliteSettings(checkpoint_pages=PAGES, busy_timeout=0.05)
FRAME_BYTES = 4096 + 24


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime(threads=1)
    yield runtime
    runtime.close()


@asynccontextmanager
async def opened(path: Path, runtime: SystemRuntime, settings: SqliteSettings) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, runtime, settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def log_pages(path: Path) -> float:
    """The most pages that the log ever had: its file does not shrink."""
    return path.with_name(path.name + "-wal").stat().st_size / FRAME_BYTES


class Copies:
    """Every pass of a checkpoint: on which thread, and whether the writers' lock was held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.threads: list[str] = []
        self.locked: list[bool] = []
        self.between: list[Callable[[], None]] = []
        copy = Checkpointer._copy

        def noted(connection: sqlite3.Connection) -> bool:
            self.threads.append(threading.current_thread().name)
            self.locked.append(is_locked(path))
            copied = copy(connection)
            if self.between:
                self.between.pop(0)()
            return copied

        monkeypatch.setattr(Checkpointer, "_copy", staticmethod(noted))


def is_locked(path: Path) -> bool:
    with path.with_name(path.name + ".lock").open("rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def test_the_log_stays_short_though_no_commit_copies_it(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = Copies(monkeypatch, path)
    async with opened(path, runtime, FREQUENT) as store:
        for number in range(200):
            await store.write(0, [Put(f"/{number}", b"x")])
            if number % 10 == 0:
                assert await store._checkpointer.submit(CheckpointJob())
        assert log_pages(path) < 3 * PAGES
    assert set(copies.threads) == {"dray-metadata-checkpointer"}


async def test_a_checkpoint_is_made_after_so_many_pages(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    checkpointed = asyncio.Event()
    loop = asyncio.get_running_loop()
    run = Checkpointer.run

    def noted(self: Checkpointer, jobs: Any) -> None:
        run(self, jobs)
        made.append(len(jobs))
        loop.call_soon_threadsafe(checkpointed.set)

    monkeypatch.setattr(Checkpointer, "run", noted)
    async with opened(path, runtime, FREQUENT) as store:
        await store.write(0, [Put("/a", b"x")])
        assert made == []
        for number in range(PAGES):
            await store.write(0, [Put(f"/{number}", b"x")])
        async with asyncio.timeout(PATIENCE):
            await checkpointed.wait()
    reading = connect_reader(path, 1.0)
    assert reading.execute("SELECT count(*) FROM records WHERE domain = 0").fetchone() == (PAGES + 1,)
    reading.close()


async def test_the_last_pass_holds_the_lock_and_copies_what_writers_added(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the log begins anew, however busy the writers are."""
    copies = Copies(monkeypatch, path)
    async with opened(path, runtime, SqliteSettings(checkpoint_pages=1 << 20)) as store:
        loop = asyncio.get_running_loop()

        def add() -> None:
            """A commit during each pass that is made beside the writers."""
            asyncio.run_coroutine_threadsafe(store.write(0, [Put("/added", b"x")]), loop).result(PATIENCE)

        copies.between = [add, add]
        for number in range(100):
            await store.write(0, [Put(f"/{number}", b"x")])
        before = log_pages(path)
        assert await store._checkpointer.submit(CheckpointJob())
        assert copies.locked == [False, False, True]
        for number in range(50):
            await store.write(0, [Put(f"/{number}", b"x")])
        assert log_pages(path) <= before + 20, "it began anew"


def test_it_syncs_as_a_writer_does(path: Path, runtime: SystemRuntime) -> None:
    """Else the log would be overwritten while the file's pages are only in memory."""
    sqlite3.connect(path).close()
    connection = connect_checkpointer(path, 1.0)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


async def test_a_checkpoint_that_fails_is_tried_again_and_stops_nothing(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(path, runtime, FREQUENT) as store:
        with monkeypatch.context() as patch:

            def fail(*_: Any) -> sqlite3.Connection:
                raise sqlite3.OperationalError("disk I/O error")

            patch.setattr(checkpoints_module, "connect_checkpointer", fail)
            assert not await store._checkpointer.submit(CheckpointJob())
        await store.write(0, [Put("/a", b"x")])
        assert await store._checkpointer.submit(CheckpointJob())


async def test_where_no_checkpoint_comes_the_writer_makes_one(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(checkpoints_module, "connect_checkpointer", fail)
    async with opened(path, runtime, FREQUENT) as store:
        for number in range(400):
            await store.write(0, [Put(f"/{number}", b"x")])
        assert 2 * PAGES < log_pages(path) < 5 * PAGES, "it makes one, but not before its time"


async def test_a_lock_that_is_held_for_long_holds_up_only_the_checkpoint(
    path: Path, runtime: SystemRuntime
) -> None:
    async with opened(path, runtime, FREQUENT) as store:
        lock = WriterLock(path)
        with lock.held():
            checkpoint = store._checkpointer.submit(CheckpointJob())
            assert await store.get(0, "/a") is None
            assert not checkpoint.done()
        assert await checkpoint
        lock.close()
