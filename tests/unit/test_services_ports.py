"""Tests that run side by side never give their servers the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.services.process import PortBlocks, is_unbound

PORTS = range(10_000, 10_040)

OTHER = """
import sys
from pathlib import Path
from tests.services.process import PortBlocks
blocks = PortBlocks(range(10_000, 10_040), 10, Path(sys.argv[1]))
blocks._lock_another_block()
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _nobody_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.process.is_unbound", lambda port: True)


def test_two_runs_take_their_ports_from_different_blocks(tmp_path: Path) -> None:
    one, other = PortBlocks(PORTS, 10, tmp_path), PortBlocks(PORTS, 10, tmp_path)
    assert [one.take(1), other.take(1), one.take(1), other.take(1)] == [10_000, 10_010, 10_001, 10_011]


def test_ports_in_a_row_are_of_one_block(tmp_path: Path) -> None:
    one, other = PortBlocks(PORTS, 10, tmp_path), PortBlocks(PORTS, 10, tmp_path)
    assert [one.take(8), other.take(1), one.take(3)] == [10_000, 10_010, 10_020]


def test_a_block_is_free_again_when_its_process_has_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OTHER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        assert PortBlocks(PORTS, 10, tmp_path).take(1) == 10_010
        process.kill()
    assert PortBlocks(PORTS, 10, tmp_path).take(1) == 10_000


def test_there_is_an_end_to_them(tmp_path: Path) -> None:
    blocks = PortBlocks(PORTS, 10, tmp_path)
    taken = [blocks.take(1) for _ in PORTS]
    assert taken == list(PORTS)
    with pytest.raises(RuntimeError, match="belongs to a test run"):
        blocks.take(1)


def test_a_port_in_use_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.services.process.is_unbound", lambda port: port not in {10_000, 10_003})
    blocks = PortBlocks(PORTS, 10, tmp_path)
    assert [blocks.take(2), blocks.take(2), blocks.take(2)] == [10_004, 10_006, 10_008]


def test_what_is_bound_is_noticed() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert not is_unbound(port)
