"""The tables read by real Spark SQL with Iceberg's own runtime, and touched by it as their owners do.

The catalog is the embedded one, a SQLite file, which Spark opens by JDBC.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.services.spark_sql import SparkError, SparkSql
from tests.unit.iceberg.conftest import CLUSTER, loaded, ours, rows_of, runtime

from dray.compaction.tables import TopicTable
from dray.iceberg.locations import Locations, locations
from dray.iceberg.settings import CATALOG_NAME, CatalogSettings
from dray.iceberg.tables import IcebergTables
from dray.runtime.system import SystemRuntime

__all__ = ["runtime"]

COLUMNS = (
    "partition, offset, timestamp, key, value, headers, "
    "producer_id, producer_epoch, base_sequence, attributes"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def spark(lake: Path) -> Iterator[SparkSql]:
    embedded = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{lake / 'catalog.sqlite'}",
        "warehouse": str(lake / "objects"),
        "jdbc.schema-version": "V1",
        "cache-enabled": "false",
    }
    with SparkSql(lake / "spark", {CATALOG_NAME: embedded}) as started:
        yield started


@pytest.fixture
def places(lake: Path) -> Locations:
    return locations(f"file:{lake / 'objects'}", {}, {})


@pytest.fixture
async def tables(lake: Path, places: Locations, runtime: SystemRuntime) -> AsyncIterator[IcebergTables]:
    settings = CatalogSettings("sql", f"sqlite:///{lake / 'catalog.sqlite'}", "lake")
    made = IcebergTables(settings, places, CLUSTER, runtime)
    yield made
    await made.close()


@pytest.fixture
async def files(lake: Path, tables: IcebergTables) -> TopicFiles:
    """Of a topic with an awkward name, and a table with two commits."""
    made = TopicFiles(lake / "objects", TopicTable(f"shop.orders-{uuid4().hex[:6]}", uuid4()))
    await tables.ensure(made.topic)
    await tables.commit(made.topic, [made.change("100-1", made.write(0, 0, 20))], ours)
    await tables.commit(made.topic, [made.change("101-1", made.write(1, 0, 10))], ours)
    return made


def table_name(files: TopicFiles) -> str:
    return f"{CATALOG_NAME}.lake.`{files.topic.topic}`"


def as_spark(record: dict[str, Any]) -> list[Any]:
    def data(value: bytes | None) -> Any:
        return None if value is None else {"hex": value.hex()}

    return [
        record["partition"],
        record["offset"],
        record["timestamp"],
        data(record["key"]),
        data(record["value"]),
        [[header["key"], data(header["value"])] for header in record["headers"]],
        record["producer_id"],
        record["producer_epoch"],
        record["base_sequence"],
        record["attributes"],
    ]


async def test_spark_reads_what_was_committed(spark: SparkSql, files: TopicFiles) -> None:
    found = spark.rows(f"select {COLUMNS} from {table_name(files)} order by partition, offset")
    assert found == [as_spark(record) for record in files.records_of(set(files.rows))]
    # Answered from the files' statistics, so they have to be exact.
    assert spark.rows(f"select count(*), max(offset), min(offset) from {table_name(files)}") == [[30, 19, 0]]
    narrowed = f"select count(*) from {table_name(files)} where partition = 1 and offset >= 7"
    assert spark.rows(narrowed) == [[3]]


async def test_a_column_added_with_spark_survives(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    name = table_name(files)
    spark.rows(f"alter table {name} add columns (region string comment 'of the shop')")
    spark.rows(f"alter table {name} set tblproperties ('team' = 'billing')")
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-2", files.write(0, 20, 5))], ours)
    assert spark.rows(f"select count(*), count(region) from {name}") == [[35, 0]]
    table = await loaded(tables, files)
    assert table.schema().find_field("region").doc == "of the shop"
    assert table.properties["team"] == "billing"


async def test_sparks_maintenance_deletes_nothing(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    name, called = table_name(files), f"'lake.`{files.topic.topic}`'"
    for statement in (
        f"call {CATALOG_NAME}.system.expire_snapshots(table => {called}, retain_last => 1)",
        f"call {CATALOG_NAME}.system.remove_orphan_files(table => {called}, dry_run => false)",
        f"drop table {name} purge",
    ):
        with pytest.raises(SparkError, match="GC is disabled"):
            spark.rows(statement)
    assert all((files.root / path).exists() for path in files.rows)
    # Manifests may be put in order: no row changes, and commits go on.
    spark.rows(f"call {CATALOG_NAME}.system.rewrite_manifests(table => {called})")
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-2", files.write(0, 20, 5))], ours)
    assert rows_of(await loaded(tables, files)) == files.records_of(set(files.rows))


async def test_a_stream_over_the_table_sees_each_row_once(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles, tmp_path: Path
) -> None:
    """Through rewrites: they are snapshots of their own, which say that no row changed."""
    name = table_name(files)
    seen = spark.stream(name, tmp_path)
    assert len(seen) == 30
    old = tuple(path for path in files.rows if files.rows[path][0]["partition"] == 0)
    merged, fresh = files.write(0, 0, 20), files.write(1, 10, 5)
    await tables.commit(
        files.topic,
        [files.change("100-2", merged, removed=old), files.change("101-2", fresh)],
        ours,
    )
    seen = spark.stream(name, tmp_path)
    assert seen == sorted([[0, offset] for offset in range(20)] + [[1, offset] for offset in range(15)])
