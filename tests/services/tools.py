"""What a test may need from the machine, and what happens where the machine lacks it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

DEBIAN_PACKAGES = {"kcat": "kcat"}
"""Tools that we may install ourselves where we are root on a Debian machine: CI machines start bare."""


def missing(reason: str) -> NoReturn:
    """End the test: a skip for a developer, a failure where everything is required (DRAY_REQUIRE=all)."""
    if os.environ.get("DRAY_REQUIRE") == "all":
        pytest.fail(f"{reason} (DRAY_REQUIRE=all)", pytrace=False)
    pytest.skip(reason)


def require_tool(name: str) -> Path:
    """The path of a program, installed first where that is possible."""
    found = find_tool(name)
    if found is None:
        missing(f"needs {name}, which this machine lacks")
    return found


@cache
def find_tool(name: str) -> Path | None:
    found = shutil.which(name)
    if found is None and name in DEBIAN_PACKAGES:
        with exclusively(cache_directory() / "debian"):  # tests on another process may be installing it
            if shutil.which(name) is None:
                install_debian_package(DEBIAN_PACKAGES[name])
        found = shutil.which(name)
    return Path(found) if found else None


def install_debian_package(package: str) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", package]):
        try:
            done = subprocess.run(command, env=environment, capture_output=True, timeout=180, check=False)
        except subprocess.TimeoutExpired:
            return
        if done.returncode != 0:
            return


def cache_directory() -> Path:
    """Where downloaded jars and compiled helpers stay between runs: never inside the repository."""
    base = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(base) if base else Path.home() / ".cache") / "dray-tests"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@contextmanager
def exclusively(directory: Path) -> Iterator[None]:
    """One process at a time fills a cache directory."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
