"""The tables read by Trino, through a REST catalog: another engine, with a Parquet reader of its own."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.services.iceberg_rest import RestCatalogProcess
from tests.services.trino import TrinoError, TrinoProcess, require_java
from tests.unit.tables.iceberg.harness import CLUSTER, files, ours, places, runtime

from dray.base.runtime.system import SystemRuntime
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

__all__ = ["files", "places", "runtime"]

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

ROWS = """
select partition, "offset", date_diff('millisecond', from_unixtime(0, 'UTC'), timestamp) * 1000, key, value,
       headers, producer_id, producer_epoch, base_sequence, attributes
from dray.lake.orders order by partition, "offset"
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalogProcess]:
    require_java()
    with RestCatalogProcess(tmp_path / "rest", tmp_path / "warehouse") as process:
        yield process


@pytest.fixture
async def tables(
    server: RestCatalogProcess, places: Locations, runtime: SystemRuntime
) -> AsyncIterator[IcebergTables]:
    made = IcebergTables(CatalogSettings("rest", server.uri, "lake"), places, CLUSTER, runtime)
    yield made
    await made.close()


@pytest.fixture
def trino(server: RestCatalogProcess, tmp_path: Path) -> Iterator[TrinoProcess]:
    catalog = {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": server.uri,
        "fs.hadoop.enabled": "true",  # for local files
    }
    with TrinoProcess(tmp_path / "trino", {"dray": catalog}) as process:
        yield process


def as_trino(record: dict[str, Any]) -> list[Any]:
    headers = [[header["key"], header["value"]] for header in record["headers"]]
    return [headers if name == "headers" else value for name, value in record.items()]


def decoded(row: list[Any]) -> list[Any]:
    """What is binary travels as base64."""

    def data(text: str | None) -> bytes | None:
        return None if text is None else b64decode(text)

    headers = [[key, data(value)] for key, value in row[5]]
    return [*row[:3], data(row[3]), data(row[4]), headers, *row[6:]]


async def test_trino_reads_what_was_committed(
    trino: TrinoProcess, tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    first, second = files.write(0, 0, 20), files.write(1, 0, 10)
    await tables.commit(files.topic, [files.change("100-1", first), files.change("101-1", second)], ours)
    expected = [as_trino(record) for record in files.records_of(set(files.rows))]
    assert [decoded(row) for row in trino.rows(ROWS)] == expected
    narrowed = 'select count(*), max("offset") from dray.lake.orders where partition = 1 and "offset" >= 7'
    assert trino.rows(narrowed) == [[3, 9]]
    # Through a rewrite: the same rows from another file.
    merged = files.write(0, 0, 20, job=2)
    await tables.commit(files.topic, [files.change("100-2", merged, removed=(first.path,))], ours)
    assert [decoded(row) for row in trino.rows(ROWS)] == expected
    with pytest.raises(TrinoError, match="GC is disabled"):
        trino.rows("alter table dray.lake.orders execute expire_snapshots")
