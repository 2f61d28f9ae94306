"""An object that is written as it comes leaves nothing behind when it never came to its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore, ObjectError
from dray.objects.local.disk import SystemDisk
from dray.objects.local.incoming import GrowingFile, IncomingFile


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    made = SystemRuntime(threads=4)
    yield made
    made.close()


async def test_one_that_is_cancelled_leaves_nothing(tmp_path: Path, runtime: SystemRuntime) -> None:
    store = await LocalStore.open(tmp_path / "objects", runtime)
    begun = asyncio.Event()

    async def coming() -> AsyncIterator[list[bytes]]:
        yield [b"some"]
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.ensure_future(store.put_stream("a/b", coming()))
    await asyncio.wait_for(begun.wait(), 60)
    assert len(files(tmp_path)) == 1
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert files(tmp_path) == []
    await store.close()


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


async def test_a_piece_that_comes_after_the_end_is_refused(tmp_path: Path, runtime: SystemRuntime) -> None:
    """A thread that was slow must not write to a descriptor that is somebody else's by now."""
    disk = SystemDisk()
    incoming = IncomingFile.open(disk, str(tmp_path), runtime)
    for end in (GrowingFile.discard, GrowingFile.finish):
        growing = GrowingFile(disk, incoming)
        growing.add([b"x"])
        end(growing)
        with pytest.raises(ObjectError, match="given up"):
            growing.add([b"y"])
    incoming.close()
