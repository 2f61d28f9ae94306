"""A request on its way to its answer."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING

from dray.server.memory import MemoryShare

if TYPE_CHECKING:
    from dray.server.answers import Reservation
    from dray.server.connection import Buffer


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
