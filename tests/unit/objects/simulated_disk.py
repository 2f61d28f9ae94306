"""A disk in memory that knows what was synced, for cutting the power at any step.

It grants a store nothing that POSIX does not promise. Syncing a file saves its bytes, not its name;
syncing a directory saves its entries, not what they name. Whatever was not synced survives a cut in
any combination: old entries beside new ones, a rename's new name without its old one gone or neither
of the two, and of a file's bytes some and zeros between them. Numbers of closed descriptors are given
out again at once, so using one after its close shows.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from dray.objects.contract import Buffer
from dray.objects.local.disk import FileStatus

BLOCK = 4


class PowerCut(BaseException):
    """Nothing of the machine runs on: not even a handler for all exceptions."""


@dataclass(eq=False)
class File:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    links: int = 0

    def survivor(self, random: Random) -> File:
        data = bytearray(self.data[: random.randint(len(self.synced), len(self.data))])
        for block in range(len(self.synced), len(data), BLOCK):
            if random.random() < 0.5:
                data[block : block + BLOCK] = bytes(len(data[block : block + BLOCK]))
        data[: len(self.synced)] = self.synced
        return File(data, bytes(data))


@dataclass(eq=False)
class Directory:
    entries: dict[str, File | Directory] = field(default_factory=dict)
    synced: dict[str, File | Directory] = field(default_factory=dict)
    unsynced: list[tuple[str, File | Directory | None]] = field(default_factory=list)
    links: int = 1

    def change(self, name: str, node: File | Directory | None) -> None:
        if self.links == 0:
            raise FileNotFoundError(errno.ENOENT, "the directory was removed")
        if (replaced := self.entries.pop(name, None)) is not None:
            replaced.links -= 1
        if node is not None:
            self.entries[name] = node
            node.links += 1
        self.unsynced.append((name, node))

    def survivor(self, random: Random, known: dict[int, File | Directory]) -> Directory:
        survivor = Directory()
        for name in sorted(self.synced.keys() | {name for name, _ in self.unsynced}):
            values = [self.synced.get(name), *(node for changed, node in self.unsynced if changed == name)]
            node = random.choice(values)
            if node is None:
                continue
            if id(node) not in known:
                known[id(node)] = (
                    node.survivor(random) if isinstance(node, File) else node.survivor(random, known)
                )
            survivor.entries[name] = known[id(node)]
            survivor.entries[name].links += isinstance(node, File)
        survivor.synced = dict(survivor.entries)
        return survivor


class SimulatedDisk:
    def __init__(self, root: Directory | None = None) -> None:
        self._root = root or Directory()
        self._open: dict[int, File | Directory] = {}
        self._locks: dict[int, int] = {}
        self._mutex = threading.RLock()
        self.before_step: Callable[[str], None] = lambda step: None
        self.writes_at_most = 2**62
        self.calls: list[str] = []

    def after_power_cut(self, random: Random) -> SimulatedDisk:
        return SimulatedDisk(self._root.survivor(random, {}))

    @property
    def open_count(self) -> int:
        return len(self._open)

    def open_directory(self, path: str) -> int:
        self._step("open_directory")
        with self._mutex:
            return self._descriptor(self._directory(path))

    def make_directory(self, path: str) -> None:
        self._step("make_directory")
        with self._mutex:
            parent, name = self._parent(path)
            if name in parent.entries or not name:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            directory = Directory(links=0)
            parent.change(name, directory)

    def create(self, directory: int, name: str) -> int:
        self._step("create")
        with self._mutex:
            parent = self._opened_directory(directory)
            if name in parent.entries:
                raise FileExistsError(errno.EEXIST, "File exists", name)
            file = File()
            parent.change(name, file)
            return self._descriptor(file)

    def open(self, path: str) -> int:
        self._step("open")
        with self._mutex:
            return self._descriptor(self._find(path))

    def close(self, descriptor: int) -> None:
        self._step("close")
        with self._mutex:
            node = self._open.pop(descriptor)
            if self._locks.get(id(node)) == descriptor:
                del self._locks[id(node)]

    def write(self, file: int, parts: Sequence[Buffer]) -> int:
        self._step("write")
        with self._mutex:
            data = b"".join(parts)[: self.writes_at_most]
            self._opened_file(file).data += data
            return len(data)

    def write_directly(self, file: int, parts: Sequence[Buffer]) -> bool:
        """As the system does it: whole blocks first, then the surplus is cut off."""
        data = b"".join(parts)
        rest = data + bytes(-len(data) % BLOCK)
        while rest:
            rest = rest[self.write(file, [rest]) :]
        self._step("truncate")
        with self._mutex:
            del self._opened_file(file).data[len(data) :]
        return True

    def open_directly(self, path: str) -> int | None:
        return self.open(path)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        with self._mutex:
            node = self._open[descriptor]
            if isinstance(node, File):
                node.synced = bytes(node.data)
            else:
                node.synced = dict(node.entries)
                node.unsynced.clear()

    def rename(self, directory: int, name: str, into: int, new_name: str) -> None:
        self._step("rename")
        with self._mutex:
            source, target = self._opened_directory(directory), self._opened_directory(into)
            if name not in source.entries:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            if isinstance(target.entries.get(new_name), Directory):
                raise IsADirectoryError(errno.EISDIR, "Is a directory", new_name)
            target.change(new_name, source.entries[name])
            source.change(name, None)

    def link(self, directory: int, name: str, into: int, new_name: str) -> None:
        self._step("link")
        with self._mutex:
            source, target = self._opened_directory(directory), self._opened_directory(into)
            if new_name in target.entries:
                raise FileExistsError(errno.EEXIST, "File exists", new_name)
            target.change(new_name, source.entries[name])

    def unlink(self, directory: int, name: str) -> None:
        self._step("unlink")
        with self._mutex:
            parent = self._opened_directory(directory)
            if name not in parent.entries:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
            parent.change(name, None)

    def remove_directory(self, path: str) -> None:
        self._step("remove_directory")
        with self._mutex:
            if self._directory(path).entries:
                raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
            parent, name = self._parent(path)
            parent.change(name, None)

    def read(self, file: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        self._step("read")
        with self._mutex:
            data = self._opened_file(file).data
            done = 0
            for buffer in buffers:
                piece = data[position + done : position + done + len(buffer)]
                buffer[: len(piece)] = piece
                done += len(piece)
            return done

    def status(self, file: int) -> FileStatus:
        self._step("status")
        with self._mutex:
            return _status(self._open[file])

    def status_of(self, path: str) -> FileStatus:
        self._step("status_of")
        with self._mutex:
            return _status(self._find(path))

    def names(self, path: str) -> list[str]:
        self._step("names")
        with self._mutex:
            return sorted(self._directory(path).entries)

    def lock(self, descriptor: int) -> bool:
        self._step("lock")
        with self._mutex:
            return self._locks.setdefault(id(self._open[descriptor]), descriptor) == descriptor

    def _step(self, name: str) -> None:
        self.before_step(name)
        self.calls.append(name)

    def _descriptor(self, node: File | Directory) -> int:
        number = next(number for number in range(3, 10_000) if number not in self._open)
        self._open[number] = node
        return number

    def _opened_file(self, descriptor: int) -> File:
        node = self._open[descriptor]
        assert isinstance(node, File)
        return node

    def _opened_directory(self, descriptor: int) -> Directory:
        node = self._open[descriptor]
        assert isinstance(node, Directory)
        return node

    def _find(self, path: str) -> File | Directory:
        node: File | Directory = self._root
        for name in path.strip("/").split("/"):
            if not name:
                continue
            if isinstance(node, File):
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            if name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory(above), name


def _status(node: File | Directory) -> FileStatus:
    is_file = isinstance(node, File)
    return FileStatus(
        size=len(node.data) if isinstance(node, File) else 0,
        modified_ms=0,
        links=node.links,
        is_directory=not is_file,
        is_file=is_file,
        identity=(0, id(node)),
    )
