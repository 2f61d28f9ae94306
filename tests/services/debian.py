"""Debian's packages, downloaded and unpacked without root: apt with lists and a cache of its own. Nothing is
installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.services.tools import cache_directory, exclusively, missing


def unpacked(package: str, name: str, *, alone: bool = False) -> Path:
    """The folder of a package with all that it needs, or `alone`; kept in the cache under a name of ours."""
    directory = cache_directory() / name
    root = directory / "root"
    with exclusively(directory):
        if not root.exists():
            _unpack(package, directory, alone=alone)
    return root


def _unpack(package: str, directory: Path, *, alone: bool) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        missing(f"needs apt-get and dpkg-deb to fetch {package}")
    lists, cache, root = directory / "lists", directory / "cache", directory / "root.part"
    archives = cache / "archives"
    for folder in (lists / "partial", archives / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=1"]
    fetch = ["download", package] if alone else ["--yes", "--download-only", "install", package]
    try:
        for command in (["update"], fetch):
            subprocess.run(
                ["apt-get", "--quiet=2", *options, *command],
                check=True,
                capture_output=True,
                timeout=300,
                cwd=archives,
            )
        shutil.rmtree(root, ignore_errors=True)
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True, timeout=240)
    except (subprocess.SubprocessError, OSError) as error:
        missing(f"{package} cannot be fetched: {error}")
    shutil.rmtree(cache)
    shutil.rmtree(lists)
    root.rename(directory / "root")
