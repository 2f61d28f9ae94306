"""A real browser: Chromium without a window, from Debian's packages, unpacked without root.

apt downloads with lists and a cache of its own, and nothing is installed. `DRAY_TEST_BROWSER` names another
program. Playwright drives it; Playwright's own download is not used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.services.tools import cache_directory, exclusively, missing

PACKAGE = "chromium-headless-shell"
PROGRAM = f"usr/lib/chromium/{PACKAGE}"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio")


def require_browser() -> Path:
    """The program of the browser, downloaded and unpacked first where that is possible."""
    named = os.environ.get("DRAY_TEST_BROWSER")
    if named:
        if not os.access(named, os.X_OK):
            missing(f"DRAY_TEST_BROWSER names {named}, which cannot be run")
        return Path(named)
    directory = cache_directory() / "chromium"
    with exclusively(directory):
        program = directory / "root" / PROGRAM
        if not program.exists():
            _unpack(directory)
        return program


def _unpack(directory: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        missing("needs apt-get and dpkg-deb to fetch Chromium, or DRAY_TEST_BROWSER")
    lists, cache, root = directory / "lists", directory / "cache", directory / "root.part"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::Lists={lists}", "-o", f"Dir::Cache={cache}", "-o", "Debug::NoLocking=1"]
    try:
        for command in (["update"], ["--yes", "--download-only", "install", PACKAGE]):
            subprocess.run(
                ["apt-get", "--quiet=2", *options, *command], check=True, capture_output=True, timeout=300
            )
        shutil.rmtree(root, ignore_errors=True)
        for package in sorted((cache / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True, timeout=120)
    except (subprocess.SubprocessError, OSError) as error:
        missing(f"Chromium cannot be fetched: {error}")
    shutil.rmtree(cache)
    shutil.rmtree(lists)
    root.rename(directory / "root")


@contextmanager
def running_browser() -> Iterator[Browser]:
    program = require_browser()
    root = program.parents[3]
    libraries = os.pathsep.join(str(root / folder) for folder in LIBRARIES)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            chromium_sandbox=os.geteuid() != 0,
            args=["--force-color-profile=srgb", "--font-render-hinting=none"],
        )
        try:
            yield browser
        finally:
            browser.close()
