"""What a crowd at the HTTP port of a broker may cost: probes are answered all the while, and memory comes
back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from bench.harness import resident_bytes_of
from tests.services.consumers import wait_for
from tests.services.dray import DrayProcess
from tests.services.http_crowds import (
    ADDRESSES,
    PATIENCE_SECONDS,
    PROBE_SECONDS,
    Crowd,
    Probe,
    as_many_as,
)
from tests.services.marks import longer

MIB = 1 << 20
MOST = 256
"""Connections of a process' own HTTP."""
ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROBED = ("/healthz", "/readyz")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DrayProcess]:
    with DrayProcess(tmp_path) as process:
        yield process


@pytest.mark.parametrize(
    ("addresses", "most_failed", "seconds"),
    [
        (ADDRESSES, 0, PATIENCE_SECONDS),
        (["127.0.0.1"], None, PATIENCE_SECONDS),
        longer(ADDRESSES, 0, PROBE_SECONDS),
        longer(["127.0.0.1"], 2, PROBE_SECONDS),
    ],
    ids=["elsewhere", "where the probe is", "elsewhere, in time", "where the probe is, in time"],
)
def test_ten_thousand_that_asked_once_silence_no_probe(
    broker: DrayProcess, addresses: list[str], most_failed: int | None, seconds: float
) -> None:
    """Before, 256 of them did: six probes in a row failed, and Kubernetes restarted the broker. Places are
    shared by address: a crowd from where the probe is takes its place while it comes. How often in a row, at
    twenty probes a second, is how fast the machine is: so that is asked in soak. Here a probe gets through
    behind each thousand that come and stay."""
    before = resident_bytes_of(broker.pid)
    probe = Probe(broker.http_port, PROBED, seconds=seconds)
    with Crowd(broker.http_port, addresses) as crowd, probe.asking():
        for _ in range(10):
            crowd.come(as_many_as(10_000) // 10)
            crowd.say(ASKED)
            wait_for("a probe gets through", lambda: [probe.ask(path) for path in PROBED] == [200, 200])
        wait_for("the idlest are closed", lambda: 0 < crowd.still_open() <= MOST)
        assert [probe.ask(path) for path in PROBED] == [200, 200]
    if most_failed is not None:
        assert most_in_a_row(probe.outcomes) <= most_failed, probe.outcomes
    _is_back(broker, before)


def most_in_a_row(outcomes: list[int | str]) -> int:
    """Of probes that failed."""
    runs = (
        sum(1 for _ in run) for is_well, run in groupby(outcomes, lambda each: each == 200) if not is_well
    )
    return max(runs, default=0)


def test_heads_that_come_byte_by_byte_silence_no_probe(broker: DrayProcess) -> None:
    before = resident_bytes_of(broker.pid)
    probe = Probe(broker.http_port, PROBED)
    with Crowd(broker.http_port) as crowd, probe.asking():
        crowd.come(2000)
        for at in range(len(ASKED) - 1):  # the last byte never comes
            crowd.say(ASKED[at : at + 1])
        wait_for("the idlest are closed", lambda: crowd.still_open() <= MOST)
        # None of them is complete: so all are closed when their time is over, which no byte puts off.
        wait_for("the last head is given up", lambda: crowd.still_open() == 0)
    assert set(probe.outcomes) == {200}, probe.outcomes
    _is_back(broker, before)


def test_answers_that_are_never_read_silence_no_probe(broker: DrayProcess) -> None:
    before = resident_bytes_of(broker.pid)
    probe = Probe(broker.http_port, PROBED)
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100
    with Crowd(broker.http_port) as crowd, probe.asking():
        for _ in range(8):
            crowd.come(250, asked, receive_bytes=4096)
            assert resident_bytes_of(broker.pid) - before < 100 * MIB
        assert [probe.ask(path) for path in PROBED] == [200, 200]
    assert set(probe.outcomes) == {200}, probe.outcomes
    _is_back(broker, before)


def _is_back(broker: DrayProcess, before: int) -> None:
    wait_for("memory comes back", lambda: resident_bytes_of(broker.pid) - before < 50 * MIB)
