"""The directory in which the local engine keeps objects that are not finished yet.

Every process has a directory of its own under the root's `.dray-incoming`, locked for as long as the
process lives. So the remains of a crash differ from objects that another broker on the same root is writing
right now: a directory that can be locked has no owner, and is swept when a store is opened.
"""

from __future__ import annotations

import itertools
import posixpath
import threading
from collections.abc import Sequence
from contextlib import suppress

from dray.base.runtime import Runtime
from dray.objects.contract import RESERVED, Buffer, ObjectError
from dray.objects.local.disk import Descriptor, Disk, write_all


class IncomingFile:
    def __init__(self, disk: Disk, path: str, descriptor: Descriptor) -> None:
        self._disk = disk
        self._path = path
        self._numbers = itertools.count()
        self.descriptor = descriptor

    @classmethod
    def open(cls, disk: Disk, root: str, runtime: Runtime) -> IncomingFile:
        parent = posixpath.join(root, RESERVED)
        with suppress(FileExistsError):
            disk.make_directory(parent)
        incoming = cls._claim(disk, parent, runtime)
        _sweep(disk, parent, but=incoming._path)
        return incoming

    @classmethod
    def _claim(cls, disk: Disk, parent: str, runtime: Runtime) -> IncomingFile:
        while True:
            path = posixpath.join(parent, runtime.uuid().hex)
            try:
                disk.make_directory(path)
            except FileExistsError:
                continue
            # Between the making and the locking, another process may have taken it for abandoned.
            try:
                descriptor = disk.open_directory(path)
            except FileNotFoundError:
                continue
            if disk.lock(descriptor) and _is_still(disk, path, descriptor):
                return cls(disk, path, descriptor)
            disk.close(descriptor)

    def new_name(self) -> str:
        return str(next(self._numbers))

    def close(self) -> None:
        try:
            _empty(self._disk, self._path, self.descriptor)
        finally:
            self._disk.close(self.descriptor)


def _is_still(disk: Disk, path: str, descriptor: Descriptor) -> bool:
    try:
        return disk.status_of(path).identity == disk.status(descriptor).identity
    except FileNotFoundError:
        return False


def _sweep(disk: Disk, parent: str, but: str) -> None:
    for name in disk.names(parent):
        path = posixpath.join(parent, name)
        if path == but:
            continue
        try:
            descriptor = disk.open_directory(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        try:
            if disk.lock(descriptor):
                _empty(disk, path, descriptor)
        finally:
            disk.close(descriptor)


def _empty(disk: Disk, path: str, descriptor: Descriptor) -> None:
    # Its owner may have closed it, or another sweeper been faster.
    with suppress(FileNotFoundError):
        for name in disk.names(path):
            disk.unlink(descriptor, name)
        disk.remove_directory(path)


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
        """All bytes that were added are on the disk."""
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
