"""Oxia's program: built from the module proxy, or the one that `DRAY_TEST_OXIA_BINARY` names.

Of the versions after this one the proxy gives out no server: they are several modules, and two are missing.
The engine is made for both kinds, so the same tests run on whatever program is named.

This version has a fault that no client can live with: a leader gives a write its place in the log under a
lock, and appends it after letting go, so of two writes at once the second may come first, and then the shard
refuses every write (https://github.com/oxia-db/oxia/issues/772). Later versions append under the lock. So
does the program that is built here: one word is put into its source.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from tests.services.go_build import ProgramMissing, run
from tests.services.tools import cache_directory, exclusively, missing

MODULE = "github.com/oxia-db/oxia"
VERSION = "v0.14.0"

FAULTY_FILE = Path("server", "leader_controller.go")
FAULTY = "\tlc.Unlock()\n\trequest := requestSupplier(newOffset)\n"
MENDED = "\tdefer lc.Unlock()\n\trequest := requestSupplier(newOffset)\n"


def require_oxia() -> Path:
    """The program, or the end of the test."""
    found = find_oxia()
    if isinstance(found, ProgramMissing):
        missing(str(found))
    return found


@cache
def find_oxia() -> Path | ProgramMissing:
    """Looked for once: every test that needs it hears the same."""
    named = os.environ.get("DRAY_TEST_OXIA_BINARY")
    if named is not None:
        if not os.access(named, os.X_OK):
            return ProgramMissing(f"DRAY_TEST_OXIA_BINARY names {named}, which cannot be run")
        return Path(named)
    home = cache_directory() / f"oxia-{VERSION}-mended"
    program = home / "oxia"
    with exclusively(home):
        try:
            if not program.exists():
                build(home, program)
        except ProgramMissing as reason:
            return reason
    return program


@cache
def flags(program: Path, command: str) -> frozenset[str]:
    """The options of a command of the program: versions differ."""
    asked = [str(program), command, "--help"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True)
    return frozenset(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", done.stdout, re.MULTILINE))


def build(home: Path, program: Path) -> None:
    if shutil.which("go") is None:
        raise ProgramMissing("needs go to build Oxia, or DRAY_TEST_OXIA_BINARY")
    sources = home / "sources"
    shutil.rmtree(sources, ignore_errors=True)
    shutil.copytree(downloaded(home), sources)
    for path in (sources, *sources.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)  # the module cache is read-only
    mend(sources / FAULTY_FILE)
    run(["go", "build", "-buildvcs=false", "-o", "program", "./cmd"], sources, "oxia")
    (sources / "program").rename(program)
    shutil.rmtree(sources)


def downloaded(home: Path) -> Path:
    """Where the module cache has the source. The first command is the one that says what went wrong."""
    module = f"{MODULE}@{VERSION}"
    run(["go", "mod", "download", module], home, "oxia")
    return Path(json.loads(run(["go", "mod", "download", "-json", module], home, "oxia"))["Dir"])


def mend(source: Path) -> None:
    text = source.read_text()
    if text.count(FAULTY) != 1:
        raise ProgramMissing(f"the source of Oxia {VERSION} is not what it was: {source.name}")
    source.write_text(text.replace(FAULTY, MENDED))
