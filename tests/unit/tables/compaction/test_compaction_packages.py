"""Whoever finds a package missing says the same: what cannot run, and what to do about it."""

from __future__ import annotations

import importlib.util

import pytest

from dray.tables.compaction.packages import missing_packages, needs


def test_what_is_missing_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing_packages() is None
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name.startswith("py") else found(name)
    )
    told = missing_packages()
    assert told == (
        "pyspark and pyiceberg not installed: run `make setup-pipeline`, or pip install 'dray[pipeline]'"
    )


def test_a_part_that_found_out_by_importing() -> None:
    told = needs("queries", ImportError("no", name="duckdb"))
    assert told.startswith("queries cannot run: duckdb not installed: run `make setup-pipeline`")
