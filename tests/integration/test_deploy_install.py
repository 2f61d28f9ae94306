"""The script that makes the image's content, run: it installs a Dray that serves and compacts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.dray import DrayProcess
from tests.services.tools import require_tool

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "image" / "build.sh"


def install(tmp_path: Path, requirements: str) -> Path:
    """The drayd that the script makes, from a checkout that stays as it is."""
    shown = ["git", "-C", str(ROOT), "status", "--short", "--ignored", "deploy", "requirements"]
    before = subprocess.run(shown, capture_output=True, check=True).stdout
    build = [str(SCRIPT), str(ROOT), str(tmp_path / "dray"), requirements]
    ran = subprocess.run(build, capture_output=True, text=True, timeout=1500, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("drayd ")
    assert subprocess.run(shown, capture_output=True, check=True).stdout == before
    assert not (tmp_path / "dray" / "bin" / "pip").exists()
    return tmp_path / "dray" / "bin" / "drayd"


class Installed(DrayProcess):
    def __init__(self, directory: Path, drayd: Path) -> None:
        super().__init__(directory)
        self._drayd = drayd

    def command(self) -> list[str]:
        return [str(self._drayd), *list(super().command())[1:]]


@pytest.mark.timeout(1800)
def test_the_script_makes_a_broker_that_serves(tmp_path: Path) -> None:
    with Installed(tmp_path / "broker", install(tmp_path, "run")) as broker:
        assert broker.terminate() == 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_script_makes_what_the_image_holds_brokers_and_compactors(tmp_path: Path) -> None:
    """With the pipeline's packages, as the Dockerfile has it: Spark compacts, and the table is read."""
    require_tool("java")
    drayd = install(tmp_path, "pipeline")

    def command(*arguments: object) -> str:
        ran = subprocess.run(
            [str(drayd), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            env=dict(broker.environment()),
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    with Installed(tmp_path / "broker", drayd) as broker:
        there = ("--data-dir", broker.data_directory)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("orders", str(number))
        assert producer.flush(60) == 0
        assert command("compactor", "--once", *there).startswith("compacted 100 records")
        assert json.loads(command("query", "select count(*) n from orders", "-f", "json", *there)) == [
            {"n": 100}
        ]
