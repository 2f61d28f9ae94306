"""Files of the log that another program deleted come back from their second names."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog.sql import SqlCatalog

from dray.base.runtime import SystemRuntime
from dray.objects.contract import ObjectMissing
from dray.objects.factory import open_store
from dray.objects.local.store import LocalStore

FILE = "compaction/v1/topic=orders/job-1.parquet"


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    made = SystemRuntime()
    yield made
    made.close()


@pytest.fixture
async def store(tmp_path: Path, runtime: SystemRuntime) -> AsyncIterator[LocalStore]:
    opened = await open_store(f"file:{tmp_path}", {}, runtime)
    assert isinstance(opened, LocalStore)
    yield opened
    await opened.close()


async def listed(store: LocalStore, prefix: str = "") -> list[str]:
    return sorted([info.path async for info in store.list(prefix)])


Look = Callable[[LocalStore], Awaitable[object]]
WAYS: dict[str, Look] = {
    "get": lambda store: store.get(FILE),
    "head": lambda store: store.head(FILE),
    "get ranges": lambda store: store.get_ranges(FILE, [(1, 2)]),
    "get large ranges": lambda store: store.get_ranges(FILE, [(0, 2 << 20)]),
    "list": lambda store: listed(store, "compaction/"),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_deleted_file_is_there_for_every_way_of_looking(
    store: LocalStore, tmp_path: Path, way: str
) -> None:
    data = bytes(2 << 20)
    await store.put(FILE, [data])
    for _ in range(2):  # it is protected again afterwards
        (tmp_path / FILE).unlink()
        await WAYS[way](store)
        assert (tmp_path / FILE).read_bytes() == data
        await store._runtime.in_thread(store._forget_open, FILE)  # as when it was not read for a while


async def test_a_whole_folder_comes_back(store: LocalStore, tmp_path: Path) -> None:
    await store.put(FILE, [b"rows"])
    await store.put("compaction/v1/topic=orders/job-2.parquet", [b"more"])
    shutil.rmtree(tmp_path / "compaction")
    assert bytes(await store.get(FILE)) == b"rows"
    shutil.rmtree(tmp_path / "compaction")
    found = await listed(store, "compaction/")
    assert found == [FILE, "compaction/v1/topic=orders/job-2.parquet"]
    assert [bytes(await store.get(path)) for path in found] == [b"rows", b"more"]


async def test_what_the_log_deletes_is_gone_and_gives_its_space_back(
    store: LocalStore, tmp_path: Path
) -> None:
    await store.put(FILE, [b"rows"])
    assert os.stat(tmp_path / FILE).st_nlink == 2
    await store.delete(FILE)
    with pytest.raises(ObjectMissing):
        await store.head(FILE)
    assert await listed(store) == []
    assert not list(tmp_path.rglob("*.parquet"))  # noqa: ASYNC240


async def test_files_are_listed_once(store: LocalStore) -> None:
    await store.put(FILE, [b"rows"])
    await store.put("wal/1", [b"wal"])
    assert await listed(store) == [FILE, "wal/1"]
    with pytest.raises(ValueError, match="reserved"):
        await store.get(f".dray-kept/{FILE}")


async def test_a_file_of_an_earlier_build_gets_a_second_name(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir(parents=True)
    (tmp_path / FILE).write_bytes(b"old")
    assert await listed(store, "compaction/") == [FILE]
    (tmp_path / FILE).unlink()
    assert bytes(await store.get(FILE)) == b"old"


async def test_a_replaced_object_comes_back_as_it_was_last(store: LocalStore, tmp_path: Path) -> None:
    await store.put(FILE, [b"first"])
    await store.put(FILE, [b"second"])
    (tmp_path / FILE).unlink()
    assert bytes(await store.get(FILE)) == b"second"


async def test_objects_that_no_table_names_have_none(store: LocalStore, tmp_path: Path) -> None:
    await store.put("wal/1", [b"wal"])
    assert os.stat(tmp_path / "wal/1").st_nlink == 1


async def test_a_purge_of_the_table_does_not_reach_the_log(store: LocalStore, tmp_path: Path) -> None:
    """pyiceberg's purge of the SQL catalog never asks `gc.enabled`: it deleted the log in one call."""
    rows = pa.table({"offset": pa.array([1, 2, 3], pa.int64())})
    sink = pa.BufferOutputStream()
    parquet.write_table(rows, sink)
    written = sink.getvalue().to_pybytes()
    await store.put(FILE, [written])
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog", warehouse=f"file://{tmp_path}/tables")
    catalog.create_namespace("dray")
    table = catalog.create_table("dray.orders", rows.schema, properties={"gc.enabled": "false"})
    table.add_files([f"file://{tmp_path}/{FILE}"])
    catalog.purge_table("dray.orders")
    assert not (tmp_path / FILE).exists(), "pyiceberg deletes it no more: then this test proves nothing"
    assert bytes(await store.get(FILE)) == written
    catalog.close()
