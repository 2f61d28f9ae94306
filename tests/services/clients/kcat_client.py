"""kcat: an older librdkafka at the command line. It writes text, and tells no offsets: they are read back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.clients.contract import SECONDS, Client, Message
from tests.services.tools import require_tool

KEY_DELIMITER = "|"
NOTHING = ""  # -Z: an empty key or value stands for null


class Kcat(Client):
    text_only = True

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.program: Path = require_tool("kcat")

    def run(self, *arguments: str, text: str | None = None) -> str:
        done = subprocess.run(
            [str(self.program), "-b", self.bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(
                f"kcat {' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()}"
            )
        return done.stdout

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """One run per set of headers, as one run gives the same headers to all it sends."""
        first = self.end(topic, partition)
        for headers, text in runs_of(messages):
            arguments = ["-P", "-t", topic, "-p", str(partition), "-K", KEY_DELIMITER, "-Z", "-z", codec]
            arguments += ["-X", f"enable.idempotence={str(idempotent).lower()}", "-X", "acks=all"]
            for key, value in headers:
                arguments += ["-H", key if value is None else f"{key}={value.decode()}"]
            self.run(*arguments, text=text)
        return list(range(first, first + len(messages)))

    def end(self, topic: str, partition: int) -> int:
        # "topic [0] offset 12"
        return int(self.run("-Q", "-t", f"{topic}:{partition}:-1").split()[-1])

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        arguments = ["-C", "-J", "-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count)]
        lines = self.run(*arguments, "-X", "check.crcs=true").splitlines()
        return [message_from(json.loads(line)) for line in lines]


def runs_of(messages: Sequence[Message]) -> list[tuple[tuple[tuple[str, bytes | None], ...], str]]:
    runs: list[tuple[tuple[tuple[str, bytes | None], ...], str]] = []
    for message in messages:
        key, value = ((part or b"").decode() for part in (message.key, message.value))
        line = f"{key}{KEY_DELIMITER}{value}\n"
        if runs and runs[-1][0] == message.headers:
            runs[-1] = (message.headers, runs[-1][1] + line)
        else:
            runs.append((message.headers, line))
    return runs


def message_from(line: dict[str, object]) -> Message:
    headers = line.get("headers") or []
    assert isinstance(headers, list)
    timestamp, offset = line["ts"], line["offset"]
    assert isinstance(timestamp, int)
    assert isinstance(offset, int)
    return Message(
        key=as_bytes(line["key"]),
        value=as_bytes(line["payload"]),
        headers=tuple((key, as_bytes(value)) for key, value in zip(headers[::2], headers[1::2], strict=True)),
        timestamp=timestamp,
        offset=offset,
    )


def as_bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, str)
    return None if value is None else value.encode()
