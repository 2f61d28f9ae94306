"""The Java client: a small program of ours over kafka-clients, `tests/java`, one JVM per call."""

from __future__ import annotations

from pathlib import Path

from tests.services.clients.line_client import LineClient
from tests.services.clients.line_reader import LineReader
from tests.services.clients.reader import Reading
from tests.services.maven import compile_java, require_kafka_jars

SOURCES = Path(__file__).parents[2] / "java"
JVM_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")


def java_command() -> list[str]:
    """What comes before the name of a program of ours."""
    return ["java", *JVM_OPTIONS, "-cp", f"{require_kafka_jars()}/*:{compile_java(SOURCES)}"]


class Java(LineClient):
    produces, fetches = "ProduceLines", "FetchLines"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, java_command())


class JavaReader(LineReader):
    def __init__(self, reading: Reading) -> None:
        program = [*java_command(), "ReadLines", reading.bootstrap, reading.group, reading.protocol]
        super().__init__(reading, [*program, reading.isolation, str(reading.fetch_bytes), *reading.topics])
