"""The local engine on a real disk, and what it does when a disk or another process misbehaves."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.unit.objects.power_cuts import SteppedRuntime
from tests.unit.objects.simulated_disk import SimulatedDisk

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore, ObjectError, ObjectMissing
from dray.objects.contract import Buffer
from dray.objects.local import store as local
from dray.objects.local.disk import SystemDisk


class WatchedDisk(SystemDisk):
    """Counts the calls, and fails those it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.failures: dict[str, int] = {}
        self.spared = 0
        self.writes_at_most: int | None = None

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.failures and self.spared:
                self.spared -= 1
            elif name in self.failures:
                raise OSError(self.failures[name], os.strerror(self.failures[name]))
            return found(*arguments)

        return call

    def write(self, file: int, parts: Sequence[Buffer]) -> int:
        if self.writes_at_most is None:
            return super().write(file, parts)
        return os.write(file, b"".join(parts)[: self.writes_at_most])


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
async def store(tmp_path: Path, runtime: SystemRuntime, disk: WatchedDisk) -> AsyncIterator[LocalStore]:
    store = await LocalStore.open(tmp_path / "some" / "root", runtime, disk)
    yield store
    disk.failures.clear()
    await store.close()


def incoming(root: Path) -> list[Path]:
    return sorted(path for path in (root / ".dray-incoming").rglob("*") if path.is_file())


async def test_more_parts_than_one_call_takes(store: LocalStore, disk: WatchedDisk) -> None:
    parts = [bytes([number % 251]) * (number % 7) for number in range(5000)]
    await store.put("many", parts)
    assert bytes(await store.get("many")) == b"".join(parts)
    assert disk.calls.count("write") == 5


async def test_a_disk_that_takes_a_few_bytes_at_a_time(store: LocalStore, disk: WatchedDisk) -> None:
    disk.writes_at_most = 7
    parts = [b"", b"12345", b"67", b"", b"89abcdefghijklmnopqrstuvwxyz", b""]
    await store.put("piecemeal", parts)
    assert bytes(await store.get("piecemeal")) == b"".join(parts)


async def test_a_disk_that_takes_nothing_is_an_error(store: LocalStore, disk: WatchedDisk) -> None:
    disk.writes_at_most = 0
    with pytest.raises(ObjectError, match="takes no more"):
        await store.put("stuck", [b"x"])


async def test_what_is_stored_is_for_nobody_else_whatever_the_umask(
    tmp_path: Path, runtime: SystemRuntime
) -> None:
    before = os.umask(0)
    try:
        store = await LocalStore.open(tmp_path / "root", runtime)
        await store.put("wal/one", [b"x"])
        await store.close()
    finally:
        os.umask(before)
    made = [tmp_path / "root", *(tmp_path / "root").rglob("*")]
    assert any(path.is_file() for path in made)
    assert [path for path in made if path.stat().st_mode & 0o077] == []


async def test_a_put_makes_few_calls(store: LocalStore, disk: WatchedDisk) -> None:
    await store.put("a/b/first", [b"x"])
    disk.calls.clear()
    await store.put("a/b/second", [b"x"])
    assert disk.calls == ["create", "write", "sync", "close", "rename", "sync"]


async def test_near_ranges_are_read_in_one_call_and_files_stay_open(
    store: LocalStore, disk: WatchedDisk
) -> None:
    data = os.urandom(1_000_000)
    await store.put("data", [data])
    await store.get_ranges("data", [(0, 1)])
    disk.calls.clear()
    ranges = [(4, 1000), (1008, 1000), (2012, 50_000), (900_000, 10)]
    read = await store.get_ranges("data", ranges)
    assert [bytes(buffer) for buffer in read] == [data[start : start + length] for start, length in ranges]
    assert disk.calls == ["status", "read", "read"]


@pytest.mark.parametrize(
    ("call", "code"),
    [("write", errno.ENOSPC), ("sync", errno.EIO), ("create", errno.EMFILE), ("rename", errno.EROFS)],
)
async def test_a_failed_put_says_why_and_leaves_nothing(
    store: LocalStore, disk: WatchedDisk, tmp_path: Path, call: str, code: int
) -> None:
    await store.put("a/before", [b"x"])
    disk.failures[call] = code
    with pytest.raises(ObjectError, match=f"cannot put a/b: {os.strerror(code)}"):
        await store.put("a/b", [b"content"])
    disk.failures.clear()
    assert incoming(tmp_path / "some" / "root") == []
    assert [info.path async for info in store.list("")] == ["a/before"]
    await store.put("a/b", [b"content"])


async def test_a_put_whose_name_could_not_be_synced_is_not_acknowledged(
    store: LocalStore, disk: WatchedDisk, tmp_path: Path
) -> None:
    await store.put("a/before", [b"x"])
    disk.failures["sync"], disk.spared = errno.EIO, 1
    with pytest.raises(ObjectError, match="cannot put a/b: Input/output error"):
        await store.put("a/b", [b"content"])
    assert incoming(tmp_path / "some" / "root") == []


@pytest.mark.parametrize(
    ("call", "ask"),
    [
        ("read", lambda store: store.get("a/b")),
        ("read", lambda store: store.get_ranges("a/b", [(0, 1)])),
        ("status_of", lambda store: store.head("a/b")),
        ("unlink", lambda store: store.delete("a/b")),
        ("sync", lambda store: store.delete("a/b")),
    ],
)
async def test_a_failing_disk_is_an_object_error(
    store: LocalStore, disk: WatchedDisk, call: str, ask: Callable[[LocalStore], Any]
) -> None:
    await store.put("a/b", [b"x"])
    disk.failures[call] = errno.EIO
    with pytest.raises(ObjectError, match="a/b: Input/output error") as caught:
        await ask(store)
    assert not isinstance(caught.value, ObjectMissing)


async def test_a_root_that_cannot_be_is_an_error(tmp_path: Path, runtime: SystemRuntime) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ObjectError, match=r"cannot open the object store .*file/root"):
        await LocalStore.open(tmp_path / "file" / "root", runtime)


async def test_an_object_is_no_folder_and_a_folder_no_object(store: LocalStore) -> None:
    await store.put("a/b", [b"x"])
    for path in ("a", "a/b/c"):
        with pytest.raises(ObjectError, match=f"cannot put {path}: "):
            await store.put(path, [b"y"])
        with pytest.raises(ObjectMissing):
            await store.get(path)
        with pytest.raises(ObjectMissing):
            await store.head(path)
    await store.delete("a/b/c")
    await store.put("x" * 255, [b"the longest name"])


async def test_what_a_crash_left_is_swept_but_not_what_another_writes(
    store: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    root = tmp_path / "some" / "root"
    dead = root / ".dray-incoming" / "0123456789abcdef0123456789abcdef"
    dead.mkdir()
    (dead / "7").write_bytes(b"half an obj")
    (mine,) = (path for path in (root / ".dray-incoming").iterdir() if path != dead)
    (mine / "99").write_bytes(b"being written")
    assert [info async for info in store.list("")] == []

    other = await LocalStore.open(root, runtime)
    assert not dead.exists()
    assert incoming(root) == [mine / "99"]
    await other.put("from/other", [b"x"])
    assert bytes(await store.get("from/other")) == b"x"
    await other.close()
    (mine / "99").unlink()


async def test_a_directory_taken_for_abandoned_is_claimed_anew() -> None:
    disk = SimulatedDisk()

    def steal(step: str) -> None:
        if step == "lock":
            disk.before_step = lambda step: None
            (name,) = disk.names("/store/.dray-incoming")
            disk.remove_directory(f"/store/.dray-incoming/{name}")

    disk.before_step = steal
    store = await LocalStore.open("/store", SteppedRuntime(Random(1)), disk)
    await store.put("a", [b"x"])
    assert bytes(await store.get("a")) == b"x"
    await store.close()


async def test_objects_deleted_or_replaced_by_another_process(
    store: LocalStore, runtime: SystemRuntime, tmp_path: Path
) -> None:
    other = await LocalStore.open(tmp_path / "some" / "root", runtime)
    for path in ("a", "b"):
        await store.put(path, [b"old"])
        assert bytes(await store.get(path)) == b"old"
    await other.put("a", [b"newer"])
    await other.delete("b")
    assert bytes(await store.get("a")) == b"newer"
    with pytest.raises(ObjectMissing):
        await store.get("b")
    await other.close()


async def test_a_folder_removed_behind_our_back_is_made_again(store: LocalStore, tmp_path: Path) -> None:
    await store.put("a/b/c", [b"x"])
    folder = tmp_path / "some" / "root" / "a"
    (folder / "b" / "c").unlink()
    (folder / "b").rmdir()
    folder.rmdir()
    await store.put("a/b/d", [b"y"])
    assert [info.path async for info in store.list("a")] == ["a/b/d"]


async def test_few_files_stay_open_and_none_when_idle(
    tmp_path: Path, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_OPEN_OBJECTS", 4)
    monkeypatch.setattr(local, "_IDLE_SECONDS", 0.01)
    store = await LocalStore.open(tmp_path, runtime)
    for number in range(10):
        await store.put(str(number), [b"x"])

    # More at once than may stay open: none is closed under its reader.
    read = await asyncio.gather(*(store.get(str(number)) for number in range(10) for _ in range(5)))
    assert all(bytes(buffer) == b"x" for buffer in read)
    closed = asyncio.Event()
    forget = store._files.forget_unused_since

    def watched(moment: float) -> None:
        forget(moment)
        if not len(store._files):
            asyncio.run_coroutine_threadsafe(_set(closed), loop)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(store._files, "forget_unused_since", watched)
    assert len(store._files) <= 4
    await asyncio.wait_for(closed.wait(), 60)
    assert len(store._files) == 0
    await store.close()


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_closing_waits_for_a_put_that_nobody_waits_for(
    tmp_path: Path, runtime: SystemRuntime, disk: WatchedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await LocalStore.open(tmp_path, runtime, disk)
    started, go_on = threading.Event(), threading.Event()

    def slow_write(file: int, parts: Sequence[Buffer]) -> int:
        started.set()
        assert go_on.wait(10)
        return SystemDisk.write(disk, file, parts)

    monkeypatch.setattr(disk, "write", slow_write, raising=False)
    put = asyncio.create_task(store.put("late", [b"content"]))
    await runtime.in_thread(started.wait, 10)
    put.cancel()
    with pytest.raises(asyncio.CancelledError):
        await put
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert (tmp_path / "late").read_bytes() == b"content"
    with pytest.raises(ObjectError, match="closed"):
        await store.get("late")


async def test_closing_sweeps_what_could_not_be_swept_before(
    tmp_path: Path, runtime: SystemRuntime, disk: WatchedDisk
) -> None:
    store = await LocalStore.open(tmp_path, runtime, disk)
    disk.failures = {"write": errno.EIO, "unlink": errno.EIO}
    with pytest.raises(ObjectError):
        await store.put("a", [b"x"])
    assert len(incoming(tmp_path)) == 1
    disk.failures.clear()
    await store.close()
    assert list((tmp_path / ".dray-incoming").iterdir()) == []


async def test_closing_leaves_no_descriptors(tmp_path: Path, runtime: SystemRuntime) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = await LocalStore.open(tmp_path, runtime)
    for path in ("a/b", "a/c", "d"):
        await store.put(path, [b"x"])
        await store.get(path)
        await store.delete(path)
        with pytest.raises(ObjectMissing):
            await store.get(path)
    await store.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert list((tmp_path / ".dray-incoming").iterdir()) == []
