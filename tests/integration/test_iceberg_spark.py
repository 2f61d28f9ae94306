"""The tables read by real Spark SQL with Iceberg's own runtime, and touched by it as their owners do.

The catalog is the embedded one, a SQLite file, which Spark opens by JDBC.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.services.keyed_lake import KeyedLake, documented
from tests.services.spark_sql import SparkError, SparkSql
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, ours, rows_of, runtime

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, TableRefused, TopicTable
from dray.tables.iceberg.locations import Locations, locations, table_path
from dray.tables.iceberg.settings import CATALOG_NAME, CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray_simulation.kernel.loop import run

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


async def test_times_at_the_borders(spark: SparkSql, tables: IcebergTables, files: TopicFiles) -> None:
    """From the first millisecond of 1970 to the last of 9999. What a file's statistics say of them decides
    whether it is read at all."""
    borders = (0, 1, 86_399_999, 86_400_000, 253_402_300_799_999)
    written = files.write(2, 0, len(borders), times=borders)
    await tables.commit(files.topic, [files.change("102-1", written)], ours)
    name = table_name(files)
    found = spark.rows(f"select unix_micros(timestamp) from {name} where partition = 2 order by offset")
    assert found == [[border * 1000] for border in borders]
    for where, count in (
        ("timestamp = timestamp_millis(0)", 1),
        ("timestamp < timestamp '1970-01-02 00:00:00'", 3),
        ("timestamp <= timestamp '1970-01-02 00:00:00'", 4),
        ("timestamp >= timestamp '9999-12-31 23:59:59.999'", 1),
        ("timestamp > timestamp '9999-12-31 23:59:59.999'", 0),
    ):
        assert spark.rows(f"select count(*) from {name} where {where}") == [[count]]
    rows = (await loaded(tables, files)).scan("partition = 2").to_arrow().sort_by("offset")
    assert rows.column("timestamp").cast("int64").to_pylist() == [border * 1000 for border in borders]


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


def make_old(files: TopicFiles) -> Path:
    """All files of the topic, so that their age protects none of them; and one more in the table's folder
    that nobody knows: its path."""
    folder = files.root / table_path(files.topic.topic, files.topic.topic_id)
    orphan = folder / "metadata" / "orphan.avro"
    orphan.write_bytes(b"nobody's")
    for root in (folder, files.root / "compaction"):
        for path in root.rglob("*"):
            if path.is_file():
                os.utime(path, (1_000_000_000, 1_000_000_000))
    return orphan


async def test_maintenance_of_owners_who_switch_it_on(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    """They set the property themselves, and have Spark expire and collect at once. Files of the log lie
    outside of the table's folder, and of those in it none is an orphan."""
    name, called = table_name(files), f"'lake.`{files.topic.topic}`'"
    spark.rows(f"alter table {name} set tblproperties ('gc.enabled' = 'true')")
    orphan = make_old(files)
    for procedure, more in (
        ("expire_snapshots", "older_than => timestamp '2100-01-01', retain_last => 1"),
        ("remove_orphan_files", "older_than => timestamp '2020-01-01', dry_run => false"),
    ):
        spark.rows(f"call {CATALOG_NAME}.system.{procedure}(table => {called}, {more})")
    assert not orphan.exists(), "it did what it is for"
    assert all((files.root / path).exists() for path in files.rows)
    assert len((await loaded(tables, files)).metadata.snapshots) == 1
    state = await tables.ensure(files.topic)
    assert not state.created
    outcome = await tables.commit(files.topic, [files.change("100-2", files.write(0, 20, 5))], ours)
    assert outcome == {"100-2": CommitOutcome.COMMITTED}
    table = await loaded(tables, files)
    assert rows_of(table) == files.records_of(set(files.rows))
    assert table.properties["gc.enabled"] == "false"


async def test_a_table_rolled_back_with_spark_is_refused_until_it_is_set_again(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    called = f"'lake.`{files.topic.topic}`'"
    first, newest = [snapshot.snapshot_id for snapshot in (await loaded(tables, files)).snapshots()]
    spark.rows(f"call {CATALOG_NAME}.system.rollback_to_snapshot({called}, {first})")
    change = files.change("100-2", files.write(0, 20, 5))
    for asked in (tables.ensure(files.topic), tables.commit(files.topic, [change], ours)):
        with pytest.raises(
            TableRefused, match=rf"was set back to {first}.* set it to {newest} again"
        ) as caught:
            await asked
        assert "\n" not in str(caught.value)
    spark.rows(f"call {CATALOG_NAME}.system.set_current_snapshot({called}, {newest})")
    assert await tables.commit(files.topic, [change], ours) == {"100-2": CommitOutcome.COMMITTED}
    assert spark.rows(f"select count(*) from {table_name(files)}") == [[35]]


async def test_columns_and_partitions_altered_with_spark(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    """A new name is kept, and another partitioning; a column that is gone is refused."""
    name = table_name(files)
    spark.rows(f"alter table {name} rename column value to payload")
    spark.rows(f"alter table {name} replace partition field partition with bucket(4, offset)")
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-2", files.write(0, 20, 5))], ours)
    expected = [as_spark(record)[4] for record in files.records_of(set(files.rows))]
    found = spark.rows(f"select payload from {name} order by partition, offset")
    assert [row[0] for row in found] == expected
    spark.rows(f"alter table {name} drop column attributes")
    with pytest.raises(TableRefused, match=r"its column attributes \(field id 10\) is gone; set the schema"):
        await tables.ensure(files.topic)


async def test_rows_changed_with_spark_are_refused_until_rolled_back(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles
) -> None:
    name, called = table_name(files), f"'lake.`{files.topic.topic}`'"
    good = (await loaded(tables, files)).metadata.current_snapshot_id
    spark.rows(f"delete from {name} where offset = 3")
    with pytest.raises(
        TableRefused, match=rf"another writer \(\w+\) changed its rows; roll it back to snapshot {good}"
    ):
        await tables.ensure(files.topic)
    spark.rows(f"call {CATALOG_NAME}.system.rollback_to_snapshot({called}, {good})")
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


async def test_a_stream_passes_over_what_was_deleted(
    spark: SparkSql, tables: IcebergTables, files: TopicFiles, tmp_path: Path
) -> None:
    """A file written again without its first rows is a `delete`: what is left of it is not new."""
    name, skipping = table_name(files), {"streaming-skip-delete-snapshots": "true"}
    assert len(spark.stream(name, tmp_path, skipping)) == 30
    [whole] = [path for path in files.rows if files.rows[path][0]["partition"] == 0]
    left, fresh = files.write(0, 15, 5), files.write(1, 10, 2)
    await tables.commit(
        files.topic,
        [files.change("100-2", left, removed=(whole,)), files.change("101-2", fresh)],
        ours,
    )
    assert spark.rows(f"select count(*), min(offset) from {name} where partition = 0") == [[5, 15]]
    seen = spark.stream(name, tmp_path, skipping)
    assert seen == sorted([[0, offset] for offset in range(20)] + [[1, offset] for offset in range(12)])


def test_the_latest_row_of_every_key_is_what_the_log_stands_for(spark: SparkSql, lake: Path) -> None:
    """By the documented SQL, after each kind of change. All snapshots are DuckDB's to ask for:
    `unit/compaction/test_compaction_latest.py`."""
    topic = f"shop.keyed-{uuid4().hex[:6]}"
    states = run(KeyedLake(lake, topic, Random(3)).grow(5))
    name = f"{CATALOG_NAME}.lake.`{topic}`"
    columns = "partition, key, offset, value"
    chosen = {each.operation: each for each in states} | {"newest": states[-1]}
    assert len(chosen) > 2
    for each in chosen.values():
        statements = [documented(0, f"{name} version as of {each.snapshot_id}", spark=True)]
        if each is states[-1]:
            assert each.least_clean_point is not None
            statements.append(documented(1, name, clean_point=each.least_clean_point, spark=True))
        for statement in statements:
            rows = spark.rows(f"select {columns} from ({statement})")
            found = {
                (partition, bytes.fromhex(key["hex"])): (offset, bytes.fromhex(value["hex"]))
                for partition, key, offset, value in rows
            }
            assert (found, len(rows)) == (each.state, len(each.state)), statement
    properties = dict(spark.rows(f"show tblproperties {name}"))
    assert min(int(properties[f"dray.clean.{partition}"]) for partition in (0, 1)) == each.least_clean_point
