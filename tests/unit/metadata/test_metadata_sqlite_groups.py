"""Writes of any number of rows: small groups and large ones go by different statements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Delete, Put
from dray.metadata.sqlite import SqliteStore
from dray.metadata.sqlite.writer import SMALL_ROWS


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    runtime = SystemRuntime(threads=1)
    made = SqliteStore(tmp_path / "metadata.sqlite", runtime)
    await made.open()
    yield made
    await made.close()
    runtime.close()


@pytest.mark.parametrize("rows", [1, 2, SMALL_ROWS - 1, SMALL_ROWS, SMALL_ROWS + 1, 3 * SMALL_ROWS])
async def test_each_row_is_judged_and_put(store: SqliteStore, rows: int) -> None:
    names = [f"key {number:03d}" for number in range(rows)]
    await store.write(1, [Put("key 000", b"of another domain")])
    first = await store.write(0, [Put(name, name.encode(), ABSENT) for name in names])
    assert all(outcome.applied for outcome in first)
    versions = [outcome.version for outcome in first]
    assert versions == sorted(set(versions))
    assert not any(
        outcome.applied for outcome in await store.write(0, [Put(name, b"no", ABSENT) for name in names])
    )
    # Every other row is aimed at a version that was never given.
    wanted = [version + 10_000 * (place % 2) for place, version in enumerate(versions)]
    second = await store.write(
        0, [Put(name, b"", version) for name, version in zip(names, wanted, strict=True)]
    )
    assert [outcome.applied for outcome in second] == [place % 2 == 0 for place in range(rows)]
    assert all(outcome.version > versions[-1] for outcome in second if outcome.applied)
    found = await store.scan(0, "key ", "kez")
    assert [record.key for record in found] == names
    assert [record.value for record in found] == [
        b"" if place % 2 == 0 else name.encode() for place, name in enumerate(names)
    ]
    assert [record.version for record in found] == [
        after.version if after.applied else before.version
        for before, after in zip(first, second, strict=True)
    ]
    await store.write(0, [Delete(name) for name in names])
    assert await store.scan(0, "key ", "kez") == []


@pytest.mark.parametrize("rows", [SMALL_ROWS, SMALL_ROWS + 1])
async def test_rows_of_a_session_go_with_it(store: SqliteStore, rows: int) -> None:
    session = await store.session(0, ttl=60.0)
    names = [f"key {number:03d}" for number in range(rows)]
    outcomes = await store.write(0, [Put(name, b"x", ABSENT, session) for name in names])
    assert all(outcome.applied for outcome in outcomes)
    await session.close()
    assert await store.scan(0, "key ", "kez") == []
    again = await store.write(0, [Put(name, b"y", ABSENT) for name in names])
    assert all(outcome.applied for outcome in again)
