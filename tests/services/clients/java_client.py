"""The Java client: a small program of ours over kafka-clients, `tests/java`, one JVM per call."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.clients.contract import SECONDS, Client, Message
from tests.services.clients.line_reader import LineReader
from tests.services.clients.lines import line_of, message_of
from tests.services.clients.reader import Reading
from tests.services.maven import compile_java, require_kafka_jars

SOURCES = Path(__file__).parents[2] / "java"
JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def java_command() -> list[str]:
    """What comes before the name of a program of ours."""
    return ["java", *JVM_OPTIONS, "-cp", f"{require_kafka_jars()}/*:{compile_java(SOURCES)}"]


class Java(Client):
    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.command = java_command()

    def run(self, main: str, *arguments: str, text: str = "") -> list[str]:
        """The lines that a program of ours printed; raises with its errors when it failed."""
        done = subprocess.run(
            [*self.command, main, self.bootstrap, *arguments],
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


class JavaReader(LineReader):
    def __init__(self, reading: Reading) -> None:
        program = [*java_command(), "ReadLines", reading.bootstrap, reading.group, reading.protocol]
        super().__init__(reading, [*program, reading.isolation, str(reading.fetch_bytes), *reading.topics])
