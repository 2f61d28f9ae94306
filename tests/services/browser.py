"""A real browser: Chromium without a window, from Debian's packages, unpacked without root.

`DRAY_TEST_BROWSER` names another program. Playwright drives it; Playwright's own download is not used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.services.debian import unpacked
from tests.services.tools import missing

PACKAGE = "chromium-headless-shell"
PROGRAM = f"usr/lib/chromium/{PACKAGE}"
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio")

PATIENCE_MS = 60_000
"""How long a page is waited for. Playwright's five seconds are no rule of ours: a machine that does much else
takes longer now and then."""

expect.set_options(timeout=PATIENCE_MS)


def require_browser() -> Path:
    """The program of the browser, downloaded and unpacked first where that is possible."""
    named = os.environ.get("DRAY_TEST_BROWSER")
    if named:
        if not os.access(named, os.X_OK):
            missing(f"DRAY_TEST_BROWSER names {named}, which cannot be run")
        return Path(named)
    return unpacked(PACKAGE, "chromium") / PROGRAM


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


def new_context(browser: Browser, **options: Any) -> BrowserContext:
    """As `browser.new_context`, with our patience."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    return context


def picture(page: Page, name: str) -> None:
    """For people to look at, where DRAY_TEST_SCREENSHOTS names a directory."""
    directory = os.environ.get("DRAY_TEST_SCREENSHOTS")
    if directory:
        page.screenshot(path=Path(directory) / f"{quote(name)}.png", full_page=True)
