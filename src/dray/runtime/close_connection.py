"""How what serves a request ends the connection: raised above the server, understood by the server."""

from __future__ import annotations

from collections.abc import Sequence


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
