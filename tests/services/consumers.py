"""Consumers in processes of their own, so that they can be killed and frozen, and what they saw.

A consumer reads its topic as a member of a group, notes each record, and commits after every batch. Every
line it writes carries the machine's monotonic clock, so the lines of several can be put in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.clients.java_client import JVM_OPTIONS, SOURCES
from tests.services.maven import compile_java, require_kafka_jars

KINDS = (
    "confluent-range",
    "confluent-cooperative",
    "confluent-consumer",
    "aiokafka-roundrobin",
    "aiokafka-sticky",
    "kafka-python-range",
    "kafka-python-cooperative",
    "java-range",
    "java-cooperative",
    "java-consumer",
)


@dataclass(frozen=True, slots=True)
class Line:
    """`what` is "assigned", "revoked", "record", "committed", "refused" or "ended"."""

    at: float
    who: str
    what: str
    partition: int = -1
    offset: int = -1


class ConsumerProcess:
    def __init__(
        self,
        directory: Path,
        name: str,
        kind: str,
        bootstrap: str,
        topic: str,
        group: str,
        *,
        session_ms: int = 6000,
        instance: str = "",
    ) -> None:
        self.name = name
        self.path = directory / f"{name}.jsonl"
        self._errors = directory / f"{name}.log"
        with self.path.open("ab") as lines, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                _command(kind, bootstrap, topic, group, session_ms, instance),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=errors,
                cwd=Path(__file__).parents[2],
            )

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Gracefully: it commits and leaves."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.errors()}") from None

    def check(self) -> None:
        if self._process.poll() not in (None, 0, -signal.SIGKILL):
            raise AssertionError(f"{self.name} ended with {self._process.returncode}:\n{self.errors()}")

    def errors(self) -> str:
        return self._errors.read_text(errors="replace")[-3000:]

    def lines(self) -> Iterator[Line]:
        with self.path.open() as content:
            for text in content:
                if not text.endswith("\n"):
                    return  # it is being written, or was when the process was killed
                fields: dict[str, Any] = json.loads(text)
                yield Line(who=self.name, **fields)

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.thaw()
            self.kill()


def _command(kind: str, bootstrap: str, topic: str, group: str, session_ms: int, instance: str) -> list[str]:
    if kind.startswith("java"):
        class_path = f"{require_kafka_jars()}/*:{compile_java(SOURCES)}"
        arguments = [kind, bootstrap, topic, group, str(session_ms), instance]
        return ["java", *JVM_OPTIONS, "-cp", class_path, "ConsumeGroup", *arguments]
    settings = {
        "kind": kind,
        "bootstrap": bootstrap,
        "topic": topic,
        "group": group,
        "session_ms": session_ms,
        "instance": instance,
    }
    return [sys.executable, "-m", "tests.services.consumer_process", json.dumps(settings)]


class GroupHistory:
    """What several consumers of one group saw, in order."""

    def __init__(self, consumers: Iterable[ConsumerProcess]) -> None:
        consumers = list(consumers)
        for consumer in consumers:
            consumer.check()
        self.lines = sorted(
            (line for consumer in consumers for line in consumer.lines()), key=lambda line: line.at
        )

    def seen(self) -> dict[int, set[int]]:
        """Every offset that was read, by partition."""
        offsets: dict[int, set[int]] = {}
        for line in self.lines:
            if line.what == "record":
                offsets.setdefault(line.partition, set()).add(line.offset)
        return offsets

    def count(self) -> int:
        return sum(len(offsets) for offsets in self.seen().values())

    def repeated(self) -> int:
        return sum(line.what == "record" for line in self.lines) - self.count()

    def owners(self) -> dict[int, str]:
        """Who was assigned what last, and has not given it up."""
        owners: dict[int, str] = {}
        for line in self.lines:
            if line.what == "assigned":
                owners[line.partition] = line.who
            elif line.what == "revoked" and owners.get(line.partition) == line.who:
                del owners[line.partition]
        return owners

    def given_up(self) -> int:
        return sum(line.what == "revoked" for line in self.lines)

    def check(self) -> None:
        """Nothing is skipped, and nothing read again that was committed before."""
        committed: dict[int, int] = {}
        expected: dict[tuple[str, int], int] = {}
        read: dict[int, int] = {}
        for line in self.lines:
            place = (line.who, line.partition)
            if line.what == "committed":
                committed[line.partition] = max(committed.get(line.partition, 0), line.offset)
            elif line.what == "assigned":
                expected.pop(place, None)
            elif line.what == "record":
                if place in expected:
                    assert line.offset == expected[place], f"{line} follows {expected[place] - 1}"
                else:
                    highest = read.get(line.partition, 0)
                    assert line.offset <= highest, f"{line} skips what follows {highest}"
                expected[place] = line.offset + 1
                read[line.partition] = max(read.get(line.partition, 0), line.offset + 1)
        self.check_starts()

    def check_starts(self) -> None:
        """A consumer that gets a partition begins where the last acknowledged commit before that left it. One
        commit of another that was under way at that moment may or may not count."""
        commits: dict[int, list[tuple[float, int]]] = {}
        fresh: dict[tuple[str, int], float] = {}
        for line in self.lines:
            place = (line.who, line.partition)
            if line.what == "committed":
                commits.setdefault(line.partition, []).append((line.at, line.offset))
            elif line.what == "assigned":
                fresh[place] = line.at
            elif line.what == "record" and place in fresh:
                at = fresh.pop(place)
                before = [offset for when, offset in commits.get(line.partition, []) if when < at]
                if before:
                    assert line.offset >= before[-1], f"{line} but {before[-1]} was committed before"


def wait_for(what: str, true: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(f"it took more than {seconds:.0f} s: {what}")
        time.sleep(0.05)
