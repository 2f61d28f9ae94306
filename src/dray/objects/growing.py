"""A file in the making, to which pieces are added as they come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress

from dray.objects.contract import Buffer, ObjectError
from dray.objects.disk import Disk
from dray.objects.incoming import IncomingFile
from dray.objects.scatter import write_all


class GrowingFile:
    """Its calls run in threads, and a waiting task may be cancelled while its call goes on: the lock keeps
    the descriptor from being closed, and its number from being used again, under a write."""

    def __init__(self, disk: Disk, incoming: IncomingFile) -> None:
        self._disk = disk
        self._directory = incoming.descriptor
        self.name = incoming.new_name()
        self._lock = threading.Lock()
        self._file: int | None = disk.create(incoming.descriptor, self.name)

    def add(self, parts: Sequence[Buffer]) -> None:
        with self._lock:
            if self._file is None:
                raise ObjectError("the upload was given up")
            write_all(self._disk, self._file, parts)

    def finish(self) -> None:
        """What was added is on the disk."""
        with self._lock:
            if self._file is None:
                raise ObjectError("the upload was given up")
            file, self._file = self._file, None
            try:
                self._disk.sync(file)
            finally:
                self._disk.close(file)

    def discard(self) -> None:
        """Whatever became of it: it may have its final name already."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                self._disk.close(file)
            with suppress(FileNotFoundError):
                self._disk.unlink(self._directory, self.name)
