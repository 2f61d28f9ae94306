"""A table that somebody touched: what is kept, what is set back, and what is refused in one line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import BinaryType, LongType, StringType
from tests.services.iceberg_files import TopicFiles, other_topic
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, ours, rows_of

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, TableMissing, TableRefused, TablesUnavailable
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables


@pytest.fixture
def catalog(settings: CatalogSettings) -> SqlCatalog:
    """What the owner of the tables uses: plain pyiceberg on the same catalog."""
    return SqlCatalog("dray", uri=str(settings.uri))


@pytest.fixture
async def table(tables: IcebergTables, files: TopicFiles) -> Table:
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-1", files.write(0, 0))], ours)
    return await loaded(tables, files)


def move(path: Path, to: Path) -> Path:
    return path.rename(to)


async def add_more(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    outcome = await tables.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
    assert outcome == {"100-2": CommitOutcome.COMMITTED}


async def refused(tables: IcebergTables, files: TopicFiles, why: str) -> None:
    """By everything that would build on it; and the line says how to get out."""
    change = files.change("100-9", files.write(0, 90))
    for asked in (
        tables.ensure(files.topic),
        tables.commit(files.topic, [change], ours),
        tables.maintain(files.topic, [], 2**60),
    ):
        with pytest.raises(TableRefused, match=why) as caught:
            await asked
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("table lake.orders: ")


class TestKept:
    async def test_an_added_column_survives(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.update_schema() as update:
            update.add_column("region", StringType())
        await add_more(tables, files)
        table = await loaded(tables, files)
        assert table.schema().find_field("region").field_id == 14
        rows = rows_of(table)
        assert len(rows) == 6
        assert {row["region"] for row in rows} == {None}

    async def test_a_renamed_and_a_widened_column_survive(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.update_schema() as update:
            update.rename_column("value", "payload")
            update.update_column("producer_epoch", field_type=LongType())
            update.make_column_optional("attributes")
            update.move_first("offset")
        await add_more(tables, files)
        rows = rows_of(await loaded(tables, files))
        assert [row["payload"] for row in rows] == [row["value"] for row in files.records_of(set(files.rows))]

    async def test_another_default_partitioning_is_for_other_writers(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.update_spec() as update:
            update.add_field("offset", BucketTransform(4), "offset_bucket")
        await add_more(tables, files)
        assert len(rows_of(await loaded(tables, files))) == 6

    async def test_a_default_partitioning_without_ours(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.update_spec() as update:
            update.remove_field("partition")
        assert table.spec().is_unpartitioned()
        await add_more(tables, files)
        table = await loaded(tables, files)
        assert rows_of(table) == files.records_of(set(files.rows))
        found = [task.file.spec_id for task in table.scan(row_filter="partition = 0").plan_files()]
        assert found == [0, 0], "files of the log are where they always were"

    async def test_snapshots_expired_by_others(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        """The one that names a job is gone; its file is not, and is not added once more."""
        first, [path] = table.metadata.current_snapshot_id, files.rows
        await add_more(tables, files)
        table.refresh()
        assert first is not None
        table.maintenance.expire_snapshots().by_id(first).commit()
        assert await tables.committed(files.topic, ["100-1"]) == set()
        written = files.write(0, 0)
        again = replace(written, written=replace(written.written, path=path))
        files.rows = {kept: rows for kept, rows in files.rows.items() if kept == path or rows[0]["offset"]}
        outcome = await tables.commit(files.topic, [files.change("100-1", again)], ours)
        assert outcome == {"100-1": CommitOutcome.COMMITTED}
        assert rows_of(await loaded(tables, files)) == files.records_of(set(files.rows))
        assert await tables.committed(files.topic, ["100-1"]) == {"100-1"}

    async def test_properties_of_the_owner_stay(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"owner": "billing", "comment": "orders of the shop"})
        await add_more(tables, files)
        assert (await loaded(tables, files)).properties["owner"] == "billing"

    async def test_branches_of_others_are_left_alone(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        head = table.metadata.current_snapshot_id
        assert head is not None
        table.manage_snapshots().create_branch(head, "experiment").commit()
        await loaded(tables, files)
        await add_more(tables, files)
        assert (await loaded(tables, files)).metadata.refs["experiment"].snapshot_id == head


class TestSetBack:
    async def test_garbage_collection_stays_off(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"gc.enabled": "true"})
        await add_more(tables, files)
        assert (await loaded(tables, files)).properties["gc.enabled"] == "false"

    async def test_a_dropped_table_is_made_again_and_says_so(
        self, tables: IcebergTables, files: TopicFiles, table: Table, catalog: SqlCatalog
    ) -> None:
        catalog.drop_table(table.name())
        with pytest.raises(TableMissing, match="there is none; it was dropped, or never made"):
            await tables.commit(files.topic, [files.change("100-2", files.write(0, 3))], ours)
        again = await tables.ensure(files.topic)
        assert again.created
        assert again.table_uuid != table.metadata.table_uuid


class TestDamaged:
    async def test_a_metadata_file_that_somebody_deleted(
        self,
        tables: IcebergTables,
        files: TopicFiles,
        table: Table,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
    ) -> None:
        """It is named, in one line; when it is back, all goes on. A process that has read it needs it no
        more: its next commit makes the table whole."""
        snapshot = table.current_snapshot()
        assert snapshot is not None
        lost = Path(snapshot.manifest_list.removeprefix("file://"))
        aside = move(lost, lost.with_suffix(".aside"))
        change = files.change("100-2", files.write(0, 3))
        restarted = IcebergTables(settings, places, CLUSTER, runtime)
        for asked in (restarted.commit(files.topic, [change], ours), restarted.live_files(files.topic)):
            with pytest.raises(TablesUnavailable, match=lost.name) as caught:
                await asked
            assert "\n" not in str(caught.value)
        assert (await loaded(tables, files)).metadata.current_snapshot_id == snapshot.snapshot_id
        move(aside, lost)
        assert await restarted.commit(files.topic, [change], ours) == {"100-2": CommitOutcome.COMMITTED}
        await restarted.close()
        move(lost, aside)
        more = files.change("100-3", files.write(0, 3))
        assert await tables.commit(files.topic, [more], ours) == {"100-3": CommitOutcome.COMMITTED}
        assert rows_of(await loaded(tables, files)) == files.records_of(set(files.rows))


class TestRefused:
    @pytest.mark.parametrize(("column", "field_id"), [("value", 5), ("offset", 2), ("attributes", 10)])
    async def test_a_dropped_column(
        self, tables: IcebergTables, files: TopicFiles, table: Table, column: str, field_id: int
    ) -> None:
        """Whether or not every record has it. One of the same name is no substitute: it has another id."""
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(column)
        line = rf"its column {column} \(field id {field_id}\) is gone; set the schema back"
        await refused(tables, files, line)
        with table.update_schema() as update:
            update.add_column(column, BinaryType())
        await refused(tables, files, line)

    async def test_a_dropped_nested_column(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.update_schema(allow_incompatible_changes=True) as update:
            update.delete_column(("headers", "element", "value"))
        await refused(tables, files, r"its column headers\.value \(field id 13\) is gone")

    async def test_rows_added_by_others(self, tables: IcebergTables, files: TopicFiles, table: Table) -> None:
        rows = table.scan().to_arrow()
        good = table.metadata.current_snapshot_id
        table.append(rows.slice(0, 1))
        await refused(tables, files, rf"writer \(append\) changed its rows; roll it back to snapshot {good}")
        table.manage_snapshots().rollback_to_snapshot(int(str(good))).commit()
        await add_more(tables, files)
        assert rows_of(await loaded(tables, files)) == files.records_of(
            {path for path in files.rows if "job-1" in path and files.rows[path][0]["offset"] < 90}
        )

    async def test_rows_deleted_by_others(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        table.delete("offset = 1")
        await refused(tables, files, r"of another writer \(.*\) changed its rows; roll it back")

    async def test_rewritten_by_others_before_our_first_commit(
        self, tables: IcebergTables, files: TopicFiles
    ) -> None:
        await tables.ensure(files.topic)
        empty = await loaded(tables, files)
        schema = empty.schema().as_arrow()
        row = {"partition": 0, "offset": 0, "timestamp": 0, "headers": [], "attributes": 0}
        empty.append(pa.Table.from_pylist([row], schema=schema))
        await refused(tables, files, r"another writer \(append\) changed its rows; put the log.s files back")

    async def test_set_back_to_an_older_snapshot(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        first = table.metadata.current_snapshot_id
        assert first is not None
        await add_more(tables, files)
        table.refresh()
        newest = table.metadata.current_snapshot_id
        table.manage_snapshots().rollback_to_snapshot(first).commit()
        await refused(
            tables, files, rf"its current snapshot was set back to {first}.*set it to {newest} again"
        )
        # And the other way round all is well again.
        assert newest is not None
        table.manage_snapshots().set_current_snapshot(newest).commit()
        await tables.ensure(files.topic)

    async def test_another_topic_of_the_same_name(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        """Rows of a deleted topic never appear under a new one."""
        files.topic = other_topic(files.topic)
        with pytest.raises(TableRefused, match=f"and orders is {files.topic.topic_id} now"):
            await tables.ensure(files.topic)

    async def test_a_catalog_that_does_not_tell_upper_from_lower_case(
        self, tables: IcebergTables, table: Table, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Glue is one. Who may read a topic `ORDERS` does not read the table of `orders`."""
        identifier = CatalogSettings.identifier
        monkeypatch.setattr(
            CatalogSettings, "identifier", lambda self, topic: identifier(self, topic.lower())
        )
        assert await tables.view("orders") is not None
        assert await tables.view("ORDERS") is None
        assert await tables.snapshots("ORDERS") is None

    async def test_another_cluster(
        self,
        files: TopicFiles,
        table: Table,
        settings: CatalogSettings,
        places: Locations,
        runtime: SystemRuntime,
    ) -> None:
        theirs = IcebergTables(settings, places, "cluster-two", runtime)
        with pytest.raises(TableRefused, match=f"it belongs to the cluster {CLUSTER}, and this one is"):
            await theirs.ensure(files.topic)
        assert await theirs.topics() == []
        assert await theirs.live_files(files.topic) is None
        await theirs.close()

    async def test_a_table_of_somebody_else(
        self, tables: IcebergTables, files: TopicFiles, catalog: SqlCatalog, places: Locations
    ) -> None:
        catalog.create_namespace("lake")
        catalog.create_table(
            "lake.orders", pa.schema([("id", pa.int64())]), location=places.location_of("theirs")
        )
        with pytest.raises(TableRefused, match=r"it is not of this cluster \(dray\.topic_id is not among"):
            await tables.ensure(files.topic)
        assert await tables.topics() == []

    async def test_a_table_of_another_format(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({"dray.schema_version": "2"})
        await refused(tables, files, "its schema version is 2, and this program knows 1")

    async def test_a_topic_that_is_partitioned_otherwise_now(
        self, tables: IcebergTables, files: TopicFiles, table: Table
    ) -> None:
        files.topic = replace(files.topic, day_partitioned=True)
        await refused(tables, files, "it is not partitioned by partition and day, as the topic is")
        with table.update_spec() as update:
            update.add_field("timestamp", DayTransform(), "timestamp_day")
        await add_more(tables, files)


async def test_first_tables_that_are_made_at_the_same_moment(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both find no namespace, both make it, and the database refuses the second."""
    create = SqlCatalog.create_namespace

    def late(catalog: SqlCatalog, namespace: tuple[str, ...]) -> None:
        create(catalog, namespace)
        raise OSError("UNIQUE constraint failed: iceberg_namespace_properties")

    monkeypatch.setattr(SqlCatalog, "create_namespace", late)
    await tables.ensure(files.topic)
    assert await tables.topics() != []


async def test_a_namespace_that_cannot_be_made_is_an_error(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(catalog: SqlCatalog, namespace: tuple[str, ...]) -> None:
        raise OSError("read-only")

    monkeypatch.setattr(SqlCatalog, "create_namespace", refuse)
    with pytest.raises(TablesUnavailable, match="read-only"):
        await tables.ensure(files.topic)


class TestDays:
    async def test_files_go_into_their_day(self, tables: IcebergTables, files: TopicFiles) -> None:
        files.topic = replace(files.topic, day_partitioned=True)
        await tables.ensure(files.topic)
        first, second = files.write(0, 0), files.write(0, 3, day=1)
        await tables.commit(files.topic, [files.change("100-1", first), files.change("100-2", second)], ours)
        table = await loaded(tables, files)
        assert await tables.topics() == [files.topic]
        found = table.scan(row_filter="timestamp >= '2023-11-15T00:00:00+00:00'").plan_files()
        assert [task.file.file_path.endswith(second.path) for task in found] == [True]
        assert rows_of(table) == files.records_of({first.path, second.path})

    async def test_a_file_over_midnight_does_not_fit(self, tables: IcebergTables, files: TopicFiles) -> None:
        files.topic = replace(files.topic, day_partitioned=True)
        await tables.ensure(files.topic)
        file = files.write(0, 0)
        late = file.written.max_timestamp + 86_400_000
        over = replace(file, written=replace(file.written, max_timestamp=late))
        with pytest.raises(ValueError, match="its records are of more than one day"):
            await tables.commit(files.topic, [files.change("100-1", over)], ours)
        on_disk = {path.name for path in (files.root / "iceberg").rglob("*.avro")}
        assert on_disk == set()
