"""Cuts a byte stream into frames: a 4-byte big-endian length, then that many bytes.

No I/O here: whoever owns the socket asks `buffer()` where to receive and reports to `received()`.
Short frames are copied out of a scratch buffer that *all* connections share, so an idle connection
holds none; a frame that has not arrived whole gets a buffer of exactly its size, and the rest is
received straight into it. Every delivered frame is the receiver's for good: writable, and never
touched by the reader again.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from dray.server.connection import Buffer

LENGTH = Struct(">i")
PREFIX = LENGTH.size


class BadFrame(Exception):
    """The peer announced a frame that no request can have."""

    def __init__(self, size: int, largest: int) -> None:
        super().__init__(f"frame of {size} bytes, allowed are 0 to {largest}")
        self.size = size


class FrameReader:
    """`admit(size)` is asked before anything of that size is allocated. When it says no, the reader
    stalls: it keeps what it has already got (at most one scratch buffer), and expects to receive
    nothing more until `proceed()` has been called and left it unstalled."""

    __slots__ = (
        "_admit",
        "_allocate",
        "_deliver",
        "_filled",
        "_frame",
        "_largest",
        "_rest",
        "_scratch",
        "_scratch_view",
        "stalled",
    )

    def __init__(
        self,
        scratch: bytearray,
        largest: int,
        admit: Callable[[int], bool],
        deliver: Callable[[memoryview], None],
        allocate: Callable[[int], Buffer],
    ) -> None:
        self._scratch = scratch
        self._scratch_view = memoryview(scratch)
        self._largest = largest
        self._admit = admit
        self._deliver = deliver
        self._allocate = allocate
        self._rest = bytearray()
        self._frame: memoryview | None = None
        self._filled = 0
        self.stalled = False

    @property
    def unfinished(self) -> int:
        """The size of the frame that has begun to arrive, -1 when we are between two frames."""
        if self._frame is not None:
            return len(self._frame)
        return 0 if self._rest and not self.stalled else -1

    def buffer(self) -> memoryview:
        """Where to receive next; valid until the following `received`."""
        frame = self._frame
        if frame is not None:
            return frame[self._filled :]
        kept = len(self._rest)
        if kept:
            self._scratch_view[:kept] = self._rest
            return self._scratch_view[kept:]
        return self._scratch_view

    def received(self, count: int) -> None:
        frame = self._frame
        if frame is None:
            kept = len(self._rest)
            if kept:
                self._rest = bytearray()
            self._cut(self._scratch, kept + count)
            return
        self._filled += count
        if self._filled == len(frame):
            self._frame = None
            self._deliver(frame)

    def proceed(self) -> None:
        """Try again where `admit` had said no."""
        self.stalled = False
        data = self._rest
        self._rest = bytearray()
        self._cut(data, len(data))

    def abandon(self) -> int:
        """Drop everything; returns the size of the admitted frame that will now never be whole."""
        frame, self._frame = self._frame, None
        self._rest = bytearray()
        self.stalled = False
        return 0 if frame is None else len(frame)

    def _cut(self, data: bytearray, end: int) -> None:
        position = 0
        while end - position >= PREFIX:
            (size,) = LENGTH.unpack_from(data, position)
            if not 0 <= size <= self._largest:
                raise BadFrame(size, self._largest)
            if not self._admit(size):
                self.stalled = True
                break
            start = position + PREFIX
            position = start + size
            if position <= end:
                self._deliver(memoryview(data[start:position]))
                continue
            frame = memoryview(self._allocate(size))
            self._filled = end - start
            frame[: self._filled] = memoryview(data)[start:end]
            self._frame = frame
            return
        if position < end:
            self._rest = data[position:end]
