"""The tables of a console: a query reads a plain one without the library, which judges all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from dray.base.runtime.system import SystemRuntime
from dray.daemons.config import load
from dray.daemons.console import parts
from dray.daemons.console.parts import TablesWhenAsked
from dray.tables.iceberg.view import NotPlain, TableView, no_table_yet

PLAIN, FULL = (no_table_yet(name, UUID(int=1)) for name in ("plain", "full"))


class Library:
    async def view(self, topic: str) -> TableView | None:
        return FULL


@pytest.mark.parametrize("is_plain", [True, False])
async def test_a_query_loads_the_library_only_for_what_is_not_plain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_plain: bool
) -> None:
    loaded: list[str] = []

    def make(*_: Any) -> Library:
        loaded.append("the library")
        return Library()

    def look(*_: Any) -> TableView | None:
        if not is_plain:
            raise NotPlain("another catalog")
        return PLAIN

    monkeypatch.setattr(parts, "make_tables", make)
    monkeypatch.setattr("dray.daemons.compactor.catalogs.plain_view", look)
    runtime = SystemRuntime(threads=2)
    source = TablesWhenAsked(load(None, {"DRAY_DATA_DIR": str(tmp_path)}).settings, "cluster", runtime)
    assert await source.rows_view("orders") is (PLAIN if is_plain else FULL)
    assert loaded == ([] if is_plain else ["the library"])
    assert await source.view("orders") is FULL, "the page of the table says what others changed"
    runtime.close()
