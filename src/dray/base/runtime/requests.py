"""Between a server and what answers its requests: the memory of an answer, and the end of a connection.

The code that answers stands above the server and knows nothing of it: it asks for room, and raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class AnswerRoom(Protocol):
    """The memory that the request at hand may fill with its answer, of what all connections share."""

    def most(self) -> int:
        """How much to plan with. A batch may be planned even where it is less."""

    def take(self, size: int) -> bool:
        """Hold so much for the answer, instead of what was held for it before; False if there is no room.
        It is given back when the peer has the answer, or the request ends without one."""

    async def wait(self, size: int, seconds: float) -> bool:
        """Queue for so much, for so long; True once it is held."""


class EndlessRoom:
    """Of a request whose answer is not counted."""

    def most(self) -> int:
        return 1 << 62

    def take(self, size: int) -> bool:  # noqa: ARG002 - as all rooms
        return True

    async def wait(self, size: int, seconds: float) -> bool:  # noqa: ARG002 - as all rooms
        return True


class CloseConnection(Exception):
    """Answer what came before this request, then close, with `reason` in one log line. `answer` is the last
    one, where this request has one. Lines are bounded in number by `kind`, which is one of few."""

    def __init__(
        self,
        reason: str,
        answer: Sequence[bytes | bytearray | memoryview] | None = None,
        kind: str = "request",
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer
        self.kind = kind
