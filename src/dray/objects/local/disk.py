"""The file system, call by call: the only place where the local engine touches a disk.

It is this narrow so that a test can put a simulated disk in its place, which knows what was synced and
what was not, and cut the power between any two calls.

Names are always relative to an open directory. An object's entry is made in, and synced through, one
and the same open directory: were that directory replaced behind our back, the entry could not land in
one and the sync in the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dray.objects.contract import Buffer
from dray.objects.local import direct

Descriptor = int

_MOST_VECTORS: int = os.sysconf("SC_IOV_MAX")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class FileStatus:
    size: int
    modified_ms: int
    links: int
    """How many names the file still has: none, once it was deleted or replaced."""
    is_directory: bool
    is_file: bool
    identity: tuple[int, int]
    """Equal for two names of the same file."""


class Disk(Protocol):
    def open_directory(self, path: str) -> Descriptor: ...

    def make_directory(self, path: str) -> None:
        """`FileExistsError` if something has that name."""

    def create(self, directory: Descriptor, name: str) -> Descriptor:
        """A new file, open for writing."""

    def open(self, path: str) -> Descriptor:
        """An existing file, open for reading."""

    def close(self, descriptor: Descriptor) -> None: ...

    def write(self, file: Descriptor, parts: Sequence[Buffer]) -> int:
        """Append as many bytes of `parts` as the system takes, and say how many that were."""

    def write_directly(self, file: Descriptor, parts: Sequence[Buffer]) -> bool:
        """Write the whole of an empty file past the page cache, still to be synced. False, and nothing
        written, where the disk has no such way."""

    def open_directly(self, path: str) -> Descriptor | None:
        """An existing file, for reading whole blocks into block-aligned buffers past the page cache. None
        where the disk has no such way."""

    def sync(self, descriptor: Descriptor) -> None:
        """Make what was written to a file, or which entries a directory has, survive a power cut."""

    def rename(self, directory: Descriptor, name: str, into: Descriptor, new_name: str) -> None:
        """Replaces what has the new name."""

    def link(self, directory: Descriptor, name: str, into: Descriptor, new_name: str) -> None:
        """`FileExistsError` if something has the new name, which is then left alone."""

    def unlink(self, directory: Descriptor, name: str) -> None: ...

    def remove_directory(self, path: str) -> None: ...

    def read(self, file: Descriptor, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Fill `buffers` in order from `position`; fewer bytes than asked only at the end of the file
        or at the system's limit."""

    def status(self, file: Descriptor) -> FileStatus: ...

    def status_of(self, path: str) -> FileStatus: ...

    def names(self, path: str) -> list[str]: ...

    def lock(self, descriptor: Descriptor) -> bool:
        """Take the exclusive lock that lasts until the descriptor is closed or its process ends.
        False if another has it."""


class SystemDisk:
    """The operating system's."""

    def __init__(self) -> None:
        self._buffers = direct.Buffers()

    def open_directory(self, path: str) -> Descriptor:
        return os.open(path, _DIRECTORY)

    def make_directory(self, path: str) -> None:
        os.mkdir(path, 0o700)

    def create(self, directory: Descriptor, name: str) -> Descriptor:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=directory)

    def open(self, path: str) -> Descriptor:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, descriptor: Descriptor) -> None:
        os.close(descriptor)

    def write(self, file: Descriptor, parts: Sequence[Buffer]) -> int:
        return os.writev(file, parts[:_MOST_VECTORS])

    def write_directly(self, file: Descriptor, parts: Sequence[Buffer]) -> bool:
        return direct.write_whole(file, parts, self._buffers)

    def open_directly(self, path: str) -> Descriptor | None:
        return direct.open_file(path)

    def sync(self, descriptor: Descriptor) -> None:
        # macOS's fsync stops at the drive's own cache.
        if hasattr(fcntl, "F_FULLFSYNC"):
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        else:
            os.fsync(descriptor)

    def rename(self, directory: Descriptor, name: str, into: Descriptor, new_name: str) -> None:
        os.rename(name, new_name, src_dir_fd=directory, dst_dir_fd=into)

    def link(self, directory: Descriptor, name: str, into: Descriptor, new_name: str) -> None:
        os.link(name, new_name, src_dir_fd=directory, dst_dir_fd=into)

    def unlink(self, directory: Descriptor, name: str) -> None:
        os.unlink(name, dir_fd=directory)

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def read(self, file: Descriptor, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        return os.preadv(file, buffers[:_MOST_VECTORS], position)

    def status(self, file: Descriptor) -> FileStatus:
        return _status(os.fstat(file))

    def status_of(self, path: str) -> FileStatus:
        return _status(os.lstat(path))

    def names(self, path: str) -> list[str]:
        return os.listdir(path)

    def lock(self, descriptor: Descriptor) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _status(found: os.stat_result) -> FileStatus:
    return FileStatus(
        size=found.st_size,
        modified_ms=found.st_mtime_ns // 1_000_000,
        links=found.st_nlink,
        is_directory=stat.S_ISDIR(found.st_mode),
        is_file=stat.S_ISREG(found.st_mode),
        identity=(found.st_dev, found.st_ino),
    )


# --- many buffers in few system calls, without joining them


_WINDOW = 1024
"""Buffers handed over per call; what Linux and macOS take at once."""

_WORTH_READING_OVER = 16 * 1024
"""A gap between two ranges that is cheaper to read than to skip by a call of its own."""


def write_all(disk: Disk, file: Descriptor, parts: Sequence[Buffer]) -> None:
    remaining = list(parts)
    index = 0
    while index < len(remaining):
        window = remaining[index : index + _WINDOW]
        written = disk.write(file, window)
        if written == sum(map(len, window)):
            index += len(window)
            continue
        if written == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes")
        while written >= len(remaining[index]):
            written -= len(remaining[index])
            index += 1
        remaining[index] = memoryview(remaining[index])[written:]


def read_all(disk: Disk, file: Descriptor, buffers: Sequence[bytearray | memoryview], position: int) -> None:
    remaining = list(buffers)
    index = 0
    while index < len(remaining):
        window = remaining[index : index + _WINDOW]
        count = disk.read(file, window, position)
        position += count
        if count == sum(map(len, window)):
            index += len(window)
            continue
        if count == 0:
            raise OSError(errno.EIO, f"the file ends at {position}, before its size")
        while count >= len(remaining[index]):
            count -= len(remaining[index])
            index += 1
        remaining[index] = memoryview(remaining[index])[count:]


def read_ranges(
    disk: Disk,
    file: Descriptor,
    ranges: Sequence[tuple[int, int]],
    allocate: Callable[[int], bytearray] = bytearray,
) -> list[bytearray]:
    """One buffer per (start, length), in the order asked for; the ranges must lie in the file.

    Buffers of `allocate` need not be zeroed: they are filled, or the read fails."""
    buffers = [allocate(length) for _, length in ranges]
    gap = memoryview(bytearray(_WORTH_READING_OVER)) if len(ranges) > 1 else memoryview(b"")
    run: list[bytearray | memoryview] = []
    run_start = run_end = 0
    for index in sorted(range(len(ranges)), key=ranges.__getitem__):
        start, length = ranges[index]
        if run and 0 <= start - run_end <= _WORTH_READING_OVER:
            if start > run_end:
                run.append(gap[: start - run_end])
        else:
            read_all(disk, file, run, run_start)
            run, run_start = [], start
        run.append(buffers[index])
        run_end = start + length
    read_all(disk, file, run, run_start)
    return buffers
