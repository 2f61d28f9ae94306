"""The memory that one answer may fill: counted by the server, asked for by what makes the answer."""

from __future__ import annotations

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
