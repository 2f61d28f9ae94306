"""Writing many buffers to a file, and reading many from it, in few system calls and without joining."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from dray.objects.contract import Buffer
from dray.objects.disk import Descriptor, Disk

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

    What `allocate` gives need not be zeroed: it is filled, or the read fails."""
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
