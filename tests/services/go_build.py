"""Programs written in Go, built once from the module proxy and kept outside of the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.tools import cache_directory, exclusively

BUILD_SECONDS = 900


class ProgramMissing(Exception):
    """Why this machine cannot have a program, in one line."""


def go_program(package: str, version: str, name: str | None = None) -> Path:
    """The program of a main package such as `host/module/cmd/name`, at a version of its module; `name` is for
    packages that are called otherwise.

    It is built as a dependency of an empty module: `go install` refuses modules with replace directives."""
    name = name or package.rpartition("/")[2]
    home = cache_directory() / f"{name}-{version}"
    program = home / name
    with exclusively(home):
        if program.exists():
            return program
        if shutil.which("go") is None:
            raise ProgramMissing(f"needs go to build {name}, which this machine lacks")
        module = home / "module"
        shutil.rmtree(module, ignore_errors=True)
        module.mkdir()
        for command in (
            ["go", "mod", "init", "dray-tests"],
            ["go", "get", f"{package}@{version}"],
            ["go", "build", "-buildvcs=false", "-o", "program", package],
        ):
            run(command, module, name)
        os.rename(module / "program", program)
        shutil.rmtree(module)
    return program


def run(command: Sequence[str], directory: Path, name: str) -> str:
    """What the command prints, or `ProgramMissing` with its last line."""
    environment = os.environ | {"GOWORK": "off"}
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
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
    return done.stdout
