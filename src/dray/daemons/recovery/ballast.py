"""A file that only takes room, beside the SQLite file: what a deletion needs on a full disk.

A deletion writes before it frees anything, so that a disk that is full to the last byte cannot be emptied
from within. Then the ballast is given up: its file stays, empty, as the sign for all brokers of the directory
and for those that start later. As long as it is, nothing is appended: producers would fill the room in a
moment. It is taken back once there is room for it twice. To go on without it, remove the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running

_log = structlog.get_logger(__name__)

NAME: Final = "ballast"
LOW_BYTES: Final = 4 << 20
"""A disk with less room is full: the store's own files grow in steps of about a mebibyte."""
LOOK_SECONDS: Final = 1.0

FULL: Final = (
    "the disk is full, and the ballast was given up so that topics and records can be deleted: nothing is "
    "appended until there is room for it again"
)


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


class Ballast:
    def __init__(
        self,
        directory: Path,
        size: int,
        runtime: Runtime,
        hold: Callable[[str | None], None],
        free: Callable[[Path], int] = free_bytes,
    ) -> None:
        """`hold` hears why nothing may be appended, and None once it may."""
        self._path = directory / NAME
        self._directory = directory
        self._size = size
        self._runtime = runtime
        self._hold = hold
        self._free = free
        self._is_given_up = False
        self._task: KeptTask | None = None

    async def start(self) -> None:
        await self.look()
        self._task = keep_running(self._runtime, "look after the ballast", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            await self._runtime.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        is_given_up = await self._runtime.in_thread(self._look)
        if is_given_up is not self._is_given_up:
            self._is_given_up = is_given_up
            if is_given_up:
                remedy = "delete topics or records, or make the disk larger"
                _log.error(FULL, file=str(self._path), remedy=remedy)
            else:
                _log.info("there is room again: records are appended", file=str(self._path))
        self._hold(FULL if is_given_up else None)

    def _look(self) -> bool:
        """Whether it is given up."""
        free = self._free(self._directory)
        try:
            held = self._path.stat().st_size
        except FileNotFoundError:
            if (
                free >= 4 * self._size + LOW_BYTES
            ):  # on a small disk, or one that is nearly full, there is none
                self._take()
            return False
        if held and free < LOW_BYTES:
            os.truncate(self._path, 0)
            return True
        if not held and free >= 2 * self._size + LOW_BYTES:
            self._take()
            return False
        return not held

    def _take(self) -> None:
        """Its blocks, and not only its length: a file with a hole takes no room. One that others have made in
        between is as good."""
        with suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self._size)
            finally:
                os.close(descriptor)
