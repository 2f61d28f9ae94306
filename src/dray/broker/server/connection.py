"""The connection as the rooms above see it, the work that they give the server to run, and how answers are
sent.

A transport copies what it is given into the socket with the interpreter held: two milliseconds for an answer
of many mebibytes, in which no thread reads ahead for the next one. A plain system call releases the
interpreter, so large answers are sent by one.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dray.base.runtime import AnswerRoom, EndlessRoom
from dray.broker.server.limits.memory import MemoryShare

if TYPE_CHECKING:
    from dray.broker.server.limits.answers import Reservation

Buffer: TypeAlias = bytes | bytearray | memoryview


class Connection:
    """One peer. `principal` and `state` belong to the rooms above; the server never looks at them."""

    __slots__ = (
        "__weakref__",
        "_when_ending",
        "ending",
        "id",
        "listener",
        "peer",
        "principal",
        "room",
        "state",
        "throttle",
        "tls",
        "turn",
        "welcome",
    )

    def __init__(
        self,
        identifier: int,
        peer: str,
        listener: str,
        tls: bool,
        turn: Callable[[], Awaitable[None]] | None = None,
        room: Callable[[], AnswerRoom] = EndlessRoom,
        welcome: Callable[[], None] = lambda: None,
        throttle: Callable[[float], None] = lambda _seconds: None,
    ) -> None:
        self.id = identifier
        self.peer = peer
        self.listener = listener
        self.tls = tls
        self.principal: Any = None
        self.state: dict[str, Any] = {}
        self.ending = False
        self._when_ending: list[Callable[[], None]] = []
        self.turn: Callable[[], Awaitable[None]] = turn or at_once
        """Called from within a dispatch: waits until the requests before this one are answered and the
        peer has taken most of that. Requests run side by side, so one whose answer is large should
        begin with this: else a peer that asks much and reads little could fill our memory."""
        self.room = room
        """Called from within a dispatch: what its answer may take of the memory for answers."""
        self.welcome = welcome
        """Called once a peer has said who it is, where the listener asks: from then on it may send large
        frames, and several at a time."""
        self.throttle = throttle
        """Called with seconds: no further frame is taken for so long. Requests that were taken go on, and are
        answered."""

    def when_ending(self, callback: Callable[[], None]) -> None:
        """Call back, once, when this connection will bring no more requests: the peer hung up, the
        server is stopping, or it is being closed. Work that only waits (a long poll) should finish now.
        Called at once if it is ending already."""
        if self.ending:
            callback()
        else:
            self._when_ending.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take back a `when_ending`, so that a long-lived connection does not collect them."""
        if callback in self._when_ending:
            self._when_ending.remove(callback)

    def end(self) -> None:
        """For the server: run the callbacks, once."""
        if not self.ending:
            self.ending = True
            callbacks, self._when_ending = self._when_ending, []
            for callback in callbacks:
                callback()

    def __repr__(self) -> str:
        return f"Connection({self.id}, {self.peer}, {self.listener})"


async def at_once() -> None:
    """The turn of a request that need not wait for any other."""


Answer: TypeAlias = Sequence[Buffer] | None
Dispatch: TypeAlias = Callable[[memoryview, Connection], Awaitable[Answer]]
"""Gets a frame without its length: a writable view of a buffer that is the receiver's for good.
Gives the buffers of the answer, again without length and never changed afterwards, or None where no
answer is due. The requests of a connection start in the order they came, run side by side, and
are answered in that order."""


# --- a request on its way to its answer


class Exchange:
    """A request and, once it is `done`, the buffers of its answer (none where none is due)."""

    __slots__ = ("buffers", "bytes", "done", "last", "reservation", "share", "task", "turn")

    def __init__(self, share: int = MemoryShare.NONE) -> None:
        self.task: asyncio.Task[None] | None = None
        self.share = share  # of the memory for frames
        self.reservation: Reservation | None = None
        self.buffers: tuple[Buffer, ...] = ()
        self.bytes = 0
        self.done = False
        self.turn: asyncio.Future[None] | None = None  # while it waits to be the first in the queue
        self.last = False
        """The connection ends here: this answer is the last, if there is one."""

    def give_turn(self) -> None:
        """Let the request's handler go on, even if it is not the first in the queue."""
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)


current_exchange: ContextVar[Exchange] = ContextVar("exchange")
"""The exchange that the present task serves."""


# --- large answers, sent without holding up the interpreter

WORTHWHILE: Final = 256 << 10

_MOST_VECTORS: Final = os.sysconf("SC_IOV_MAX")


def is_free(transport: asyncio.Transport, socket: int) -> bool:
    """Whether a socket may be written to beside its transport: that has nothing of its own to send, and has
    not let go of the socket, whose number may then be another one's."""
    return socket >= 0 and not transport.is_closing() and not transport.get_write_buffer_size()


def send_at_once(socket: int, buffers: list[Buffer]) -> list[Buffer]:
    """Give the socket as much as it takes without waiting; gives back what is left. Errors are ignored here:
    the transport meets them too when it sends the rest, and handles them."""
    while buffers:
        sending = buffers[:_MOST_VECTORS]
        try:
            sent = os.writev(socket, sending)
        except OSError:
            break
        whole = 0
        while whole < len(sending) and sent >= len(sending[whole]):
            sent -= len(sending[whole])
            whole += 1
        buffers = buffers[whole:]
        if whole < len(sending):
            return [memoryview(buffers[0])[sent:], *buffers[1:]]
    return buffers


def unacknowledged(socket: int) -> int:
    """Bytes that the system holds for the peer. They show that a slow reader does read, long before the
    system has room for more."""
    if socket < 0:
        return 0
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(socket, termios.TIOCOUTQ, b"\0\0\0\0"))
    except OSError:
        return 0
    return int(count)
