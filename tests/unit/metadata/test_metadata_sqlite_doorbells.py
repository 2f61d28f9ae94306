"""Doorbells: a process that commits wakes those that watch the same file."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata import keys
from dray.metadata.contract import Change, Delete, DeleteRange, Put
from dray.metadata.sqlite import SqliteSettings, SqliteStore
from dray.metadata.sqlite import changes as doorbells_module
from dray.metadata.sqlite.changes import Doorbell, Neighbours, directory_of

PATIENCE = 60.0
ONLY_RUNG = SqliteSettings(watch_interval=1000.0, quiet_interval=1000.0)
"""By itself, such a store looks at the file once in a quarter of an hour."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Longer than the address of a socket may be."""
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    return directory / "metadata.sqlite"


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime(threads=1)
    yield runtime
    runtime.close()


@pytest.fixture
async def stores(path: Path, runtime: SystemRuntime) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(path, runtime, ONLY_RUNG) for _ in range(2)]
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
def bell(path: Path) -> Iterator[Doorbell]:
    bell = Doorbell(path, 1)
    assert bell.open()
    yield bell
    bell.close()


async def test_a_watcher_is_told_of_every_commit_of_another_process(
    stores: list[SqliteStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks by itself only after a quarter of an hour."""
    monkeypatch.setattr(doorbells_module, "SECONDS_BETWEEN_LISTINGS", 0.0)
    watch = stores[0].watch(0)
    async with asyncio.timeout(PATIENCE):
        assert await anext(watch) == Change(None)
        for number in range(3):
            await stores[1].write(0, [Put(f"/{number}", b"")])
            assert await anext(watch) == Change(f"/{number}")
    await watch.aclose()


async def test_what_is_noted_of_wal_objects_rings_nowhere(stores: list[SqliteStore], bell: Doorbell) -> None:
    """No process waits for that, and every other write is such a one."""
    await stores[0].write(0, [Put(keys.staging(UUID(int=1)), b""), Put(keys.wal_object(UUID(int=1)), b"")])
    assert not bell.wait(0)
    await stores[0].write(0, [Delete(keys.staging(UUID(int=1))), Put(keys.high_watermark(1), b"")])
    assert bell.wait(PATIENCE)
    await stores[0].write(0, [DeleteRange("/", "0")])
    assert bell.wait(PATIENCE), "which keys that were is not known"


async def test_a_watcher_that_no_longer_watches_leaves_no_socket(
    stores: list[SqliteStore], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is woken at once: by itself it would end after a quarter of an hour."""
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    close = Doorbell.close

    def noted(bell: Doorbell) -> None:
        close(bell)
        loop.call_soon_threadsafe(closed.set)

    monkeypatch.setattr(Doorbell, "close", noted)
    watch = stores[0].watch(0)
    await anext(watch)
    assert len(list(directory_of(path).iterdir())) == 1
    await watch.aclose()
    async with asyncio.timeout(PATIENCE):
        await closed.wait()
    assert list(directory_of(path).iterdir()) == []


def test_only_its_own_user_may_ring(bell: Doorbell, path: Path) -> None:
    [place] = directory_of(path).iterdir()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory_of(path).stat().st_mode) == 0o700


def test_it_rings_once_for_all_that_came_before(bell: Doorbell, path: Path) -> None:
    neighbours = Neighbours(path, 2, time.monotonic)
    for _ in range(5):
        neighbours.ring()
    assert bell.wait(PATIENCE)
    assert not bell.wait(0)
    neighbours.close()


def test_one_that_does_not_answer_holds_up_no_writer(bell: Doorbell, path: Path) -> None:
    """Its buffer is full after some hundred datagrams."""
    neighbours = Neighbours(path, 2, time.monotonic)
    for _ in range(10_000):
        neighbours.ring()
    assert bell.wait(0)
    neighbours.close()


def test_no_process_rings_at_its_own_door(bell: Doorbell, path: Path) -> None:
    neighbours = Neighbours(path, 1, time.monotonic)
    neighbours.ring()
    assert not bell.wait(0)
    neighbours.close()


def test_the_socket_of_a_killed_process_is_removed(path: Path) -> None:
    killed = Doorbell(path, 1)
    assert killed.open()
    assert killed._socket is not None
    killed._socket.close()
    neighbours = Neighbours(path, 2, time.monotonic)
    neighbours.ring()
    assert list(directory_of(path).iterdir()) == []
    neighbours.ring()
    neighbours.close()


def test_what_is_no_socket_is_left_alone(bell: Doorbell, path: Path) -> None:
    """Somebody's notes."""
    stranger = directory_of(path) / "0"
    stranger.write_text("mine")
    neighbours = Neighbours(path, 2, time.monotonic)
    neighbours.ring()
    assert bell.wait(PATIENCE)
    assert stranger.read_text() == "mine"
    neighbours.close()


def test_the_number_of_neighbours_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorbells_module, "MOST_NEIGHBOURS", 3)
    bells = [Doorbell(path, number) for number in range(6)]
    assert all(bell.open() for bell in bells)
    neighbours = Neighbours(path, 100, time.monotonic)
    neighbours.ring()
    assert sum(bell.wait(0) for bell in bells) == 3
    neighbours.close()
    for bell in bells:
        bell.close()


def test_new_neighbours_are_looked_for_now_and_then(path: Path) -> None:
    now = 0.0
    neighbours = Neighbours(path, 2, lambda: now)
    neighbours.ring()
    bell = Doorbell(path, 1)
    assert bell.open()
    neighbours.ring()
    assert not bell.wait(0)
    now = doorbells_module.SECONDS_BETWEEN_LISTINGS
    neighbours.ring()
    assert bell.wait(PATIENCE)
    neighbours.close()
    bell.close()


async def test_without_a_socket_a_watcher_looks_by_itself(
    path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr(os, "fchmod", refuse)
    settings = SqliteSettings(watch_interval=0.001, quiet_interval=0.001)
    watching, writing = SqliteStore(path, runtime, settings), SqliteStore(path, runtime, settings)
    await watching.open()
    await writing.open()
    watch = watching.watch(0)
    async with asyncio.timeout(PATIENCE):
        assert await anext(watch) == Change(None)
        await writing.write(0, [Put("/a", b"")])
        assert await anext(watch) == Change("/a")
    await watch.aclose()
    await watching.close()
    await writing.close()


def test_an_interrupted_bell_waits_no_longer(bell: Doorbell) -> None:
    bell.interrupt()
    assert bell.wait(PATIENCE * 1000)


def test_a_datagram_of_any_content_only_rings(bell: Doorbell, path: Path) -> None:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    neighbours = Neighbours(path, 2, time.monotonic)
    neighbours._list()
    assert neighbours._folder is not None
    sender.sendto(b"x" * 1000, doorbells_module._address(neighbours._folder, directory_of(path), "1"))
    assert bell.wait(PATIENCE)
    assert not bell.wait(0)
    sender.close()
    neighbours.close()
