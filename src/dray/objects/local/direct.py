"""Writing and reading files past the page cache.

An object is written once, and what consumers read soon after comes from the broker's own caches. Going
through the page cache, every byte is copied into a page that the kernel first has to find, and often to
clear, and that nobody reads: several times the processor time of the write itself.
`docs/design/0003-reading.md` has the figures, and what is given up.

The kernel wants whole blocks, at block positions, from block addresses. So writes are gathered in
aligned buffers that are used again, and reads fetch the blocks around a range into a buffer with room
to align.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Final

from dray.objects.contract import Buffer, OwnBuffer

BLOCK: Final = 4096
"""As large as any disk's logical block; positions, lengths and addresses are multiples of it."""

CHUNK: Final = 2 << 20
"""Gathered and written at once."""

WORTHWHILE: Final = 256 << 10
"""Below this the page cache does better: it joins small writes, and small reads of neighbours."""

_KEPT: Final = 4

_MOST_AT_ONCE: Final = 16 << 20
"""The most bytes that are read in one buffer: any part of it keeps the whole in memory."""

# The errors of file systems that have no direct access, or none for this file.
_REFUSALS: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY})


class Buffers:
    """Aligned buffers, kept for the next write. A fork of the process has none of them: else it could move a
    page away while the disk reads it."""

    def __init__(self, size: int = CHUNK, kept: int = _KEPT) -> None:
        self._size = size
        self._kept = kept
        self._free: list[mmap.mmap] = []
        self._process = os.getpid()
        self._lock = threading.Lock()

    @contextmanager
    def borrow(self) -> Iterator[mmap.mmap]:
        with self._lock:
            if self._process != os.getpid():
                # Not closed: another part of the fork may lie where they were.
                _OF_THE_PARENT.append(self._free)
                self._free, self._process = [], os.getpid()
            buffer = self._free.pop() if self._free else None
        if buffer is None:
            buffer = _pages(self._size)
        try:
            yield buffer
        finally:
            with self._lock:
                keep = len(self._free) < self._kept
                if keep:
                    self._free.append(buffer)
            if not keep:
                buffer.close()


_OF_THE_PARENT: Final[list[list[mmap.mmap]]] = []


def _pages(size: int) -> mmap.mmap:
    """Huge pages where the system has them: the disk is given a few long pieces, not hundreds of short ones,
    and is twice as fast. Memory that is shared has none."""
    if not (hasattr(mmap, "MADV_HUGEPAGE") and hasattr(mmap, "MADV_DONTFORK")):
        return mmap.mmap(-1, size)
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer.madvise(mmap.MADV_DONTFORK)
    with suppress(OSError):
        buffer.madvise(mmap.MADV_HUGEPAGE)  # a kernel may be built without
    return buffer


def enable(file: int) -> bool:
    """Switch an open file over to direct access; False where there is none."""
    direct = getattr(os, "O_DIRECT", 0)
    if not direct:
        return False
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | direct)
    except OSError as error:
        if error.errno in _REFUSALS:
            return False
        raise
    return True


def write_whole(file: int, parts: Sequence[Buffer], buffers: Buffers) -> bool:
    """Write an empty file's whole contents, to be synced by the caller. False where the file system has
    no direct access: nothing was written then."""
    if not enable(file):
        return False
    written = 0
    with buffers.borrow() as buffer:
        for filled in _gathered(parts, buffer):
            blocks = -(-filled // BLOCK) * BLOCK
            with memoryview(buffer) as view:
                try:
                    _write(file, view[:blocks])
                except OSError as error:
                    if written or error.errno not in _REFUSALS:
                        raise
                    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) & ~os.O_DIRECT)
                    return False
            written += filled
    if written % BLOCK:
        os.ftruncate(file, written)  # the last block was written whole
    return True


def _gathered(parts: Sequence[Buffer], buffer: mmap.mmap) -> Iterator[int]:
    """Copy the parts into the buffer, one after another; how full it is, whenever it must be written."""
    at, size = 0, len(buffer)
    for part in parts:
        length = len(part)
        if at + length <= size:
            buffer[at : at + length] = part
            at += length
            continue
        rest = memoryview(part)
        while rest:
            piece = rest[: size - at]
            buffer[at : at + len(piece)] = piece
            at += len(piece)
            rest = rest[len(piece) :]
            if at == size:
                yield at
                at = 0
    if at:
        yield at


def _write(file: int, blocks: memoryview) -> None:
    while blocks:
        written = os.write(file, blocks)
        if written == 0 or (written % BLOCK and written != len(blocks)):
            raise OSError(errno.EIO, "the disk takes no more bytes")
        blocks = blocks[written:]


def open_file(path: str) -> int | None:
    """An existing file for direct reading; None where the file system has none."""
    direct = getattr(os, "O_DIRECT", 0)
    if not direct:
        return None
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | direct)
    except OSError as error:
        if error.errno in _REFUSALS:
            return None
        raise


def are_dense(ranges: Sequence[tuple[int, int]]) -> bool:
    """Is most of what lies between the first and the last of them asked for?"""
    span = max([start + length for start, length in ranges]) - min([start for start, _ in ranges])
    return span <= _MOST_AT_ONCE and 4 * sum([length for _, length in ranges]) >= 3 * span


def read_dense_ranges(
    read: Callable[[Sequence[bytearray | memoryview], int], int],
    ranges: Sequence[tuple[int, int]],
    allocate: Callable[[int], bytearray],
) -> list[OwnBuffer]:
    """All of them in one read. Ranges that overlap get bytes of their own: each is its receiver's."""
    ordered = sorted(ranges)
    if any(start + length > following for (start, length), (following, _) in pairwise(ordered)):
        return [read_range(read, start, length, allocate) for start, length in ranges]
    first = ordered[0][0]
    view = read_range(read, first, ordered[-1][0] + ordered[-1][1] - first, allocate)
    return [view[start - first : start - first + length] for start, length in ranges]


def read_range(
    read: Callable[[Sequence[bytearray | memoryview], int], int],
    start: int,
    length: int,
    allocate: Callable[[int], bytearray],
) -> memoryview:
    """`length` bytes from `start`, which must lie in the file. `read` fills buffers from a position."""
    first = start - start % BLOCK
    end = -(-(start + length) // BLOCK) * BLOCK
    room = allocate(end - first + BLOCK)
    aligned = -_address(room) % BLOCK
    blocks = memoryview(room)[aligned : aligned + end - first]
    done, needed = 0, start - first + length
    while done < needed:
        count = read([blocks[done:]], first + done)
        done += count
        if count == 0 or (count % BLOCK and done < needed):
            raise OSError(errno.EIO, f"the file ends at {first + done}, before its size")
    return blocks[start - first : needed]


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
