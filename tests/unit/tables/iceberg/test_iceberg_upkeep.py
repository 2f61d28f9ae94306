"""Expiry: what goes, what stays, and which files go with it."""

from __future__ import annotations

from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import loaded, metadata_on_disk
from tests.unit.tables.iceberg.suite import (
    fill,
    test_a_table_is_dropped_for_its_own_topic_only,
    test_old_snapshots_go_and_the_rows_stay,
    test_the_files_of_expired_snapshots_are_no_longer_live,
)

from dray.tables.contract import MaintenanceResult
from dray.tables.iceberg.tables import METADATA_VERSIONS, IcebergTables

__all__ = [
    "test_a_table_is_dropped_for_its_own_topic_only",
    "test_old_snapshots_go_and_the_rows_stay",
    "test_the_files_of_expired_snapshots_are_no_longer_live",
]

FOREVER = 2**60


async def test_young_snapshots_stay(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, 3)
    times = [snapshot.timestamp_ms for snapshot in (await loaded(tables, files)).metadata.snapshots]
    assert await tables.maintain(files.topic, [], times[0]) == MaintenanceResult(oldest_ms=times[0])
    done = await tables.maintain(files.topic, [], times[0] + 1)
    assert done.snapshots_expired == sum(time == times[0] for time in times)


async def test_the_snapshot_of_an_unfinished_job_stays(tables: IcebergTables, files: TopicFiles) -> None:
    """It is all that a retry of its commit has to find itself by."""
    await fill(tables, files, 4)
    done = await tables.maintain(files.topic, ["100-1"], FOREVER)
    assert done.snapshots_expired == 2
    assert await tables.committed(files.topic, [f"100-{number}" for number in range(4)]) == {"100-1", "100-3"}


async def test_what_others_tagged_stays(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, 3)
    table = await loaded(tables, files)
    tagged = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(tagged, "audit").commit()
    await tables.maintain(files.topic, [], FOREVER)
    table = await loaded(tables, files)
    assert {snapshot.snapshot_id for snapshot in table.metadata.snapshots} == {
        tagged,
        table.metadata.current_snapshot_id,
    }
    assert len(table.scan(snapshot_id=tagged).to_arrow()) == 2


async def test_old_metadata_files_go_with_the_commits(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, METADATA_VERSIONS + 8)
    await tables.maintain(files.topic, [], FOREVER)
    on_disk = metadata_on_disk(files)
    assert on_disk == await tables.live_metadata(files.topic)
    assert len([path for path in on_disk if path.endswith(".metadata.json")]) == METADATA_VERSIONS + 1


async def test_a_topic_without_a_table_needs_no_maintenance(tables: IcebergTables, files: TopicFiles) -> None:
    assert await tables.maintain(files.topic, [], FOREVER) == MaintenanceResult()
    assert await tables.live_metadata(files.topic) is None


async def test_the_folder_carries_the_topics_id(tables: IcebergTables, files: TopicFiles) -> None:
    state = await tables.ensure(files.topic)
    assert state.created
    assert not (await tables.ensure(files.topic)).created
    folder = files.root / "iceberg" / "topic=orders" / f"id={files.topic.topic_id.hex}"
    assert state.location == f"file://{folder.resolve()}"
    assert all(path.startswith(f"iceberg/topic=orders/{folder.name}/") for path in metadata_on_disk(files))
