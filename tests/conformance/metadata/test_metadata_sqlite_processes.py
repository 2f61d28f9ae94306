"""Several processes on one SQLite file: no lost update, fair turns, and a kill at any moment."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore

PROGRAM = Path(__file__).with_name("sqlite_process.py")
PATIENCE = 60.0


class Helper:
    """A process running `sqlite_process.py`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, role: str, path: Path, *arguments: object) -> Helper:
        pipe = asyncio.subprocess.PIPE
        words = [str(argument) for argument in arguments]
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, str(PROGRAM), role, str(path), *words, stdin=pipe, stdout=pipe
            )
        )

    async def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        await self._process.stdin.drain()

    async def hears(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


class Helpers:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._started: list[Helper] = []

    async def start(self, role: str, *arguments: object) -> Helper:
        helper = await Helper.start(role, self._path, *arguments)
        self._started.append(helper)
        return helper

    async def ready(self, *helpers: Helper) -> None:
        """Start all of them at the same moment."""
        for helper in helpers:
            assert await helper.hears() == {"ready": True}
        for helper in helpers:
            await helper.begin()

    async def stop(self) -> None:
        for helper in self._started:
            await helper.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


@pytest.fixture
async def helpers(path: Path) -> AsyncIterator[Helpers]:
    helpers = Helpers(path)
    yield helpers
    await helpers.stop()


@pytest.fixture
async def own(path: Path, runtime: SystemRuntime) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, runtime)
    await store.open()
    yield store
    await store.close()


async def test_processes_lose_no_increment(helpers: Helpers, path: Path, runtime: SystemRuntime) -> None:
    """They also all create the file at once, and the last one to leave tidies up."""
    running = [await helpers.start("increment", 100) for _ in range(3)]
    await helpers.ready(*running)
    for helper in running:
        assert await helper.ends() == 0
    store = SqliteStore(path, runtime)
    await store.open()
    record = await store.get(0, "/counter")
    await store.close()
    assert record is not None
    assert record.value == b"300"


async def test_a_killed_writer_leaves_whole_writes_and_a_free_lock(
    helpers: Helpers, own: SqliteStore, path: Path
) -> None:
    for attempt in range(3):
        victim = await helpers.start("append", f"victim-{attempt}")
        await helpers.ready(victim)
        acknowledged = 0
        while acknowledged < 8 * (attempt + 2):
            heard = await victim.hears()
            assert heard is not None
            acknowledged = heard["acknowledged"]
        await victim.kill()
        while (heard := await victim.hears()) is not None:  # what it said before it died
            acknowledged = heard["acknowledged"]
        async with asyncio.timeout(60):
            await own.write(0, [Put("/alive", b"")])
        prefix = f"/victim-{attempt}/"
        keys = {record.key for record in await own.scan(0, prefix, prefix + "\x7f")}
        for number in range(1, acknowledged + 1):
            assert f"{prefix}{number:010d}/left" in keys
        for key in keys:
            stem, _, side = key.rpartition("/")
            assert f"{stem}/{'right' if side == 'left' else 'left'}" in keys
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def crowded(helpers: Helpers, most: int) -> list[dict[str, Any]]:
    running = [await helpers.start("crowd", f"writer-{number}", most) for number in range(4)]
    await helpers.ready(*running)
    heard = [result for helper in running if (result := await helper.hears()) is not None]
    assert len(heard) == 4
    return heard


@pytest.mark.soak
async def test_writers_take_fair_turns(helpers: Helpers) -> None:
    """On a machine that does little else: on a busy one a process may not run at all for a while. `make test`
    sees that writers queue on the kernel's lock (`unit/metadata/test_metadata_sqlite_failures.py`)."""
    counts = [result["count"] for result in await crowded(helpers, 600)]
    assert min(counts) > max(counts) / 4


@pytest.mark.soak
async def test_no_writer_waits_long_for_its_turn(helpers: Helpers) -> None:
    """A generous bound; SQLite's own lock starves writers for seconds."""
    assert max(result["slowest"] for result in await crowded(helpers, 2000)) < 0.75


async def test_a_watch_hears_other_processes(helpers: Helpers, own: SqliteStore) -> None:
    listener = await helpers.start("watch")
    await helpers.ready(listener)
    assert await listener.hears() == {"key": None}
    for key in ("/a", "/b", "/a"):
        await own.write(0, [Put(key, b"")])
        assert await listener.hears() == {"key": key}


async def test_the_session_of_a_killed_process_runs_out(helpers: Helpers, own: SqliteStore) -> None:
    holder = await helpers.start("hold", 1.0)
    await helpers.ready(holder)
    assert await holder.hears() == {"held": True}
    watch = own.watch(0)
    await anext(watch)
    [refused] = await own.write(0, [Put("/lease", b"", ABSENT)])
    assert not refused.applied
    await holder.kill()
    async with asyncio.timeout(60):
        assert (await anext(watch)).key == "/lease"
    [taken] = await own.write(0, [Put("/lease", b"", ABSENT)])
    assert taken.applied


async def test_a_disk_that_is_full_loses_nothing_that_was_acknowledged(helpers: Helpers) -> None:
    helper = await helpers.start("fill", 400_000)
    await helpers.ready(helper)
    heard = await helper.hears()
    assert heard is not None
    assert heard["failure"] in ("Unavailable", "Ambiguous")
    assert heard["acknowledged"] > 0
    expected = {f"/{number}" for number in range(heard["acknowledged"])} | {"/after"}
    unclear = {f"/{heard['acknowledged']}"} if heard["failure"] == "Ambiguous" else set()
    assert expected <= set(heard["keys"]) <= expected | unclear
