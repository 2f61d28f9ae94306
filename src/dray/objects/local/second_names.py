"""Second names of objects that other programs may delete: hard links, which cost nothing and count once.

The files of the log are those of its tables, so whoever may drop a table may delete them, and
`purge_table` of pyiceberg does. So on a file system each has a second name in a folder that no table names.
An object that lost its first name gets it back when it is next read or listed. The log's own delete takes
both.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection
from contextlib import suppress

from dray.base.runtime.logger import get_logger
from dray.objects.contract import KEPT
from dray.objects.local.disk import Descriptor, Disk
from dray.objects.local.open_files import Directories, make_lasting

_log = get_logger(__name__)

_OPEN_DIRECTORIES = 16


class SecondNames:
    """For the objects below `prefix`. All of it runs in threads."""

    def __init__(
        self, disk: Disk, root: str, prefix: str, first: Directories, now: Callable[[], float]
    ) -> None:
        """`first`: the folders of the store."""
        self._disk = disk
        self._store = root
        self._root = posixpath.join(root, KEPT)
        make_lasting(disk, self._root)
        self._prefix = prefix.rstrip("/")
        self._first = first
        self._second = Directories(disk, self._root, _OPEN_DIRECTORIES, now)

    def covers(self, path: str) -> bool:
        """Has the object, or has anything in the folder, a second name?"""
        return path == self._prefix or path.startswith(f"{self._prefix}/")

    def give(self, path: str) -> None:
        """To an object that has its first. One that was replaced gives up that of the file before it."""
        folder, name = posixpath.split(path)
        with self._first.borrow(folder) as first, self._second.borrow(folder) as second:
            with suppress(FileNotFoundError):
                self._disk.unlink(second, name)
            with suppress(FileExistsError):  # of another put of it, which came later than this one
                self._link(first, second, name)

    def put_back(self, path: str) -> bool:
        """Give an object its first name again. False: it has no second one, so the log deleted it."""
        folder, name = posixpath.split(path)
        try:
            self._disk.status_of(posixpath.join(self._root, path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            self._link_back(folder, name)
        except FileExistsError:
            return True
        except FileNotFoundError:
            self._first.forget(folder)  # it was removed while we had it open
            self._link_back(folder, name)
        _log.warning("a file of the log was deleted by another program, and is back", path=path)
        return True

    def _link_back(self, folder: str, name: str) -> None:
        with self._first.borrow(folder) as first, self._second.borrow(folder) as second:
            self._link(second, first, name)

    def drop(self, path: str) -> None:
        folder, name = posixpath.split(path)
        try:
            second = self._disk.open_directory(posixpath.join(self._root, folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            with suppress(FileNotFoundError):
                self._disk.unlink(second, name)
            self._disk.sync(second)
        finally:
            self._disk.close(second)

    def mend(self, folder: str, names: Collection[str]) -> list[str]:
        """Objects of a folder that lost their first name get it back, and those without a second one get
        that. Returns the names that came back, and those of folders that are gone."""
        try:
            known = self._disk.names(posixpath.join(self._root, folder))
        except (FileNotFoundError, NotADirectoryError):
            known = []
        found = [name for name in known if name not in names and self._comes_back(folder, name)]
        for name in set(names) - set(known):
            path = posixpath.join(folder, name)
            with suppress(FileNotFoundError):
                if self._disk.status_of(posixpath.join(self._store, path)).is_file:
                    self.give(path)
        return found

    def _comes_back(self, folder: str, name: str) -> bool:
        path = posixpath.join(folder, name)
        try:
            is_folder = self._disk.status_of(posixpath.join(self._root, path)).is_directory
            return is_folder or self.put_back(path)
        except FileNotFoundError:
            return False  # the log deletes it just now

    def close(self) -> None:
        self._second.close()

    def _link(self, origin: Descriptor, target: Descriptor, name: str) -> None:
        self._disk.link(origin, name, target, name)
        self._disk.sync(target)
