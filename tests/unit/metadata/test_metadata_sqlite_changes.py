"""Hearing of what other stores wrote, by looking at the file."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from dray.base.runtime.workers import PollingThread
from dray.metadata import keys
from dray.metadata.contract import Change, DeleteRange, Put
from dray.metadata.sqlite import SqliteSettings, SqliteStore
from dray.metadata.sqlite import changes as changes_module
from dray.metadata.sqlite import writer as writer_module
from dray.metadata.sqlite.changes import _Tail
from dray.metadata.sqlite.schema import connect_reader
from dray.metadata.sqlite.writer import CHANGE_KEYS_LENGTH

QUICK = SqliteSettings(watch_interval=0.001)


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime(threads=1)
    yield runtime
    runtime.close()


@pytest.fixture
async def stores(tmp_path: Path, runtime: SystemRuntime) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(tmp_path / "metadata.sqlite", runtime, QUICK) for _ in range(2)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


class TailRecorder:
    """A `_Tail` polled by hand."""

    def __init__(self, store: SqliteStore, identity: int = 0) -> None:
        self._changes: list[Any] = []
        self._tail = _Tail(store._path, identity, 1.0, self._changes.append)

    def changes(self) -> list[Any]:
        self._tail.poll()
        told = list(self._changes)
        self._changes.clear()
        return told

    def steps(self) -> int:
        """Of SQLite's machine, to find what is new."""
        connection, steps = self._tail._connection, 0
        assert connection is not None

        def step() -> None:
            nonlocal steps
            steps += 1

        connection.set_progress_handler(step, 1)
        assert self.changes()
        connection.set_progress_handler(None, 1)
        return steps

    def close(self) -> None:
        self._tail.close()


@pytest.fixture
def tail(stores: list[SqliteStore]) -> Iterator[TailRecorder]:
    tail = TailRecorder(stores[0])
    yield tail
    tail.close()


async def test_it_starts_with_anything_and_then_names_the_keys(
    stores: list[SqliteStore], tail: TailRecorder
) -> None:
    await stores[0].write(0, [Put("/before", b"")])
    assert tail.changes() == [None]
    assert tail.changes() == []
    await stores[0].write(0, [Put("/a", b""), Put("/b", b"")])
    await stores[1].write(1, [Put("/c", b"")])
    assert tail.changes() == [[(0, "/a\n/b"), (1, "/c")]]
    assert tail.changes() == []


async def test_what_is_new_costs_the_same_beside_many_older_changes(stores: list[SqliteStore]) -> None:
    """Asked for both ends of the table at once, SQLite reads all of it, at every commit of others."""
    tail = TailRecorder(stores[0])
    tail.changes()
    steps = []
    for older in (5, 500):
        for number in range(older):
            await stores[1].write(0, [Put(f"/{number}", b"")])
        tail.changes()
        await stores[1].write(0, [Put("/new", b"")])
        steps.append(tail.steps())
    assert steps[1] == steps[0] > 0
    tail.close()


async def test_a_commit_of_a_thousand_partitions_is_one_change(stores: list[SqliteStore]) -> None:
    """Who follows where streams end is told which: "anything" would have all of them read. Who follows all
    keys is told that there were others."""
    tail = TailRecorder(stores[0])
    tail.changes()
    streams = [1 << 40 | number for number in range(1000)]
    marks = [keys.high_watermark(stream) for stream in streams]
    filed = [keys.index_entry(stream, 1 << 30, 1 << 40) for stream in streams]
    ends, everything = stores[0].watch(0, keys.WATCHED), stores[0].watch(0)
    assert [await anext(ends), await anext(everything)] == [Change(None)] * 2
    await stores[1].write(0, [Put(key, b"") for key in filed + marks])
    assert tail.changes() == [[(0, "\n".join(["", *marks]))]]
    async with asyncio.timeout(60):
        assert [(await anext(ends)).key for _ in marks] == marks
        assert await anext(everything) == Change(None)
    for watch in (ends, everything):
        await watch.aclose()
    tail.close()


async def test_it_does_not_repeat_what_its_own_store_wrote(stores: list[SqliteStore]) -> None:
    tail = TailRecorder(stores[0], stores[0]._identity)
    tail.changes()
    await stores[0].write(0, [Put("/mine", b"")])
    assert tail.changes() == []
    await stores[1].write(0, [Put("/theirs", b"")])
    assert tail.changes() == [[(0, "/theirs")]]
    tail.close()


async def test_what_the_list_forgot_may_be_anything(
    stores: list[SqliteStore], tail: TailRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More transactions between two looks than the list holds."""
    monkeypatch.setattr(writer_module, "CHANGES_KEPT", 8)
    monkeypatch.setattr(writer_module, "CHANGES_TRIMMED_EVERY", 4)
    tail.changes()
    for _ in range(20):
        await stores[0].write(0, [Put("/a", b"")])
    assert tail.changes() == [None]
    await stores[0].write(0, [Put("/b", b"")])
    assert tail.changes() == [[(0, "/b")]]


async def test_too_many_keys_to_name(stores: list[SqliteStore], tail: TailRecorder) -> None:
    tail.changes()
    length = CHANGE_KEYS_LENGTH // 100
    await stores[0].write(0, [Put("/" + f"{number:03d}" * (length // 3), b"") for number in range(101)])
    await stores[0].write(0, [DeleteRange("/", "0")])
    assert tail.changes() == [[(0, ""), (0, None)]], "none that says where a stream ends"


async def test_after_a_failure_anything_may_have_changed(
    stores: list[SqliteStore], tail: TailRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail.changes()

    def fail(*_: Any) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(_Tail, "_current_data_version", fail)
        await stores[0].write(0, [Put("/missed", b"")])
        assert tail.changes() == []
    assert tail.changes() == [None]


async def test_nobody_polls_when_nobody_watches(
    stores: list[SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Counted(PollingThread):
        def __init__(self, name: str, *arguments: Any) -> None:
            started.append(name)
            super().__init__(name, *arguments)

        def stop(self) -> None:
            super().stop()
            loop.call_soon(stopped.set)

    monkeypatch.setattr(changes_module, "PollingThread", Counted)
    store = stores[0]
    await store.write(0, [Put("/a", b"")])
    assert started == []
    first, second = store.watch(0), store.watch(1)
    assert await anext(first) == Change(None)
    assert await anext(second) == Change(None)
    assert len(started) == 1
    await first.aclose()
    assert not store._hub.watched(0)
    assert not stopped.is_set()
    await second.aclose()
    await asyncio.wait_for(stopped.wait(), 60)


async def test_the_first_item_comes_once_the_watch_is_in_place(
    stores: list[SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place = threading.Event()
    connect = connect_reader

    def slow(*arguments: Any) -> sqlite3.Connection:
        in_place.wait(10.0)
        return connect(*arguments)

    monkeypatch.setattr(changes_module, "connect_reader", slow)
    watch = stores[0].watch(0)
    first = asyncio.ensure_future(anext(watch))
    await stores[1].write(0, [Put("/early", b"")])
    assert not first.done()
    in_place.set()
    assert await first == Change(None)
    await stores[1].write(0, [Put("/a", b"")])
    async with asyncio.timeout(60):
        assert await anext(watch) == Change("/a")
