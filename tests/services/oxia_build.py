"""Oxia's program, found or built.

Oxia is four Go modules whose `replace` lines point at each other, so `go install` refuses it. They are taken
from the module proxy at one commit, laid side by side as in their repository, and built there.
`DRAY_TEST_OXIA_BINARY` names a program that is there already.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.services.go_build import BUILD_SECONDS, ProgramMissing
from tests.services.maven import exclusively
from tests.services.tools import cache_directory, missing

REPOSITORY = "github.com/oxia-db/oxia"
MODULES = ("cmd", "oxiad", "oxia", "common")
VERSION = "0.17.1"
COMMIT = "3f7a9baaf9a26a64ea22e942e2fbb7c6748fc268"


def require_oxia() -> Path:
    """The program, or the end of the test."""
    found = find_oxia()
    if isinstance(found, ProgramMissing):
        missing(str(found), "oxia")
    return found


@cache
def find_oxia() -> Path | ProgramMissing:
    """Looked for once: every test that needs it hears the same."""
    try:
        return oxia_program()
    except ProgramMissing as reason:
        return reason


def oxia_program() -> Path:
    named = os.environ.get("DRAY_TEST_OXIA_BINARY")
    if named is not None:
        if not os.access(named, os.X_OK):
            raise ProgramMissing(f"DRAY_TEST_OXIA_BINARY names {named}, which cannot be run")
        return Path(named)
    home = cache_directory() / f"oxia-{VERSION}"
    program = home / "oxia"
    with exclusively(home):
        if not program.exists():
            build(home, program)
    return program


def build(home: Path, program: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise ProgramMissing("needs go to build Oxia, or DRAY_TEST_OXIA_BINARY")
    sources = home / "sources"
    for module in MODULES:
        laid = sources / module
        if not laid.exists():
            shutil.copytree(download(go, module), laid.with_suffix(".copying"), dirs_exist_ok=True)
            for path in (laid.with_suffix(".copying"), *laid.with_suffix(".copying").rglob("*")):
                path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
            laid.with_suffix(".copying").rename(laid)
    fresh = home / "oxia.building"
    run(
        [go, "build", "-o", str(fresh), "."], sources / "cmd", {"GOWORK": "off", "GOFLAGS": "-buildvcs=false"}
    )
    fresh.rename(program)


def download(go: str, module: str) -> Path:
    answer = run(
        [go, "mod", "download", "-json", f"{REPOSITORY}/{module}@{COMMIT}"], Path("/"), {"GOWORK": "off"}
    )
    return Path(json.loads(answer)["Dir"])


def run(command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ProgramMissing(f"go did not build Oxia in {BUILD_SECONDS} s") from None
    if done.returncode != 0:
        raise ProgramMissing(f"go could not build Oxia {VERSION}: {complaint(done)}")
    return done.stdout


def complaint(done: subprocess.CompletedProcess[str]) -> str:
    """One line of what went wrong: `go mod download -json` puts it into its answer."""
    try:
        text = str(json.loads(done.stdout)["Error"])
    except (ValueError, KeyError):
        text = done.stderr.strip() or "no output"
    return " ".join(text.splitlines()[-2:]).replace("\t", " ")
