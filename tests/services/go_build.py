"""Programs written in Go, built once from the module proxy and kept outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.services.maven import exclusively
from tests.services.tools import cache_directory

BUILD_SECONDS = 900


class ProgramMissing(Exception):
    """Why this machine cannot have a program, in one line."""


def go_program(package: str, version: str, name: str | None = None) -> Path:
    """The program of a main package such as `host/module/cmd/name`, at a version of its module. `name` is
    for packages that end with a version."""
    name = name or package.rpartition("/")[2]
    home = cache_directory() / f"{name}-{version}"
    program = home / name
    with exclusively(home):
        if program.exists():
            return program
        go = shutil.which("go")
        if go is None:
            raise ProgramMissing(f"needs go to build {name}, which this machine lacks")
        fresh = home / "building"
        try:
            done = subprocess.run(
                [go, "install", f"{package}@{version}"],
                env=os.environ | {"GOBIN": str(fresh), "GOFLAGS": "-buildvcs=false"},
                capture_output=True,
                text=True,
                timeout=BUILD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProgramMissing(f"go did not build {name} in {BUILD_SECONDS} s") from None
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no output"]
            raise ProgramMissing(f"go could not build {name}: {lines[-1]}")
        os.rename(fresh / name, program)
    return program
