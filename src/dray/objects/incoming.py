"""Where the local engine keeps objects that are not finished yet.

Every process has a directory of its own under the root's `.dray-incoming`, locked for as long as the
process lives. What a crash left behind is therefore told from what another broker on the same root is
writing right now: a directory that can be locked has no owner, and is swept when a store is opened.
"""

from __future__ import annotations

import itertools
import posixpath
from contextlib import suppress

from dray.objects.disk import Descriptor, Disk
from dray.objects.names import RESERVED
from dray.runtime import Runtime


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
