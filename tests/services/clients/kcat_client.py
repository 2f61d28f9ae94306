"""kcat: an older librdkafka at the command line. It writes text, and tells no offsets: they are read back."""

from __future__ import annotations

import json
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.services.clients.contract import CREATE_TIME, LOG_APPEND_TIME, SECONDS, Client, Message
from tests.services.clients.line_process import LineProcess
from tests.services.clients.reader import READ_SECONDS, Found, Place, Reader, Reading
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
        return self.ask({(topic, partition): -1})[topic, partition]

    def ask(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """The first offsets at or after times; -1 stands for none."""
        asked = [word for (topic, number), at in times.items() for word in ("-t", f"{topic}:{number}:{at}")]
        # "topic [0] offset 12"
        answers = [line.split() for line in self.run("-Q", *asked).splitlines()]
        return {(topic, int(number.strip("[]"))): int(offset) for topic, number, _, offset in answers}

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        arguments = ["-C", "-J", "-t", topic, "-p", str(partition), "-o", str(start), "-c", str(count)]
        lines = self.run(*arguments, "-X", "check.crcs=true").splitlines()
        return [message_from(json.loads(line)) for line in lines]


class KcatReader(Reader):
    """It cannot be paused: it waits in its output, with a few records of each partition, until they are read.
    It cannot seek either, and is started again instead."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._kcat = Kcat(reading.bootstrap)
        self._next: dict[Place, int] = {}
        self._ahead: dict[Place, deque[Message]] = {}
        self._process = self._start("-G", reading.group, *reading.topics)

    def _start(self, *mode: str) -> LineProcess:
        """`-G` takes what follows for topics: options come first."""
        options = {
            "auto.offset.reset": "earliest",
            "check.crcs": "true",
            "enable.auto.commit": "false",
            "fetch.message.max.bytes": str(self.reading.fetch_bytes),
            "isolation.level": self.reading.isolation,
            "queued.min.messages": "200" if self.reading.little else "100000",
        }
        extra = [word for name, value in options.items() for word in ("-X", f"{name}={value}")]
        return LineProcess([str(self._kcat.program), "-b", self.reading.bootstrap, "-J", "-u", *extra, *mode])

    def read(self, ends: Mapping[Place, int]) -> dict[Place, list[Message]]:
        seen: dict[Place, list[Message]] = {place: [] for place in ends}
        deadline = time.monotonic() + READ_SECONDS
        for place, end in ends.items():
            ahead = self._ahead.setdefault(place, deque())
            while self._next.get(place, 0) < end:
                while not ahead:
                    self._receive(deadline)
                message = ahead.popleft()
                seen[place].append(message)
                self._next[place] = message.offset + 1
        return seen

    def _receive(self, deadline: float) -> None:
        # Keys and values are written as they are, whether or not they are text.
        line = json.loads(self._process.readline(deadline).decode(errors="surrogateescape"))
        self._ahead.setdefault((line["topic"], line["partition"]), deque()).append(message_from(line))

    def seek(self, place: Place, offset: int) -> None:
        self._process.close()
        self._ahead.clear()
        topic, partition = place
        self._process = self._start("-C", "-t", topic, "-p", str(partition), "-o", str(offset))
        self._next = {place: offset}

    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        return {
            place: None if offset < 0 else (offset, None) for place, offset in self._kcat.ask(times).items()
        }

    def close(self) -> None:
        self._process.close()


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
        timestamp_type=LOG_APPEND_TIME if line["tstype"] == "logappend" else CREATE_TIME,
    )


def as_bytes(value: object) -> bytes | None:
    assert value is None or isinstance(value, str)
    return None if value is None else value.encode(errors="surrogateescape")
