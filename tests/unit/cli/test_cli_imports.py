"""Short commands load little: modules are counted, which is most of the time that they take.

A command that loads more than it may fails here, long before somebody feels it.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

COUNT = """
import json, os, sys
said, sys.stdout = sys.stdout, open(os.devnull, "w")
from dray.cli.main import main
try:
    main(json.loads(sys.argv[1]))
except SystemExit as ended:
    code = ended.code
json.dump({"code": code, "modules": sorted(sys.modules)}, said)
"""
SLOW = {
    "pydantic",
    "pyiceberg",
    "sqlalchemy",
    "pyarrow",
    "pyspark",
    "structlog",
    "rich.traceback",
    "rich.markdown",
}


def loaded(*arguments: str, code: int = 0) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(arguments)], capture_output=True, text=True, check=True
    )
    found = json.loads(ran.stdout)
    assert found["code"] == code, ran.stderr
    return set(found["modules"])


def test_the_list_of_commands() -> None:
    found = loaded("--help")
    assert found & (SLOW | {"asyncio", "yaml"}) == set()
    assert len(found) < 260


def test_the_list_of_admin_commands() -> None:
    found = loaded("admin", "--help")
    assert found & (SLOW | {"asyncio", "yaml"}) == set()
    assert len(found) < 270


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "list"),
        ("topics", "describe", "orders"),
        ("groups", "list"),
        ("cluster",),
        ("user", "list"),
        ("acl", "list"),
        ("quota", "list"),
    ],
)
def test_an_admin_command(command: tuple[str, ...]) -> None:
    """Nobody answers: all that the question needs was loaded."""
    found = loaded("admin", *command, "--bootstrap", "127.0.0.1:1", code=1)
    assert found & (SLOW | {"yaml", "rich", "dray.daemons.config", "dray.log"}) == set()
    assert len(found) < 340
