"""Tables in a SQLite catalog of their own, over a local object store; and what tests ask of tables."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from tests.services.iceberg_files import TopicFiles

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import TableChange
from dray.tables.iceberg.locations import Locations, locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

CLUSTER = "cluster-one"


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    made = SystemRuntime(threads=8)
    yield made
    made.close()


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    return locations(f"file:{tmp_path / 'objects'}", {}, {})


@pytest.fixture
def settings(tmp_path: Path) -> CatalogSettings:
    return CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "lake")


@pytest.fixture
async def tables(
    settings: CatalogSettings, places: Locations, runtime: SystemRuntime
) -> AsyncIterator[IcebergTables]:
    made = IcebergTables(settings, places, CLUSTER, runtime)
    yield made
    await made.close()


@pytest.fixture
def files(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path / "objects")


async def ours(_: TableChange) -> bool:
    return True


async def loaded(tables: IcebergTables, files: TopicFiles) -> Table:
    table = await tables.load(files.topic.topic)
    assert table is not None
    return table


def newest(table: Table) -> Snapshot:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot


def rows_of(table: Table) -> list[dict[str, Any]]:
    rows = table.scan().to_arrow().to_pylist()
    for row in rows:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1_000_000)
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def metadata_on_disk(files: TopicFiles) -> set[str]:
    """Without the checksums that a catalog on Hadoop's file system puts beside its files."""
    found = (path for path in (files.root / "iceberg").rglob("*") if path.is_file() and path.suffix != ".crc")
    return {str(path.relative_to(files.root)) for path in found}


async def first_commit(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-1", files.write(0, 0))], ours)


async def check(tables: IcebergTables, files: TopicFiles, snapshots: int) -> None:
    table = await loaded(tables, files)
    assert rows_of(table) == files.records_of(set(files.rows))
    assert len(table.metadata.snapshots) == snapshots
