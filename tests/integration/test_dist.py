"""Wheel and sdist as people install them: into an empty environment, without the checkout, and then the first
page of the README in an empty folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.services.marks import longer
from tests.services.process import free_port
from tests.services.tools import exclusively, require_tool

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / "build" / "dist-tools" / "bin"
README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make dist` makes, in a folder of its own."""
    directory = tmp_path_factory.mktemp("dist")
    with exclusively(ROOT / "build"):
        subprocess.run(["make", "dist", f"DIST={directory}"], cwd=ROOT, check=True, timeout=900)
    return directory


def environment(directory: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRAY_", "PYTHON"))}
    return {**kept, "PATH": f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def installed(directory: Path, what: Path, resolution: str) -> Path:
    uv = str(TOOLS / "uv")
    subprocess.run(
        [uv, "venv", "--quiet", "--python", sys.executable, str(directory)], check=True, timeout=300
    )
    command = [uv, "pip", "install", "--quiet", "--python", str(directory / "bin" / "python")]
    subprocess.run([*command, "--resolution", resolution, str(what)], check=True, timeout=1200)
    return directory


def test_the_wheel_has_all_that_a_broker_and_its_console_read(built: Path) -> None:
    [wheel] = built.glob("dray-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = ROOT / "src"
    console = [
        path for path in (sources / "dray" / "console").rglob("*") if path.parent.name != "__pycache__"
    ]
    needed = {str(path.relative_to(sources)) for path in console if path.is_file()}
    assert needed - names == set()
    assert len(needed) > 30
    assert {"dray/kafka/records/_core.abi3.so", "dray/py.typed"} <= names
    if sys.platform == "linux":
        assert re.search(r"-cp311-abi3-manylinux", wheel.name)
    assert len(list(built.glob("dray_simulation-*.whl"))) == 1


@pytest.mark.parametrize(
    ("kind", "resolution"),
    [("whl", "highest"), longer("tar.gz", "highest"), longer("whl", "lowest-direct")],
    ids=["wheel", "sdist", "the lowest versions allowed"],
)
def test_the_first_page_in_an_empty_environment(
    built: Path, tmp_path: Path, kind: str, resolution: str
) -> None:
    require_tool("kcat")
    [what] = built.glob(f"dray-*.{kind}")
    env = environment(installed(tmp_path / "env", what, resolution))
    folder = tmp_path / "empty"
    folder.mkdir()
    bootstrap = f"127.0.0.1:{free_port()}"
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    assert "drayd up" in blocks[0]
    server = ["drayd", "up", "--listen", bootstrap, "--http", "off", "--no-console"]
    log = (tmp_path / "log").open("w")
    up = subprocess.Popen(server, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        there = ["kcat", "-L", "-b", bootstrap, "-m", "60"]
        subprocess.run(there, check=True, timeout=120, env=env, capture_output=True)
        typed = next(block for block in blocks if "kcat" in block).replace("127.0.0.1:9092", bootstrap)
        done = subprocess.run(
            ["sh", "-ec", typed], capture_output=True, text=True, timeout=240, env=env, cwd=folder, check=True
        )
        assert "hello\n" in done.stdout
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0, (tmp_path / "log").read_text()
    assert [path.name for path in folder.iterdir()] == ["dray-data"]
