"""The ballast: given up on a full disk, held until there is room, and never a trap."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs
from tests.unit.log.harness import World, append, batch_bytes

from dray.base.runtime import SystemRuntime
from dray.daemons.broker.process import ballast_of
from dray.daemons.config import FlagValue, load
from dray.daemons.recovery.ballast import FULL, LOW_BYTES, NAME, Ballast
from dray.log.types import LogUnavailable

SIZE = 1 << 20


@dataclass
class Disk:
    """`used` by others; the ballast takes its own."""

    directory: Path
    total: int = 64 << 20
    used: int = 0
    said: list[str | None] = field(default_factory=list)

    def free(self, directory: Path) -> int:
        assert directory == self.directory
        held = self.directory / NAME
        return self.total - self.used - (held.stat().st_blocks * 512 if held.exists() else 0)

    def ballast(self, runtime: SystemRuntime) -> Ballast:
        return Ballast(self.directory, SIZE, runtime, self.said.append, self.free)


async def test_it_is_given_up_on_a_full_disk_and_taken_back_once_there_is_room_twice(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    disk = Disk(tmp_path)
    ballast = disk.ballast(runtime)
    file = tmp_path / NAME
    try:
        with capture_logs() as lines:
            await ballast.look()
            assert file.stat().st_blocks * 512 >= SIZE, "it has its blocks, and is no hole"
            disk.used = disk.total - SIZE
            for _ in range(2):
                await ballast.look()
            assert file.stat().st_size == 0
            assert disk.free(tmp_path) == SIZE, "for what deletes"
            later = disk.ballast(runtime)  # a broker that starts on a full disk
            await later.look()
            disk.used = disk.total - SIZE - LOW_BYTES
            await ballast.look()
            disk.used -= SIZE
            await ballast.look()
        assert disk.said == [None, FULL, FULL, FULL, FULL, None]
        assert file.stat().st_size == SIZE
        assert [line["log_level"] for line in lines] == ["error", "error", "info"], "once, not every second"
    finally:
        runtime.close()


async def test_a_small_disk_has_none_and_one_without_it_holds_nothing(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    disk = Disk(tmp_path, total=4 * SIZE)
    try:
        ballast = disk.ballast(runtime)
        await ballast.look()
        disk.used = disk.total
        await ballast.look()
        assert not (tmp_path / NAME).exists()
        assert disk.said == [None, None]
        (tmp_path / NAME).touch()
        await ballast.look()
        (tmp_path / NAME).unlink()  # whoever wants to go on without it
        await ballast.look()
        assert disk.said[-2:] == [FULL, None]
    finally:
        runtime.close()


async def test_what_is_held_is_not_appended_and_deletions_go_on() -> None:
    world = World()
    log = world.log()
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a", b"b"]))
    log.held = FULL
    with pytest.raises(LogUnavailable, match="the disk is full"):
        await append(log, stream, batch_bytes([b"c"]))
    assert await log.delete_records(stream, 1) == 1
    log.held = None
    assert (await append(log, stream, batch_bytes([b"c"]))).base_offset == 2


def test_a_broker_on_sqlite_has_one_of_the_size_that_is_set(tmp_path: Path) -> None:
    def made(**flags: str) -> Ballast | None:
        given = {"data_dir": str(tmp_path), **{name.replace("__", "."): text for name, text in flags.items()}}
        settings = load(None, {}, [FlagValue("--test", key, text) for key, text in given.items()]).settings
        runtime, node = SimpleNamespace(), SimpleNamespace(hold_appends=lambda _: None)
        return ballast_of(settings, cast(Any, runtime), cast(Any, node))

    found = made(metadata__ballast="5MiB")
    assert found is not None
    assert (found._path, found._size) == (tmp_path / NAME, 5 << 20)
    assert made(metadata__path=str(tmp_path / "elsewhere" / "m"))._directory == tmp_path / "elsewhere"  # type: ignore[union-attr]
    assert made(metadata__ballast="0") is None
    assert made(metadata__engine="memory") is None
