"""Clients that are programs of ours in other languages, `tests/java` and `tests/go`: one process per call."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import ClassVar

from tests.services.clients.contract import SECONDS, Client, Message
from tests.services.clients.lines import line_of, message_of


class LineClient(Client):
    """`command` comes before the word that says what to do."""

    produces: ClassVar[str]
    fetches: ClassVar[str]

    def __init__(self, bootstrap: str, command: Sequence[str]) -> None:
        super().__init__(bootstrap)
        self.command = list(command)

    def run(self, word: str, *arguments: str, text: str = "") -> list[str]:
        """The lines that it printed; raises with its errors when it failed."""
        done = subprocess.run(
            [*self.command, word, self.bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        if done.returncode != 0:
            name = type(self).__name__
            raise RuntimeError(f"{name} {word} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.splitlines()

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        lines = "".join(f"{line_of(message)}\n" for message in messages)
        answers = self.run(self.produces, topic, str(partition), codec, str(idempotent).lower(), text=lines)
        return [int(answer) for answer in answers]

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        answers = self.run(self.fetches, topic, str(partition), str(start), str(count))
        return [message_of(answer) for answer in answers]
