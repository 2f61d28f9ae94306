"""What others may do to a topic's table, statement by statement: what becomes of the table, and of the log.

`docs/table-changes.md` shows the outcomes as a table, which `DRAY_RECORD=1` writes; behind them those that
delete files, whose tests are elsewhere. pyiceberg stands for every engine here: what counts is the metadata
that a statement leaves. Spark's own are in `tests/integration/test_iceberg_spark.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType
from sqlalchemy import text
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL
from tests.services.lake import Lake
from tests.unit.tables.compaction.changed_tables import a_table, rewritten

from dray.broker.topics.model import Topic
from dray.tables.compaction.table_keeper import TableKeeper, table_of
from dray.tables.contract import TableUnreadable

assert compaction_cluster  # its tests run on virtual time: see conftest

PAGE: Final = Path(__file__).parents[4] / "docs" / "table-changes.md"
BEGIN: Final = "<!-- statements: written by tests/unit/tables/compaction/test_compaction_statements.py -->\n"
END: Final = "<!-- end of statements -->\n"

KEPT: Final = "kept; new rows come"
UNDONE: Final = "undone by itself, in one commit"
MADE_AGAIN: Final = "made again by itself, with every file of the log"
PUT_BACK: Final = (
    "**held**: `drayd admin table TOPIC --put-back`, or by itself with `iceberg.foreign_rows: revert`"
)
REBUILD: Final = "**held**: set it back, or `drayd admin table TOPIC --rebuild`"


@dataclass(frozen=True)
class Statement:
    words: str
    run: Callable[[Table], object]
    outcome: str


def changing_properties(table: Table) -> None:
    with table.transaction() as changed:
        changed.set_properties({"gc.enabled": "true", "team": "billing", "write.wap.enabled": "true"})


def forgetting_the_topic(table: Table) -> None:
    with table.transaction() as changed:
        changed.remove_properties("dray.topic_id")


def tagging(table: Table) -> None:
    newest = table.metadata.current_snapshot_id
    assert newest is not None
    table.manage_snapshots().create_tag(newest, "june").create_branch(newest, "audit").commit()


def rolling_back(table: Table) -> None:
    first, *_ = table.metadata.snapshots
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()


def inserting(table: Table) -> None:
    table.append(table.scan(row_filter="offset = 1").to_arrow())


def updating(table: Table) -> None:
    table.overwrite(table.scan(row_filter="offset = 1").to_arrow(), overwrite_filter="offset = 1")


def expiring(table: Table) -> None:
    table.maintenance.expire_snapshots().by_ids(
        [each.snapshot_id for each in table.metadata.snapshots if each != table.current_snapshot()]
    ).commit()


def altering(change: Callable[[Any], object]) -> Callable[[Table], object]:
    def run(table: Table) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            change(update)

    return run


def dropping_and_adding(table: Table) -> None:
    altering(lambda update: update.delete_column("attributes"))(table)
    table.refresh()
    altering(lambda update: update.add_column("attributes", StringType()))(table)


def partitioning(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("offset", BucketTransform(4), "b")


def upgrading(table: Table) -> None:
    """As Spark does it: pyiceberg refuses to."""
    _write_metadata(table, lambda metadata: metadata.update({"format-version": 3, "next-row-id": 0}))


def adding_what_is_new(table: Table) -> None:
    """Then pyiceberg cannot even read it."""

    def add(metadata: dict[str, Any]) -> None:
        column = {"id": 40, "name": "more", "type": "variant", "required": False}
        metadata["schemas"][-1]["fields"].append(column)

    upgrading(table)
    table.refresh()
    _write_metadata(table, add)


def _write_metadata(table: Table, change: Callable[[dict[str, Any]], object]) -> None:
    metadata = json.loads(table.io.new_input(table.metadata_location).open().read())
    change(metadata)
    location = table.metadata_location.replace(".metadata.json", "-3.metadata.json")
    with table.io.new_output(location).create() as written:
        written.write(json.dumps(metadata).encode())
    assert isinstance(table.catalog, SqlCatalog)
    with table.catalog.engine.begin() as connection:
        named = text("update iceberg_tables set metadata_location = :location where table_name = 'orders'")
        connection.execute(named, {"location": location})


STATEMENTS: Final = (
    Statement("`CREATE TAG`, `CREATE BRANCH`", tagging, f"{KEPT}; a tagged snapshot is never expired"),
    Statement("`expire_snapshots` of pyiceberg, which deletes no file", expiring, KEPT),
    Statement(
        "`ADD COLUMN` (rows of the log are null in it)",
        altering(lambda update: update.add_column("region", StringType())),
        KEPT,
    ),
    Statement(
        "`RENAME COLUMN`, and reorder, widen, make optional",
        altering(lambda update: update.rename_column("value", "payload")),
        f"{KEPT}: files are read by field id",
    ),
    Statement(
        "`ADD PARTITION FIELD`, another default partitioning",
        partitioning,
        f"{KEPT}; files of the log stay in theirs",
    ),
    Statement(
        "`SET TBLPROPERTIES` of your own, comments; `gc.enabled`",
        changing_properties,
        f"{KEPT}; `gc.enabled` is set back within seconds",
    ),
    Statement(
        "`UNSET TBLPROPERTIES ('dray.topic_id')`",
        forgetting_the_topic,
        "set back within seconds; new rows come",
    ),
    Statement("`rewrite_data_files`: the same rows in other files", rewritten, UNDONE),
    Statement("`DROP TABLE`", lambda table: table.catalog.drop_table(table.name()), MADE_AGAIN),
    Statement(
        "`RENAME TABLE`",
        lambda table: table.catalog.rename_table(table.name(), (*table.name()[:-1], "other")),
        MADE_AGAIN,
    ),
    Statement("`DELETE`, of a row or a partition", lambda table: table.delete("offset = 3"), PUT_BACK),
    Statement("`TRUNCATE`", lambda table: table.delete("offset >= 0"), PUT_BACK),
    Statement("`INSERT`", inserting, PUT_BACK),
    Statement("`UPDATE`, `MERGE`, `INSERT OVERWRITE`", updating, PUT_BACK),
    Statement("`rollback_to_snapshot`, `set_current_snapshot`", rolling_back, PUT_BACK),
    Statement(
        "`DROP COLUMN`, of one of the columns above",
        altering(lambda update: update.delete_column("attributes")),
        REBUILD,
    ),
    Statement("the same, and `ADD COLUMN` again: it has another field id", dropping_and_adding, REBUILD),
    Statement("`SET TBLPROPERTIES ('format-version' = '3')`", upgrading, REBUILD),
    Statement(
        "the same, and `ADD COLUMN` of a type that only that has: `variant`", adding_what_is_new, REBUILD
    ),
)


@dataclass(frozen=True)
class Dangerous:
    """A statement that deletes files, or tries to, and the tests that keep what is said of it."""

    words: str
    outcome: str
    log: str
    tests: tuple[str, ...]


LOST: Final = "**files are deleted**, where the role may: `drayd admin lost TOPIC` says which"
DANGEROUS: Final = (
    Dangerous(
        "`expire_snapshots`, `remove_orphan_files`, `DROP TABLE ... PURGE` of Spark",
        "refused by the engine (GC is disabled)",
        "whole",
        ("integration/test_iceberg_spark.py::test_sparks_maintenance_deletes_nothing",),
    ),
    Dangerous(
        "`purge_table` of pyiceberg (SQL, Glue and Hive catalogs)",
        "made again by itself, with the files that are left",
        f"on local disks whole (second names); in a bucket {LOST}",
        (
            "unit/objects/test_objects_second_names.py::test_a_purge_of_the_table_does_not_reach_the_log",
            "unit/tables/compaction/test_compaction_collector.py::"
            "test_a_file_that_is_gone_is_said_and_never_put_into_a_table",
        ),
    ),
    Dangerous(
        "`gc.enabled=true` and at once `rewrite_data_files`, `expire_snapshots`",
        "**held**, and has all rows: do not drop it",
        "the same; `drayd admin lost TOPIC --recover` brings the rows back",
        (
            "unit/tables/iceberg/test_iceberg_cli.py::test_rows_of_lost_files_come_back_from_the_table",
            "unit/tables/iceberg/test_iceberg_cli.py::test_nothing_is_dropped_that_may_be_the_last_copy",
        ),
    ),
    Dangerous(
        "`gc.enabled=true` and at once `DELETE`, `expire_snapshots`; or `DROP TABLE ... PURGE`",
        "**held**; made again with the files that are left",
        "the same; what no version of the bucket and no row of the table has is gone",
        (
            "unit/log/test_log_lost_objects.py::test_a_lost_file_becomes_a_gap",
            "integration/test_lost_objects.py::test_what_somebody_deleted_comes_back_and_consumers_read_on",
        ),
    ),
)


def shown() -> str:
    lines = [f"| {each.words} | {each.outcome} | whole |" for each in STATEMENTS]
    lines += [f"| {each.words} | {each.outcome} | {each.log} |" for each in DANGEROUS]
    heads = ["| what somebody runs | what becomes of the table | the log |", "|---|---|---|"]
    return "\n".join([*heads, *lines]) + "\n"


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    made = Lake(tmp_path)
    yield made
    await made.close()


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.words)
async def test_a_statement(lake: Lake, statement: Statement) -> None:
    """Whatever it is, the log is whole, and goes on at once or when compaction has lost its patience."""
    topic, table = await a_table(lake, 4)
    await lake.cluster.fill(topic.streams[0], 2, first=4)
    await lake.cluster.worker(replace(ALL, snapshot_keep_ms=1 << 40)).once()
    lake.put_files()
    table.refresh()
    statement.run(table)
    await lake.cluster.fill(topic.streams[0], 1, first=6)
    summary = await lake.cluster.worker().once()
    await lake.cluster.check_log()
    if statement.outcome not in (PUT_BACK, REBUILD):
        assert summary.finished == 1
        assert (await lake.cluster.worker().once()).troubles == []
        await check(lake, topic)
        return
    assert summary.finished == 0
    told = summary.troubles[0].reason
    assert "\n" not in told
    assert ("--put-back" if statement.outcome == PUT_BACK else "--rebuild") in told
    await goes_on(lake, topic)
    if statement.outcome == PUT_BACK:
        await lake.cluster.worker(replace(ALL, revert_foreign_rows=True)).once()
    else:
        await rebuild(lake, topic)
    assert (await lake.cluster.worker().once()).troubles == []
    await check(lake, topic)


async def goes_on(lake: Lake, topic: Topic) -> None:
    """WAL objects are freed, and records can be deleted."""
    await lake.cluster.worker(replace(ALL, table_patience_seconds=0.0)).once()
    assert lake.cluster.keys("wal/refs/") == []
    assert await lake.cluster.log.delete_records(topic.streams[0], 1) == 1
    await lake.cluster.check_log()


async def rebuild(lake: Lake, topic: Topic) -> None:
    """As `drayd admin table TOPIC --rebuild --execute` does it."""
    cluster = lake.cluster
    keeper = TableKeeper(cluster.streams, cluster.objects, cluster.runtime, lake.tables)
    await keeper.log_files(topic)
    try:
        await lake.tables.drop(table_of(topic))
    except TableUnreadable:
        await lake.tables.drop_unreadable(topic.name)
    await keeper.restore(topic)


async def check(lake: Lake, topic: Topic) -> None:
    """The table is what the log is: read by pyiceberg, whatever its columns are called now."""
    lake.put_files()
    table = await lake.tables.load("orders")
    assert table is not None
    name = "payload" if "payload" in table.schema().column_names else "value"
    rows: dict[int, list[tuple[int, bytes]]] = {place: [] for place in range(len(topic.streams))}
    for row in table.scan().to_arrow().to_pylist():
        rows[row["partition"]].append((row["offset"], row[name]))
    for partition, stream in enumerate(topic.streams):
        assert sorted(rows[partition]) == await lake.cluster.read(stream)


@pytest.mark.parametrize("statement", DANGEROUS, ids=lambda statement: statement.words)
def test_what_is_said_of_a_dangerous_one_is_tested(statement: Dangerous) -> None:
    for test in statement.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (Path(__file__).parents[3] / path).read_text()


def test_the_page_shows_it() -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    found, _, after = rest.partition(END)
    if os.environ.get("DRAY_RECORD") == "1":
        PAGE.write_text(f"{before}{BEGIN}{shown()}{END}{after}")
        return
    assert found == shown(), "DRAY_RECORD=1 writes it"
