"""The directories of a local root, made so that they survive a power cut."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from dray.objects.disk import Descriptor, Disk
from dray.objects.open_files import OpenFiles

_MOST_KNOWN = 4096


class Directories:
    """Folders below a root, opened for making entries in them.

    A directory is *lasting* once the entry that names it is synced in its parent, and so on up to the
    root. A user of a directory makes it lasting first, even if another made it: the other may not
    have come to its sync yet. Which ones are lasting is remembered, since they stay so: the engine
    never removes a directory.
    """

    def __init__(self, disk: Disk, root: str, capacity: int, now: Callable[[], float]) -> None:
        self._disk = disk
        self._root = root
        self._lasting: set[str] = set()
        self._open = OpenFiles(disk, self._open_lasting, capacity, now)

    def borrow(self, folder: str) -> AbstractContextManager[Descriptor]:
        """The folder, open; it and its parents are made where they are missing."""
        return self._open.borrow(folder)

    def forget(self, folder: str) -> None:
        """The folder was removed by another program: make it again when it is next asked for."""
        self._lasting.clear()
        self._open.forget(folder)

    def close(self) -> None:
        self._open.close()

    def _open_lasting(self, folder: str) -> Descriptor:
        names = folder.split("/") if folder else []
        for depth in range(1, len(names) + 1):
            self._make_lasting("/".join(names[:depth]))
        return self._disk.open_directory(posixpath.join(self._root, folder))

    def _make_lasting(self, folder: str) -> None:
        if folder in self._lasting:
            return
        path = posixpath.join(self._root, folder)
        make_lasting(self._disk, path)
        if len(self._lasting) >= _MOST_KNOWN:
            self._lasting.clear()
        self._lasting.add(folder)


def make_lasting(disk: Disk, path: str) -> None:
    """Make the directory unless it is there, and sync the entry that names it in its parent."""
    with suppress(FileExistsError):
        disk.make_directory(path)
    parent = disk.open_directory(posixpath.dirname(path))
    try:
        disk.sync(parent)
    finally:
        disk.close(parent)


def make_root_lasting(disk: Disk, root: str) -> None:
    """The same for the root and all above it. A directory above that we may not open is none that we
    could have made."""
    path = ""
    for name in root.strip("/").split("/"):
        path = f"{path}/{name}"
        try:
            make_lasting(disk, path)
        except PermissionError:
            disk.status_of(path)
