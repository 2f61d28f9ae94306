"""The image's steps are a script: it makes a Dray that runs, from a checkout that it leaves alone."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.services.dray import DrayProcess
from tests.services.tools import require_tool

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "deploy" / "image" / "build.sh"


def run(*arguments: object, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_wrong_call_is_one_line_and_makes_nothing(tmp_path: Path) -> None:
    for arguments in ((), (ROOT,), (ROOT, tmp_path / "x", "nothing"), (ROOT, "a", "run", "more")):
        ran = run(*arguments)
        assert ran.returncode == 2
        assert ran.stderr.startswith("usage: ")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    ran = run(ROOT, tmp_path)
    assert ran.returncode == 2
    assert "exists already" in ran.stderr


def test_the_image_is_made_by_the_script() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert "RUN /source/deploy/image/build.sh /source /opt/dray\n" in dockerfile
    assert SCRIPT.stat().st_mode & 0o111
    assert 'ENTRYPOINT ["tini", "--", "drayd"]' in dockerfile


def test_the_image_sees_all_that_the_script_reads_and_no_data() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    read = set(re.findall(r'"\$source/([A-Za-z./]+)"', SCRIPT.read_text())) | {"deploy/image/build.sh"}
    assert {"src", "pyproject.toml", "setup.py", "LICENSE"} <= read
    assert "requirements" in allowed
    for name in read:
        assert (ROOT / name).exists()
        assert any(fnmatch.fnmatch(name, rule) for rule in allowed), f"{name} is kept from the image"
    assert not any(fnmatch.fnmatch(name, rule) for name in (".git", "dray-data", "tests") for rule in allowed)


def install(tmp_path: Path, requirements: str) -> Path:
    """The drayd that the script makes, from a checkout that stays as it is."""
    shown = ["git", "-C", str(ROOT), "status", "--short", "--ignored", "deploy", "requirements"]
    before = subprocess.run(shown, capture_output=True, check=True).stdout
    ran = run(ROOT, tmp_path / "dray", requirements, timeout=1500)
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


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_the_script_makes_a_broker_that_serves(tmp_path: Path) -> None:
    with Installed(tmp_path / "broker", install(tmp_path, "run")) as broker:
        assert broker.terminate() == 0


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
        assert producer.flush(30) == 0
        assert command("compactor", "--once", *there).startswith("compacted 100 records")
        assert json.loads(command("query", "select count(*) n from orders", "-f", "json", *there)) == [
            {"n": 100}
        ]
