"""Whether other processes need the processor: from what the system counts, and what this process has used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.unit.console.console_client import Clock

from dray.daemon.spare_processor import LOOK_SECONDS, SpareProcessor

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
        self.cores = cores
        self.clock = Clock()
        self.file = directory / "stat"
        self.idle = self.own = 0.0
        monkeypatch.setattr(os, "times", lambda: os.times_result((self.own, 0.0, 0.0, 0.0, 0.0)))
        self._write()
        self.spare = SpareProcessor(self.clock, self.file, cores)

    def _write(self) -> None:
        waiting = self.idle / 2  # for a disk: the core is free meanwhile
        fields = (9, 0, 9, round((self.idle - waiting) * TICKS), round(waiting * TICKS), 0, 0, 0)
        self.file.write_text(f"cpu  {' '.join(map(str, fields))}\ncpu0 1 2 3\n")

    def passes(self, seconds: float, *, others: float, own: float) -> bool:
        """`others`, `own`: the cores that were used meanwhile."""
        self.clock.now += seconds
        self.own += own * seconds
        self.idle += (self.cores - others - own) * seconds
        self._write()
        return self.spare.is_crowded()


@pytest.mark.parametrize(
    ("cores", "others", "own", "crowded"),
    [
        (2, 0.0, 0.0, False),
        (2, 0.3, 1.0, False),  # a broker that answers what is asked from here
        (2, 1.4, 0.0, True),
        (2, 1.4, 0.6, True),
        (2, 0.5, 1.0, True),  # the core that is left is the one that others wake up on
        (4, 1.9, 1.0, False),
        (4, 2.1, 1.0, True),
        (8, 3.0, 1.0, False),
        (8, 7.5, 0.5, True),
        (1, 0.2, 0.8, False),  # one core, and no load
        (1, 0.6, 0.4, True),
    ],
)
def test_it_is_crowded_where_others_work_and_no_core_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, others: float, own: float, crowded: bool
) -> None:
    assert Machine(tmp_path, monkeypatch, cores).passes(1.0, others=others, own=own) is crowded


def test_it_is_looked_at_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch, 2)
    assert not machine.passes(LOOK_SECONDS / 2, others=2.0, own=0.0)
    assert machine.passes(LOOK_SECONDS, others=2.0, own=0.0)
    assert machine.passes(LOOK_SECONDS / 2, others=0.0, own=0.0)
    assert not machine.passes(10.0, others=0.0, own=0.0)


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert not SpareProcessor(Clock(), tmp_path / "none").is_crowded()


def test_a_system_that_stops_to_say_is_not_taken_for_crowded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path, monkeypatch, 2)
    assert machine.passes(1.0, others=2.0, own=0.0)
    machine.file.unlink()
    machine.clock.now += 1.0
    assert not machine.spare.is_crowded()
