"""What the first pages tell a newcomer to type, typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.services.dray import drayd_path
from tests.services.tools import require_tool

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
FIRST_HOUR = (ROOT / "docs" / "first-hour.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", FIRST_HOUR, re.DOTALL)


def run(command: list[str], bootstrap: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DRAY_")}
    environment["DRAY_BOOTSTRAP"] = bootstrap
    environment["PATH"] = f"{drayd_path().parent}{os.pathsep}{environment['PATH']}"
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment, check=False)
    assert ran.returncode == 0, ran
    return ran.stdout


def test_kcat_produces_and_consumes(bootstrap: str) -> None:
    require_tool("kcat")
    [block] = [block for block in blocks("sh") if "kcat" in block]
    out = run(["sh", "-ec", block.replace("127.0.0.1:9092", bootstrap)], bootstrap)
    assert "hello\n" in out


def test_three_lines_of_python_each_way(bootstrap: str) -> None:
    produce, consume = blocks("python")
    run([sys.executable, "-c", produce.replace("127.0.0.1:9092", bootstrap)], bootstrap)
    out = run([sys.executable, "-c", consume.replace("127.0.0.1:9092", bootstrap)], bootstrap)
    assert "hello" in out


def test_the_commands_of_drayd(bootstrap: str) -> None:
    [block] = [block for block in blocks("sh") if "drayd admin topics" in block]
    assert "topic orders created" in run(["sh", "-ec", block], bootstrap)
    run(["drayd", "admin", "topics", "delete", "orders", "--execute"], bootstrap)


@pytest.mark.parametrize("target", ["run", "test", "demo"])
def test_the_commands_of_make_are_there(target: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert f"make {target} " in README
    assert re.search(rf"^{target}:", makefile, re.MULTILINE)
