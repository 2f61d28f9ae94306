"""What the rooms above see of a connection, and what they give the server to run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from dray.runtime import AnswerRoom, EndlessRoom

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
        server is stopping, or it is being closed. What only waits (a long poll) should finish now.
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
