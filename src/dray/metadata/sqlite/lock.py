"""One writer at a time, in turn.

SQLite's own lock is polled: a process that writes without pause keeps it for seconds while others
sleep between their tries. So writers queue on a file lock beside the database, which the kernel
hands over and frees when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dray.metadata.contract import Unavailable


class WriterLock:
    """A lock between all stores opened on one path, in this process and in others."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")
        self._file: int | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
        except OSError as error:
            raise Unavailable(f"cannot lock {self._path}: {error.strerror}") from error
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
