"""How a command fails: one line on standard error, and an exit code that scripts can rely on."""

from __future__ import annotations

from typing import Final

RUNTIME: Final = 1
USAGE: Final = 2


class Failure(Exception):
    """Ends the command. The text is one line for the person who ran it; there is no traceback."""

    def __init__(self, message: str, code: int = RUNTIME) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code
