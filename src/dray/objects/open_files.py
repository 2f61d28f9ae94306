"""Files kept open between reads, so that a consumer catching up does not reopen an object per fetch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dray.objects.disk import Descriptor, Disk


@dataclass(slots=True, eq=False)
class _Entry:
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
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

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

    def _take(self, path: str) -> _Entry | None:
        with self._lock:
            entry = self._entries.get(path)
            if entry is not None:
                entry.borrowers += 1
                entry.used_at = self._now()
                self._entries.move_to_end(path)
            return entry

    def _add(self, path: str, descriptor: Descriptor) -> _Entry:
        entry = _Entry(descriptor, self._now(), borrowers=1)
        with self._lock:
            # Another thread may have opened the same path meanwhile: the later one stays.
            evicted = [self._entries.pop(path)] if path in self._entries else []
            self._entries[path] = entry
            while len(self._entries) > self._capacity:
                evicted.append(self._entries.popitem(last=False)[1])
            closing = self._evict(evicted)
        self._close(closing)
        return entry

    def _give_back(self, entry: _Entry) -> None:
        with self._lock:
            entry.borrowers -= 1
            closing = [entry.descriptor] if entry.borrowers == 0 and not entry.kept else []
        self._close(closing)

    def _evict(self, entries: list[_Entry]) -> list[Descriptor]:
        for entry in entries:
            entry.kept = False
        return [entry.descriptor for entry in entries if entry.borrowers == 0]

    def _close(self, descriptors: list[Descriptor]) -> None:
        for descriptor in descriptors:
            self._disk.close(descriptor)
