"""SIGHUP: files and the log level are read again, and the process goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from dray.base.runtime import SystemRuntime
from dray.base.telemetry.levels import level_of, reset_levels, set_level
from dray.daemons.assembly.http_security import TOKEN_FILE, HttpTokenFile
from dray.daemons.assembly.reread import Rereading
from dray.daemons.assembly.watched_files import refresh_files
from dray.daemons.config import FlagValue, load

FIRST, SECOND = "a" * 40, "b" * 40


@pytest.fixture(autouse=True)
def levels_stay() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    reset_levels(logging.getLevelName(before))


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - a thread sets no event of ours
            await asyncio.sleep(0.01)


async def test_files_and_the_level_of_the_config_are_taken_at_once(tmp_path: Path) -> None:
    config, token = tmp_path / "dray.yaml", tmp_path / "token"
    config.write_text("logging: {level: info}\n")
    token.write_text(FIRST)
    runtime, file = SystemRuntime(threads=1), HttpTokenFile(token)
    loaded = load(config, {}, iter([FlagValue("--data-dir", "data_dir", str(tmp_path))]))
    looking = asyncio.ensure_future(refresh_files({TOKEN_FILE: file}, runtime))  # in ten seconds
    rereading = Rereading(runtime, loaded.again)
    set_level("dray.log", "FATAL")
    await asyncio.sleep(0)
    config.write_text("logging: {level: debug}\n")
    token.write_text(SECOND)
    rereading.ask()
    await until(lambda: level_of("dray.broker") == logging.DEBUG)
    assert level_of("dray.log") == logging.DEBUG, "what was changed while it ran is as the config says again"
    assert file.current == (SECOND.encode(),)
    looking.cancel()


async def test_a_config_that_cannot_be_used_leaves_the_level(tmp_path: Path) -> None:
    config = tmp_path / "dray.yaml"
    config.write_text("logging: {level: error}\n")
    loaded = load(config, {})
    rereading = Rereading(SystemRuntime(threads=1), loaded.again)
    with capture_logs() as lines:
        for text, event in (("logging: {level: loud}\n", "cannot be read"), ("{}", "and the log level")):
            config.write_text(text)
            rereading.ask()
            await until(lambda event=event: any(event in line["event"] for line in lines))
    said = [line for line in lines if "cannot be read" in line["event"]]
    assert [line["log_level"] for line in said] == ["error"]
    assert "logging.level" in said[0]["error"]
    assert logging.getLogger().level == logging.INFO
