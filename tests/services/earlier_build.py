"""The build that a roll begins with and goes back to: the last release, or a commit of this history until
there is one. `tests/fixtures/earlier_build.txt` names it. It is built once, with the dependencies of its own
lock, in a folder outside of the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.services.dray import DrayProcess
from tests.services.tools import cache_directory, exclusively

REPOSITORY = Path(__file__).parents[2]
NAMED_IN = REPOSITORY / "tests" / "fixtures" / "earlier_build.txt"
BUILD_SECONDS = 900


def require_earlier_build() -> Path:
    """Its `drayd`."""
    commit = NAMED_IN.read_text().strip()
    home = cache_directory() / f"dray-{commit[:12]}-python{sys.version_info[0]}.{sys.version_info[1]}"
    with exclusively(home):
        if not (home / "built").exists():
            _build(commit, home)
    return home / "environment" / "bin" / "drayd"


def _build(commit: str, home: Path) -> None:
    if not _has(commit):  # no machine lacks a tool, and nothing could be installed: this clone is shallow
        pytest.skip(f"{commit}, which {NAMED_IN.name} names, is not in this clone: git fetch --unshallow")
    source, environment = home / "source", home / "environment"
    for left in (source, environment):
        shutil.rmtree(left, ignore_errors=True)
    source.mkdir()
    archive = home / "source.tar"
    _run(["git", "-C", REPOSITORY, "archive", f"--output={archive}", commit])
    _run(["tar", "-xf", archive, "-C", source])
    archive.unlink()
    _run([sys.executable, "-m", "venv", environment])
    python = environment / "bin" / "python"
    pip: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--require-hashes", "-r", source / "requirements" / "run.lock"])
    _run([*pip, "--no-deps", "--no-build-isolation", source])
    shutil.rmtree(source)
    (home / "built").touch()


def _has(commit: str) -> bool:
    known = ["git", "-C", str(REPOSITORY), "cat-file", "-e", f"{commit}^{{commit}}"]
    return subprocess.run(known, capture_output=True, check=False).returncode == 0


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout)[-2000:]}")


UNKNOWN_THERE = {"DRAY_CLUSTER__TALLY_INTERVAL", "DRAY_METADATA__BALLAST"}
"""Settings of all brokers of the tests that this build has, and that one has not."""


class RolledProcess(DrayProcess):
    """A broker that may be started again as another build, on its data and its ports."""

    program: Path | None = None
    """The `drayd` to start; None: this checkout's."""

    def command(self) -> Sequence[str]:
        found = super().command()
        return found if self.program is None else [str(self.program), *found[1:]]

    def environment(self) -> Mapping[str, str]:
        found = super().environment()
        unknown = UNKNOWN_THERE if self.program is not None else ()
        return {name: value for name, value in found.items() if name not in unknown}
