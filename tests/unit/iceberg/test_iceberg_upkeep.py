"""Expiry: what goes, what stays, and which files go with it."""

from __future__ import annotations

from tests.services.iceberg_files import TopicFiles, other_topic
from tests.unit.iceberg.conftest import loaded, metadata_on_disk, ours, rows_of

from dray.tables.contract import MaintenanceResult
from dray.tables.iceberg.tables import METADATA_VERSIONS, IcebergTables

FOREVER = 2**60


async def fill(tables: IcebergTables, files: TopicFiles, commits: int) -> None:
    await tables.ensure(files.topic)
    for number in range(commits):
        await tables.commit(
            files.topic, [files.change(f"100-{number}", files.write(0, 10 * number, 2))], ours
        )


async def test_old_snapshots_go_and_the_rows_stay(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, 5)
    rows = rows_of(await loaded(tables, files))
    done = await tables.maintain(files.topic, [], FOREVER)
    # Four manifest lists; the manifests are all still in use.
    assert done == MaintenanceResult(snapshots_expired=4, metadata_deleted=4)
    table = await loaded(tables, files)
    assert len(table.metadata.snapshots) == 1
    assert rows_of(table) == rows
    assert metadata_on_disk(files) == await tables.live_metadata(files.topic)
    assert await tables.maintain(files.topic, [], FOREVER) == MaintenanceResult()


async def test_young_snapshots_stay(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, 3)
    times = [snapshot.timestamp_ms for snapshot in (await loaded(tables, files)).metadata.snapshots]
    assert await tables.maintain(files.topic, [], times[0]) == MaintenanceResult()
    done = await tables.maintain(files.topic, [], times[0] + 1)
    assert done.snapshots_expired == sum(time == times[0] for time in times)


async def test_the_snapshot_of_an_unfinished_job_stays(tables: IcebergTables, files: TopicFiles) -> None:
    """It is all that a retry of its commit has to find itself by."""
    await fill(tables, files, 4)
    done = await tables.maintain(files.topic, ["100-1"], FOREVER)
    assert done.snapshots_expired == 2
    assert await tables.committed(files.topic, [f"100-{number}" for number in range(4)]) == {"100-1", "100-3"}


async def test_the_files_of_expired_snapshots_are_no_longer_live(
    tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    old, new = files.write(0, 0), files.write(0, 0)
    await tables.commit(files.topic, [files.change("100-1", old)], ours)
    await tables.commit(files.topic, [files.change("100-2", new, removed=(old.path,))], ours)
    assert await tables.live_files(files.topic) == {old.path, new.path}
    done = await tables.maintain(files.topic, [], FOREVER)
    assert done == MaintenanceResult(snapshots_expired=1, metadata_deleted=2)
    assert await tables.live_files(files.topic) == {new.path}
    # The data file itself is the collector's.
    assert (files.root / old.path).exists()


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


async def test_a_table_is_dropped_for_its_own_topic_only(tables: IcebergTables, files: TopicFiles) -> None:
    await fill(tables, files, 1)
    stranger = other_topic(files.topic)
    assert await tables.live_files(stranger) is None
    assert await tables.committed(stranger, ["100-0"]) == set()
    assert await tables.maintain(stranger, [], FOREVER) == MaintenanceResult()
    assert not await tables.drop(stranger)
    assert await tables.topics() == [files.topic]
    assert await tables.drop(files.topic)
    assert not await tables.drop(files.topic)
    assert await tables.topics() == []
    assert await tables.live_files(files.topic) is None


async def test_the_folder_carries_the_topics_id(tables: IcebergTables, files: TopicFiles) -> None:
    state = await tables.ensure(files.topic)
    assert state.created
    assert not (await tables.ensure(files.topic)).created
    folder = files.root / "iceberg" / "topic=orders" / f"id={files.topic.topic_id.hex}"
    assert state.location == f"file://{folder.resolve()}"
    assert all(path.startswith(f"iceberg/topic=orders/{folder.name}/") for path in metadata_on_disk(files))
