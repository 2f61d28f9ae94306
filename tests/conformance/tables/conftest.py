"""Every implementation of the tables port: the one in memory, and Iceberg with a SQL catalog on files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.services.iceberg_files import TopicFiles

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import Tables
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray_simulation.cluster.tables import MemoryCatalog, MemoryTables

Opener = Callable[[], Tables]


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    made = SystemRuntime(threads=4)
    yield made
    made.close()


@pytest.fixture(params=["memory", "iceberg"])
async def open_tables(
    request: pytest.FixtureRequest, tmp_path: Path, runtime: SystemRuntime
) -> AsyncIterator[Opener]:
    """Each call is another process's client of the same catalog."""
    catalog = MemoryCatalog()
    opened: list[IcebergTables] = []

    def memory() -> Tables:
        return MemoryTables(catalog, runtime)

    def iceberg() -> Tables:
        settings = CatalogSettings("sql", f"sqlite:///{tmp_path / 'catalog.sqlite'}", "lake")
        places = locations(f"file:{tmp_path / 'objects'}", {}, {})
        opened.append(IcebergTables(settings, places, "cluster-one", runtime))
        return opened[-1]

    yield memory if request.param == "memory" else iceberg
    for tables in opened:
        await tables.close()


@pytest.fixture
def tables(open_tables: Opener) -> Tables:
    return open_tables()


@pytest.fixture
def files(tmp_path: Path) -> TopicFiles:
    return TopicFiles(tmp_path / "objects")
