"""Kafka Connect over its compacted topics, cleaned again and again between its restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.services.cleaner import clean, shares_of
from tests.services.connect import SECONDS, STATE_TOPICS, ConnectProcess
from tests.services.dray import DrayProcess
from tests.services.topics import create_topic

RESTARTS = 20
LINES = 50
"""That are written before each restart."""
AGGRESSIVE = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"}


def eventually(holds: Callable[[], bool], what: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not seen in time: {what()}"
        time.sleep(0.1)


class Files:
    """A connector that reads a file, and one that writes what came of it to another."""

    def __init__(self, directory: Path) -> None:
        self._source, self._sink = directory / "in.txt", directory / "out.txt"
        self._source.touch()
        self.written: list[str] = []

    def reads(self) -> dict[str, str]:
        return {"connector.class": "FileStreamSource", "file": str(self._source), "topic": "lines"}

    def writes(self, suffix: str = "") -> dict[str, str]:
        return {"connector.class": "FileStreamSink", "file": f"{self._sink}{suffix}", "topics": "lines"}

    def write(self, count: int) -> None:
        lines = [f"line {len(self.written) + number}" for number in range(count)]
        with self._source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)
        self.written += lines

    def came(self) -> list[str]:
        return self._sink.read_text().splitlines() if self._sink.exists() else []

    def all_came(self) -> bool:
        return len(self.came()) >= len(self.written)


@pytest.mark.soak
def test_connect_goes_on_where_it_was_after_every_restart(tmp_path: Path) -> None:
    """Every line comes once, in order. The connectors are set up once, and known afterwards from what is left
    of the topics; others come and go, and leave tombstones."""
    files = Files(tmp_path)
    with DrayProcess(tmp_path / "dray") as broker:
        for topic in STATE_TOPICS:
            create_topic(broker.bootstrap, topic, 1, AGGRESSIVE)
        create_topic(broker.bootstrap, "lines", 1)
        connect = ConnectProcess(tmp_path / "connect", broker.bootstrap)
        for restart in range(RESTARTS + 1):
            with connect:
                if restart == 0:
                    connect.configure("reads", files.reads())
                    connect.configure("writes", files.writes())
                connect.configure(f"passes-{restart}", files.writes(f".{restart}"))
                if restart:
                    connect.delete(f"passes-{restart - 1}")
                files.write(LINES)
                eventually(files.all_came, connect.states)
                assert files.came() == files.written, f"after {restart} restarts"
                eventually(partial(_runs, connect, f"passes-{restart}"), connect.states)
                connect.terminate(SECONDS)  # it commits what it has come to
            clean(broker)
        for topic in STATE_TOPICS:
            shares = shares_of(broker, topic)
            assert shares.removed > shares.records, f"{topic} was not cleaned: {shares}"


def _runs(connect: ConnectProcess, passing: str) -> bool:
    """Are the connectors there that should be, and no others, each with one task?"""
    states = connect.states()
    return states.keys() == {"reads", "writes", passing} and all(
        each == ["RUNNING", "RUNNING"] for each in states.values()
    )
