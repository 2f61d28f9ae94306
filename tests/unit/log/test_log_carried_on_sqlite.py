"""Carried appends and packs on SQLite and files: processes that are killed, and machines that lose power."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import bucket_is_ours
from tests.unit.log.harness import QUICK, append, batch_bytes, read, values_in

from dray.base.runtime import SystemRuntime
from dray.log import Log
from dray.log.jobs.machine import JobState
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome
from dray.metadata.sqlite import SqliteStore
from dray.objects.contract import Buffer
from dray.objects.local.store import LocalStore

VALUES = [b"a", b"b", b"c", b"d"]
SETTINGS = replace(
    QUICK,
    carry=replace(EMBEDDED, pack_entries=3),
    pack_look_seconds=1e9,
    orphan_ttl=0.0,
    collect_grace=0.0,
    tail_cache_bytes=0,
    segment_cache_bytes=0,
)


# A process's own: after a power cut there is none of it.
UNSYNCED = shutil.ignore_patterns("*.doorbells", "*-shm")


class Countdown:
    """Kills this process before the call that comes after so many. Only calls that change something count:
    between reads there is nothing new to die of."""

    def __init__(self, calls: int) -> None:
        self.made = 0
        self._calls = calls

    def __call__(self) -> None:
        self.made += 1
        if self.made > self._calls:
            os.kill(os.getpid(), signal.SIGKILL)


class KilledStore(SqliteStore):
    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        self.before()
        outcomes = await super().write(domain, operations)
        self.after()
        return outcomes


class KilledObjects(LocalStore):
    before: Callable[[], None] = staticmethod(lambda: None)
    after: Callable[[], None] = staticmethod(lambda: None)

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        self.before()
        await super().put(path, parts)
        self.after()


class Machine:
    """A process's stores on a directory, and a log on them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def __aenter__(self) -> Machine:
        self.runtime = SystemRuntime(threads=4)
        self.store = KilledStore(self._directory / "metadata.sqlite", self.runtime)
        await self.store.open()
        opened = await KilledObjects.open(self._directory / "objects", self.runtime)
        self.objects = cast(KilledObjects, opened)
        self.log = Log(self.store, self.objects, self.runtime, 1, SETTINGS, may_delete=bucket_is_ours)
        self.log.carry(True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.log.stop()
        await self.objects.close()
        await self.store.close()
        self.runtime.close()

    async def pack(self) -> None:
        for rounds in self.log._packing:
            await rounds.run()

    async def values(self, stream: int) -> list[bytes]:
        found: list[tuple[int, bytes]] = []
        while more := values_in(await read(self.log, stream, len(found))):
            found += [each for each in more if each[0] >= len(found)]
        assert [offset for offset, _ in found] == list(range(len(found)))
        return [value for _, value in found]

    async def all_keys(self, prefix: str) -> list[str]:
        return [each.key for each in await self.store.scan(0, prefix, keys.prefix_end(prefix))]


def in_another_process(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a fork, which has no threads of ours; its exit status, or minus the signal that killed it."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            asyncio.run(work())
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


async def fill(directory: Path, streams: int) -> None:
    async with Machine(directory) as machine:
        for stream in await machine.log.create_streams(streams):
            for sequence, value in enumerate(VALUES):
                await append(machine.log, stream, batch_bytes([value], producer=(9, 0, sequence)))


async def pack_until_killed(directory: Path, calls: int) -> None:
    async with Machine(directory) as machine:
        machine.store.before = machine.objects.before = Countdown(calls)
        machine.log.carry(False)  # so that heads are packed too, and every hint is followed
        await machine.pack()
        machine.store.before = machine.objects.before = lambda: None


async def check_and_finish(directory: Path) -> None:
    """By a process that comes anew: all is read, it ends what was begun, and nothing is left over."""
    async with Machine(directory) as machine:
        for stream in range(2):
            assert await machine.values(stream) == VALUES
        machine.log.carry(False)
        for _ in range(3):
            await machine.pack()
            await machine.log.collector.run()
        streams = StreamStore(machine.store, 1, SETTINGS.producer_expiry_ms)
        held = set()
        for stream in range(2):
            assert await machine.values(stream) == VALUES
            assert (await streams.job(stream)).value.state is JobState.DONE
            view = await streams.view(stream)
            assert view is not None
            assert not any(entry.value.is_carried for entry in view.entries)
            held |= {keys.reference(entry.value.object_id, stream) for entry in view.entries}
        assert set(await machine.all_keys(keys.REFERENCES)) == held
        assert await machine.all_keys(keys.STAGING) == []
        stored = [info.path async for info in machine.objects.list("wal/")]
        assert len(stored) == len(await machine.all_keys(keys.OBJECTS)) == len({key[:-20] for key in held})


def test_a_process_may_be_killed_between_any_two_steps_of_a_pack(tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.mkdir()
    assert in_another_process(partial(fill, filled, 2)) == 0
    calls, status = 0, -signal.SIGKILL
    while status:
        directory = tmp_path / f"killed-{calls}"
        shutil.copytree(filled, directory, ignore=shutil.ignore_patterns("*.doorbells"))
        status = in_another_process(partial(pack_until_killed, directory, calls))
        assert status in (0, -signal.SIGKILL)
        assert in_another_process(partial(check_and_finish, directory)) == 0, f"killed after {calls} calls"
        calls += 1
    assert calls > 10, "too few steps to be a pack"


# --- power


async def append_and_note(directory: Path, sizes: list[tuple[int, int]]) -> None:
    """After each answer: how many records were acknowledged, and how long SQLite's log is."""
    log_file = directory / "metadata.sqlite-wal"
    async with Machine(directory) as machine:
        [stream] = await machine.log.create_streams(1)
        for number in range(6):
            await append(machine.log, stream, batch_bytes([b"%d" % number]))
            sizes.append((number + 1, log_file.stat().st_size))
        shutil.copytree(directory, directory.parent / "at the end", dirs_exist_ok=True)


async def check_after_power_came_back(directory: Path, acknowledged: int) -> None:
    async with Machine(directory) as machine:
        found = await machine.values(0)
        assert found == [b"%d" % number for number in range(len(found))], "a prefix, in order"
        assert len(found) >= acknowledged
        await append(machine.log, 0, batch_bytes([b"later"]))
        assert (await machine.values(0))[-1] == b"later"


def test_what_was_acknowledged_is_there_after_a_power_cut(tmp_path: Path) -> None:
    """SQLite syncs its log before it answers (`synchronous=FULL`, held by a test of its own). So what the log
    had at an answer is on the disk; of what came later, anything: here none, some bytes, some garbage."""
    running = tmp_path / "running"
    running.mkdir()
    sizes: list[tuple[int, int]] = []
    asyncio.run(append_and_note(running, sizes))
    assert len({size for _, size in sizes}) == len(sizes), "every answer has written to the log"
    for acknowledged, size in sizes:
        for number, rest in enumerate((b"", None, bytes(4096 + 24))):
            directory = tmp_path / f"cut-{acknowledged}-{number}"
            shutil.copytree(tmp_path / "at the end", directory, ignore=UNSYNCED)
            log_file = directory / "metadata.sqlite-wal"
            whole = log_file.read_bytes()
            log_file.write_bytes(whole[:size] + (whole[size : size + 1000] if rest is None else rest))
            asyncio.run(check_after_power_came_back(directory, acknowledged))


async def pack_and_copy(directory: Path, copies: Path) -> None:
    """After each answer, what is on the disk by then: both stores sync before they answer."""

    def copy() -> None:
        shutil.copytree(directory, copies / f"{len(list(copies.iterdir())):03}", ignore=UNSYNCED)

    async with Machine(directory) as machine:
        machine.log.carry(False)
        machine.store.after = machine.objects.after = copy
        await machine.pack()
        machine.store.after = machine.objects.after = lambda: None


def test_a_pack_is_ended_after_a_power_cut(tmp_path: Path) -> None:
    """At each answer of either store. Of what SQLite wrote to its log after that, a part may be there."""
    filled, copies = tmp_path / "filled", tmp_path / "copies"
    filled.mkdir()
    copies.mkdir()
    assert in_another_process(partial(fill, filled, 2)) == 0
    assert in_another_process(partial(pack_and_copy, filled, copies)) == 0
    taken = sorted(copies.iterdir())
    assert len(taken) > 10, "too few steps to be a pack"
    log_files = [each / "metadata.sqlite-wal" for each in taken]
    logs = [each.read_bytes() for each in log_files]
    for place, directory in enumerate(taken):
        if place % 2 and place + 1 < len(taken):
            size = len(logs[place])
            log_files[place].write_bytes(logs[place] + logs[place + 1][size : size + 1000])
        assert in_another_process(partial(check_and_finish, directory)) == 0, f"cut after {place} answers"
