"""Reads of keys whose session has run out, before anybody tidied up."""

from __future__ import annotations

from pathlib import Path
from sqlite3 import connect

import pytest
from tests.unit.metadata.stopped_clock import StoppedClock

from dray.metadata.contract import ABSENT, ANY, Put, StoredValue
from dray.metadata.sqlite import SqliteSettings, SqliteStore
from dray.metadata.sqlite.store import GET, GREATEST, LEAST, SCAN, ReadJob, SqliteReader

NEVER = SqliteSettings(upkeep_interval=3600.0)


@pytest.mark.parametrize(
    "now", [1010.0, 5_000.0, 3.0], ids=["just expired", "long expired", "after a reboot"]
)
async def test_keys_of_a_dead_session_are_not_read(tmp_path: Path, now: float) -> None:
    runtime = StoppedClock(1000.0)
    store = SqliteStore(tmp_path / "metadata.sqlite", runtime, NEVER)
    await store.open()
    session = await store.session(0, 10.0)
    [held] = await store.write(0, [Put("/lease", b"", ANY, session)])
    session.abandon()

    async def seen() -> list[StoredValue | None]:
        scanned: list[StoredValue | None] = [*await store.scan(0, "/", "0")]
        return [
            await store.get(0, "/lease"),
            await store.floor(0, "/z", "/"),
            await store.ceiling(0, "/", "/"),
            *(scanned or [None]),
        ]

    runtime.now = 1009.9
    assert await seen() == [StoredValue("/lease", b"", held.version)] * 4
    runtime.now = now
    assert await seen() == [None] * 4
    [outcome] = await store.write(0, [Put("/lease", b"new", ABSENT)])
    assert outcome.version > held.version
    await store.close()
    runtime.close()


@pytest.mark.parametrize("statement", [GET, GREATEST, LEAST, SCAN])
async def test_a_session_that_is_renewed_while_a_read_begins_is_alive(tmp_path: Path, statement: str) -> None:
    """The reader has read the clock, and its statement does not see the file yet."""
    runtime = StoppedClock(1000.0)
    path = tmp_path / "metadata.sqlite"
    store = SqliteStore(path, runtime, NEVER)
    await store.open()
    session = await store.session(0, 10.0)
    await store.write(0, [Put("/lease", b"", ANY, session)])
    session.abandon()

    def clock() -> float:
        with connect(path) as other:
            other.execute("UPDATE sessions SET expires = 1000.5 + ttl")
        return 1000.0

    reader = SqliteReader(path, clock, 5.0)
    arguments = ["/lease"] if statement == GET else ["/", "/z"]
    job = ReadJob(statement, 0, *arguments, *([-1] if statement == SCAN else []))
    reader.run([job])
    reader.close()
    assert job.error is None
    assert [row[0] for row in job.result or []] == ["/lease"]
    await store.close()
    runtime.close()


async def test_opening_sweeps_what_an_earlier_boot_left(tmp_path: Path) -> None:
    """By chance the clock may later stand where the old session would look alive again."""
    runtime = StoppedClock(1000.0)
    path = tmp_path / "metadata.sqlite"
    store = SqliteStore(path, runtime, NEVER)
    await store.open()
    session = await store.session(0, 10.0)
    await store.write(0, [Put("/lease", b"", ANY, session)])
    await store.abandon()
    runtime.now = 3.0
    store = SqliteStore(path, runtime, NEVER)
    await store.open()
    runtime.now = 1005.0
    assert await store.get(0, "/lease") is None
    await store.close()
    runtime.close()
