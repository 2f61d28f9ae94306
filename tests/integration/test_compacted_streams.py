"""Kafka Streams, whose state is gone, restores it from changelogs that were cleaned."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from tests.services.cleaner import clean, shares_of
from tests.services.clients.java_client import JVM_OPTIONS, SOURCES
from tests.services.dray import DrayProcess
from tests.services.maven import compile_java, require_streams_jars
from tests.services.topics import create_topic

WORDS = [f"word-{number}" for number in range(20)]
SECONDS = 120.0


class Run:
    """One start of the program: its state is what it restores, and what comes after."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        jars = require_streams_jars()
        classes = compile_java(SOURCES / "streams", jars)
        command = [
            "java",
            *JVM_OPTIONS,
            "-cp",
            f"{jars}/*:{classes}",
            "CountWords",
            bootstrap,
            str(directory),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def stores(self) -> tuple[int, dict[str, str], dict[str, str]]:
        """How many records were restored; the counts, and the users."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "it has ended"
        restored, counts, users = line.rstrip("\n").split("\t")
        return int(restored), _rows(counts), _rows(users)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(SECONDS) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def _rows(text: str) -> dict[str, str]:
    return dict(row.split("=") for row in text.split())


@contextmanager
def running(bootstrap: str, directory: Path) -> Iterator[Run]:
    run = Run(bootstrap, directory)
    try:
        yield run
    finally:
        run.kill()


@pytest.mark.soak
def test_streams_restores_its_state_from_cleaned_changelogs(tmp_path: Path) -> None:
    random = Random(7)
    words: Counter[str] = Counter()
    users: dict[str, str] = {}
    with DrayProcess(tmp_path / "dray") as broker:
        for topic in ("words", "users"):
            create_topic(broker.bootstrap, topic, 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for turn in range(3):
            for _ in range(1000):
                word = random.choice(WORDS)
                producer.produce("words", b"", word)
                words[word] += 1
            for number in range(200):
                user, value = f"user-{random.randrange(30)}", f"{turn}.{number}"
                if random.random() < 0.4:
                    producer.produce("users", None, user)
                    users.pop(user, None)
                else:
                    producer.produce("users", value, user)
                    users[user] = value
            assert producer.flush(60) == 0
            with running(broker.bootstrap, tmp_path / f"state-{turn}") as program:
                first = program.stores()
                if turn:
                    assert first[0] > 0, "nothing was restored"
                    assert first[0] < len(WORDS) + 30 + 10, "what was restored had not been cleaned"
                wanted = {word: str(count) for word, count in words.items()}
                deadline = time.monotonic() + SECONDS
                while (found := program.stores())[1:] != (wanted, users):
                    assert time.monotonic() < deadline, f"{found} is not {(wanted, users)}"
                    time.sleep(0.1)
                program.end()
            clean(broker)
            counts = shares_of(broker, "count-words-counts-changelog")
            assert counts.clean.records == len(words)
            assert counts.removed > 900 * (turn + 1)
