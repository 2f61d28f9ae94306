"""The Java client: a small program of ours over kafka-clients, `tests/java`, one JVM per call."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.clients.contract import SECONDS, Client, Message
from tests.services.maven import compile_java, require_kafka_jars

SOURCES = Path(__file__).parents[2] / "java"
JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


class Java(Client):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.class_path = f"{require_kafka_jars()}/*:{compile_java(SOURCES)}"

    def run(self, main: str, *arguments: str, text: str = "") -> list[str]:
        """The lines that a program of ours printed; raises with its errors when it failed."""
        done = subprocess.run(
            ["java", *JVM_OPTIONS, "-cp", self.class_path, main, self.bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=2 * SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"java {main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
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
        answers = self.run("ProduceLines", topic, str(partition), codec, str(idempotent).lower(), text=lines)
        return [int(answer) for answer in answers]

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        answers = self.run("FetchLines", topic, str(partition), str(start), str(count))
        return [message_of(answer) for answer in answers]


def field_of(value: bytes | None) -> str:
    return "-" if value is None else "x" + value.hex()


def value_of(field: str) -> bytes | None:
    return None if field == "-" else bytes.fromhex(field[1:])


def line_of(message: Message) -> str:
    """offset, timestamp, key, value, then key and value of every header, with tabs between."""
    fields = [str(message.offset), str(message.timestamp), field_of(message.key), field_of(message.value)]
    for key, value in message.headers:
        fields += [field_of(key.encode()), field_of(value)]
    return "\t".join(fields)


def message_of(line: str) -> Message:
    offset, timestamp, key, value, *headers = line.split("\t")
    return Message(
        key=value_of(key),
        value=value_of(value),
        headers=tuple(
            ((value_of(name) or b"").decode(), value_of(held))
            for name, held in zip(headers[::2], headers[1::2], strict=True)
        ),
        timestamp=int(timestamp),
        offset=int(offset),
    )
