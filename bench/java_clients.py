"""Load from Java's own clients: `kafka-producer-perf-test` and `kafka-consumer-perf-test`.

Batches are as large as librdkafka's default, so that the two drivers can be compared. A JVM takes seconds of
processor time to start and to compile: speeds are those that the programs say of themselves, the client's
processor time is all of it.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from tests.services.maven import require_kafka_jars, require_kafka_tools

from bench.driver import Load

_SENT: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec")
_PRODUCER: Final = {"acks": "all", "batch.size": 1_000_000, "linger.ms": 5, "buffer.memory": 256 << 20}


class JavaClientFailed(Exception):
    """What it said at last."""


def produce(bootstrap: str, topic: str, *, records: int, size: int, options: Mapping[str, object]) -> Load:
    """Records are noise, each another one: no codec makes them smaller."""
    properties = {"bootstrap.servers": bootstrap} | _PRODUCER | dict(options)
    said, cpu_seconds = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        f"--topic {topic} --num-records {records} --record-size {size} --throughput -1".split(),
        ["--producer-props", *[f"{name}={value}" for name, value in properties.items()]],
    )
    found = [match for line in said if (match := _SENT.match(line))]
    if not found:
        raise JavaClientFailed("\n".join(said[-5:]))
    sent, rate = int(found[-1][1]), float(found[-1][2])
    return Load(sent, sent * size, sent / rate, cpu_seconds)


def fetch(bootstrap: str, topic: str, *, records: int, size: int, options: Mapping[str, object]) -> Load:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as properties:
        properties.write("".join(f"{name}={value}\n" for name, value in options.items()))
        properties.flush()
        said, cpu_seconds = _run(
            "org.apache.kafka.tools.ConsumerPerformance",
            f"--bootstrap-server {bootstrap} --topic {topic} --messages {records} --hide-header".split(),
            ["--consumer.config", properties.name],
        )
    columns = said[-1].split(", ") if said else []
    if len(columns) != 10:
        raise JavaClientFailed("\n".join(said[-5:]))
    got, milliseconds = int(columns[4]), float(columns[7])
    return Load(got, got * size, milliseconds / 1000, cpu_seconds)


def tls_options(authority: Path) -> dict[str, object]:
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
    }


def _run(program: str, *arguments: Sequence[str]) -> tuple[list[str], float]:
    jars = f"{require_kafka_tools()}/*:{require_kafka_jars()}/*"
    command = ["java", "-Xmx1g", "-XX:+UseG1GC", "-cp", jars, program, *chain.from_iterable(arguments)]
    before = os.times()
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    after = os.times()
    cpu_seconds = sum(after[2:4]) - sum(before[2:4])
    said = [line for line in ended.stdout.splitlines() if line.strip()]
    if ended.returncode:
        raise JavaClientFailed("\n".join([*said, *ended.stderr.splitlines()][-5:]))
    return said, cpu_seconds
