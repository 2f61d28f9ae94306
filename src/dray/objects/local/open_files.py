"""Files and directories kept open: a consumer that catches up does not reopen an object per fetch, and a
directory is made so that it survives a power cut.
"""

from __future__ import annotations

import posixpath
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

from dray.objects.local.disk import Descriptor, Disk


@dataclass(slots=True, eq=False)
class _OpenFile:
    descriptor: Descriptor
    used_at: float
    borrowers: int = 0
    kept: bool = True


class OpenFiles:
    """A bounded set of open descriptors by path, least recently used out first.

    A descriptor is closed only when no read uses it: another file could get its number. The
    lock is never held during a call to the disk.
    """

    def __init__(
        self, disk: Disk, open_one: Callable[[str], Descriptor], capacity: int, now: Callable[[], float]
    ) -> None:
        self._disk = disk
        self._open_one = open_one
        self._capacity = capacity
        self._now = now
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, _OpenFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @contextmanager
    def borrow(self, path: str) -> Iterator[Descriptor]:
        entry = self._take(path)
        if entry is None:
            entry = self._add(path, self._open_one(path))
        try:
            yield entry.descriptor
        finally:
            self._give_back(entry)

    def forget(self, path: str) -> None:
        """Let go of a path whose file was deleted or replaced, or its disk space stays taken."""
        with self._lock:
            entry = self._entries.pop(path, None)
            closing = self._evict([] if entry is None else [entry])
        self._close(closing)

    def forget_unused_since(self, moment: float) -> None:
        with self._lock:
            old = [path for path, entry in self._entries.items() if entry.used_at <= moment]
            closing = self._evict([self._entries.pop(path) for path in old])
        self._close(closing)

    def close(self) -> None:
        with self._lock:
            closing = self._evict(list(self._entries.values()))
            self._entries.clear()
        self._close(closing)

    def _take(self, path: str) -> _OpenFile | None:
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                entry.borrowers += 1
                entry.used_at = self._now()
                self._entries.move_to_end(path)
            return entry

    def _add(self, path: str, descriptor: Descriptor) -> _OpenFile:
        entry = _OpenFile(descriptor, self._now(), borrowers=1)
        with self._lock:
            # Another thread may have opened the same path meanwhile: the later one stays.
            evicted = [self._entries.pop(path)] if path in self._entries else []
            self._entries[path] = entry
            while len(self._entries) > self._capacity:
                evicted.append(self._entries.popitem(last=False)[1])
            closing = self._evict(evicted)
        self._close(closing)
        return entry

    def _give_back(self, entry: _OpenFile) -> None:
        with self._lock:
            entry.borrowers -= 1
            closing = [entry.descriptor] if entry.borrowers == 0 and not entry.kept else []
        self._close(closing)

    def _evict(self, entries: list[_OpenFile]) -> list[Descriptor]:
        for entry in entries:
            entry.kept = False
        return [entry.descriptor for entry in entries if entry.borrowers == 0]

    def _close(self, descriptors: list[Descriptor]) -> None:
        for descriptor in descriptors:
            self._disk.close(descriptor)


# --- directories


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
