"""Cuts a byte stream into frames: a 4-byte big-endian length, then that many bytes.

No I/O here: the owner of the socket asks `buffer()` where to receive and reports to `received()`. Short
frames are copied out of a scratch buffer that *all* connections share, so an idle connection holds none; a
frame that has not arrived whole gets a buffer of exactly its size, and the rest is received straight into it,
no further than is claimed: memory that was never written to is only an address. Every delivered frame is the
receiver's for good: writable, and never touched by the reader again.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from dray.broker.server.connection import Buffer
from dray.broker.server.limits.memory import Claim, MemoryBudget, MemoryShare

if TYPE_CHECKING:
    from dray.broker.server.settings import ServerSettings

# --- clients that speak another protocol, recognised by the first four bytes

_TLS_HANDSHAKE: Final = b"\x16\x03"
_HTTP_METHODS: Final = frozenset(
    (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"PATC", b"OPTI", b"TRAC", b"CONN", b"PRI ")
)


def recognised(prefix: bytes) -> str | None:
    """The protocol that the bytes look like, and what to do about it; None if they are not recognised."""
    if prefix.startswith(_TLS_HANDSHAKE):
        return (
            "looks like TLS (a ClientHello), and this listener is plaintext: "
            "set the client's security.protocol to PLAINTEXT"
        )
    if prefix in _HTTP_METHODS:
        return (
            "looks like HTTP, and this is the port of Kafka's protocol: metrics and health are on broker.http"
        )
    return None


# --- frames

LENGTH = Struct(">i")
PREFIX = LENGTH.size

_KIND = Struct(">h")
_HEAD = Struct(">ih")
NO_KIND = -1


class BadFrame(Exception):
    """The peer announced a frame that no request can have."""

    def __init__(self, size: int, largest: int) -> None:
        found = recognised(LENGTH.pack(size))
        super().__init__(found or f"frame of {size} bytes, allowed are 0 to {largest}")
        self.size = size


def _all_of_it(size: int, filled: int, kind: int) -> int:  # noqa: ARG001 - as `claim` is asked
    return size


class FrameReader:
    """`admit(size)` is asked before anything of that size is allocated: between two frames.

    `claim(size, filled, kind)` is asked for memory: when a frame begins, when as much of it has arrived as
    was allowed, and when all of it has. It answers how far the frame may be filled. The kind is a frame's
    first two bytes, once they are here.

    When one of them says no (False, or -1), the reader stalls: it keeps what it has already got, and expects
    to receive nothing more until `proceed()` has been called and left it unstalled."""

    __slots__ = (
        "_admit",
        "_allocate",
        "_allowed",
        "_claim",
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
        claim: Callable[[int, int, int], int] = _all_of_it,
    ) -> None:
        self._scratch = scratch
        self._scratch_view = memoryview(scratch)
        self._largest = largest
        self._admit = admit
        self._deliver = deliver
        self._allocate = allocate
        self._claim = claim
        self._rest = bytearray()
        self._frame: memoryview | None = None
        self._filled = 0
        self._allowed = 0
        self.stalled = False

    @property
    def unfinished(self) -> int:
        """The size of the frame that has begun to arrive, -1 when we are between two frames."""
        if self._frame is not None:
            return len(self._frame)
        return 0 if self._rest and not self.stalled else -1

    def allow(self, largest: int) -> None:
        """Set the largest frame, from the next one on."""
        self._largest = largest

    def buffer(self) -> memoryview:
        """The memory in which to receive next; valid until the following `received`."""
        frame = self._frame
        if frame is not None:
            return frame[self._filled : self._allowed]
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
        if self._filled == self._allowed:
            self._go_on(frame)

    def proceed(self) -> None:
        """Ask again for what `admit` or `claim` refused."""
        self.stalled = False
        if self._frame is not None:
            self._go_on(self._frame)
            return
        data = self._rest
        self._rest = bytearray()
        self._cut(data, len(data))

    def abandon(self) -> None:
        """Drop everything."""
        self._frame = None
        self._rest = bytearray()
        self.stalled = False

    def _go_on(self, frame: memoryview) -> None:
        """Go on with a frame that is whole, or filled as far as was allowed."""
        size = len(frame)
        kind = _KIND.unpack_from(frame)[0] if self._filled >= _KIND.size else NO_KIND
        allowed = self._claim(size, self._filled, kind)
        if allowed < 0:
            self.stalled = True
        elif self._filled == size:
            self._frame = None
            self._deliver(frame)
        else:
            self._allowed = allowed

    def _cut(self, data: bytearray, end: int) -> None:
        position = 0
        while (left := end - position) >= PREFIX:
            if left >= _HEAD.size:
                size, kind = _HEAD.unpack_from(data, position)
            else:
                (size,), kind = LENGTH.unpack_from(data, position), NO_KIND
            if not 0 <= size <= self._largest:
                raise BadFrame(size, self._largest)
            start = position + PREFIX
            filled = size if start + size <= end else end - start
            if not self._admit(size) or (allowed := self._claim(size, filled, kind)) < 0:
                self.stalled = True
                break
            position = start + size
            if filled == size:
                self._deliver(memoryview(data[start:position]))
                continue
            frame = memoryview(self._allocate(size))
            frame[:filled] = memoryview(data)[start:end]
            self._frame = frame
            self._filled = filled
            self._allowed = allowed
            return
        if position < end:
            self._rest = data[position:end]


# --- the memory of the frame that is arriving
#
# A small frame takes its memory when it is whole, a larger one in steps, a little ahead of what has arrived.
# So a frame that is announced and not sent takes no memory from others.

_GROWTH: Final = 4
_LARGEST_STEP: Final = 64
"""The largest step, counted in small frames: 4 MiB."""


class FrameClaims:
    """`proceed` is called once there is room for what was asked last, and it should be asked again."""

    __slots__ = ("_budget", "_bulk_kinds", "_part", "_proceed", "_small", "granted", "share", "waiting")

    def __init__(self, budget: MemoryBudget, settings: ServerSettings, proceed: Callable[[], None]) -> None:
        self._budget = budget
        self._small = settings.small_frame_bytes
        self._bulk_kinds = settings.bulk_kinds
        self._proceed = proceed
        self._part: Claim | None = None  # of a frame that arrives in steps
        self.waiting: Claim | None = None
        """The claim that has to be granted before the frame can go on."""
        self.granted = False
        """The awaited memory is there, for the frame at hand."""
        self.share: int = MemoryShare.NONE
        """The share that the memory of the frame at hand is from."""

    def ask(self, size: int, filled: int, kind: int) -> int:
        """How far the frame may be filled; -1 if it has to wait."""
        if size > self._small:
            return self._grow(size, filled)
        if filled < size:
            return size
        if self.granted:
            self.granted = False
            return size
        small = kind not in self._bulk_kinds
        share = self._budget.try_reserve(size, small)
        if share:
            self.share = share
            return size
        self.waiting = self._budget.claim(size, self._grant, small)
        return -1

    def delivered(self) -> int:
        """The frame is the receiver's, and its memory as well."""
        self._part = None
        return self.share

    def give_up(self) -> None:
        held = self._part or self.waiting
        self._part = self.waiting = None
        if held is not None:
            self._budget.withdraw(held)

    def _grow(self, size: int, filled: int) -> int:
        part = self._part
        if part is None:
            part = self._part = self._budget.begin(size, self._grant)
            self.share = MemoryShare.BULK
        self.granted = False
        if part.held > filled or part.held == size:
            return part.held
        small = self._small
        if self._budget.grow(part, min(size, _GROWTH * filled + small, filled + _LARGEST_STEP * small)):
            return part.held
        self.waiting = part
        return -1

    def _grant(self) -> None:
        assert self.waiting is not None
        self.share = self.waiting.share
        self.waiting = None
        self.granted = True
        self._proceed()
