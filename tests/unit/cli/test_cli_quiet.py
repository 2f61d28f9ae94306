"""A command that answers a question prints the answer: no log line ends up in somebody's JSON."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from dray.base.telemetry import quiet_logs
from dray.daemons.assembly import stores
from dray.daemons.assembly.failures import Failure
from dray.daemons.compactor import catalogs, collection
from dray.daemons.compactor.catalogs import open_tables
from dray.daemons.compactor.collection import CollectionRequest, collect
from dray.daemons.config import load


async def chatty(*_: object) -> stores.Stores:
    log = structlog.get_logger("somewhere")
    log.info("only just a word")
    log.warning("something to know")
    raise Failure("as far as this test goes")


def check(capsys: pytest.CaptureFixture[str]) -> None:
    said = capsys.readouterr()
    assert said.out == ""
    assert "only just a word" not in said.err
    assert "something to know" in said.err


async def test_whoever_reads_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalogs, "open_stores", chatty)
    (tmp_path / "metadata.sqlite").touch()
    settings = load(environment={"DRAY_DATA_DIR": str(tmp_path)}).settings
    before = structlog.get_config()
    with pytest.raises(Failure, match="as far as this test goes"):
        async with open_tables(settings):
            pass
    check(capsys)
    assert structlog.get_config() == before


def test_whoever_collects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collection, "open_stores", chatty)
    settings = load(environment={"DRAY_DATA_DIR": str(tmp_path)}).settings
    with pytest.raises(Failure, match="as far as this test goes"):
        collect(settings, CollectionRequest(now=False))
    check(capsys)


def test_what_a_quiet_command_says_holds_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback names no value of a variable, and a field that is called a secret is masked."""
    secret = "correct-horse"
    with quiet_logs():
        try:
            raise RuntimeError(f"a mistake of {len(secret)} letters")
        except RuntimeError:
            structlog.get_logger().exception("a command failed", password=secret)
    said = capsys.readouterr().err
    assert "a mistake" in said
    assert "Traceback" in said
    assert secret not in said
