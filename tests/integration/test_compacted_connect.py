"""Kafka Connect over its compacted topics, cleaned again and again between its restarts."""

from __future__ import annotations

import time
from collections.abc import Callable
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


@pytest.mark.soak
def test_connect_goes_on_where_it_was_after_every_restart(tmp_path: Path) -> None:
    """A connector that reads a file, one that writes another: every line comes once, in order. Both are set up
    once, and known afterwards from what is left of the topics; others come and go, and leave tombstones."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.touch()
    written: list[str] = []
    with DrayProcess(tmp_path / "dray") as broker:
        for topic in STATE_TOPICS:
            create_topic(broker.bootstrap, topic, 1, AGGRESSIVE)
        create_topic(broker.bootstrap, "lines", 1)
        connect = ConnectProcess(tmp_path / "connect", broker.bootstrap)
        for restart in range(RESTARTS + 1):
            with connect:
                if restart == 0:
                    connect.configure(
                        "reads",
                        {"connector.class": "FileStreamSource", "file": str(source), "topic": "lines"},
                    )
                    connect.configure(
                        "writes", {"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"}
                    )
                passing = {
                    "connector.class": "FileStreamSink",
                    "file": f"{sink}.{restart}",
                    "topics": "lines",
                }
                connect.configure(f"passes-{restart}", passing)
                if restart:
                    connect.delete(f"passes-{restart - 1}")
                lines = [f"line {len(written) + number}" for number in range(LINES)]
                with source.open("a") as file:
                    file.writelines(f"{line}\n" for line in lines)
                written += lines
                eventually(
                    lambda: sink.exists() and len(sink.read_text().splitlines()) >= len(written),
                    lambda: connect.states(),
                )
                assert sink.read_text().splitlines() == written, f"after {restart} restarts"
                known = {"reads", "writes", f"passes-{restart}"}
                eventually(
                    lambda known=known: (
                        connect.states()  # type: ignore[misc]
                        == dict.fromkeys(known, ["RUNNING", "RUNNING"])
                    ),
                    lambda: connect.states(),
                )
                connect.terminate(SECONDS)  # it commits what it has come to
            clean(broker)
        for topic in STATE_TOPICS:
            shares = shares_of(broker, topic)
            assert shares.removed > shares.records, f"{topic} was not cleaned: {shares}"
