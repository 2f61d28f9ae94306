"""What holds of tables in every catalog: run on a SQL, a REST and a Glue catalog."""

from __future__ import annotations

import asyncio

import pytest
from pyiceberg.table.snapshots import Operation
from tests.services.iceberg_files import TopicFiles, other_topic
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, metadata_on_disk, newest, ours, rows_of

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import CommitOutcome, MaintenanceResult, TableChange, TableMissing
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

COMMITTED = CommitOutcome.COMMITTED
FOREVER = 2**60


async def test_what_was_committed_is_read_back_equal(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    first, second = files.write(0, 0, 50), files.write(1, 10, 20)
    outcome = await tables.commit(
        files.topic, [files.change("100-1", first), files.change("101-1", second)], ours
    )
    assert outcome == {"100-1": COMMITTED, "101-1": COMMITTED}
    third = files.write(0, 50, 5)
    await tables.commit(files.topic, [files.change("100-2", third)], ours)
    table = await loaded(tables, files)
    assert rows_of(table) == files.records_of({first.path, second.path, third.path})
    assert await tables.live_files(files.topic) == {first.path, second.path, third.path}
    summary = newest(table).summary
    assert summary is not None
    assert (summary["total-records"], summary["total-data-files"]) == ("75", "3")
    assert summary["total-files-size"] == str(
        first.written.file_size + second.written.file_size + third.written.file_size
    )


async def test_statistics_are_the_writers_own(tables: IcebergTables, files: TopicFiles) -> None:
    """The file need not even be there."""
    await tables.ensure(files.topic)
    file = files.write(3, 40, 10, real=False)
    await tables.commit(files.topic, [files.change("103-1", file)], ours)
    table = await loaded(tables, files)
    (task,) = table.scan(row_filter="partition = 3 and offset >= 49").plan_files()
    assert (task.file.record_count, task.file.file_size_in_bytes) == (10, file.written.file_size)
    assert list(table.scan(row_filter="offset >= 50").plan_files()) == []
    assert list(table.scan(row_filter="offset < 40").plan_files()) == []
    assert list(table.scan(row_filter="partition = 2").plan_files()) == []
    assert list(table.scan(row_filter="timestamp < '2023-11-14T00:00:00+00:00'").plan_files()) == []


async def test_a_job_is_committed_once(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    change = files.change("100-1", files.write(0, 0))
    for _ in range(3):
        assert await tables.commit(files.topic, [change], ours) == {"100-1": COMMITTED}
    assert len((await loaded(tables, files)).metadata.snapshots) == 1


async def test_ownership_is_asked_after_the_table_was_loaded(
    tables: IcebergTables, files: TopicFiles
) -> None:
    """Another process commits the same job while we ask: our snapshot is no longer the table's, and the job
    is found."""
    await tables.ensure(files.topic)
    change = files.change("100-1", files.write(0, 0))
    asked: list[str] = []

    async def slow(asked_of: TableChange) -> bool:
        if not asked:
            await tables.commit(files.topic, [change], ours)
        asked.append(asked_of.job)
        return True

    assert await tables.commit(files.topic, [change], slow) == {"100-1": COMMITTED}
    assert asked == ["100-1", "100-1"]
    table = await loaded(tables, files)
    assert len(rows_of(table)) == 3
    assert len(table.metadata.snapshots) == 1


async def test_who_always_comes_second_is_told_so(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    number = 0

    async def beaten(_: TableChange) -> bool:
        nonlocal number
        number += 1
        await tables.commit(files.topic, [TableChange(f"200-{number}")], ours)
        return True

    file = files.write(0, 0)
    outcome = await tables.commit(files.topic, [files.change("100-1", file)], beaten)
    assert outcome == {"100-1": CommitOutcome.LOST_RACE}
    assert await tables.live_files(files.topic) == set()
    # Nothing is left of the attempts but what the table knows.
    assert metadata_on_disk(files) == await tables.live_metadata(files.topic)


async def test_rewriting_files_changes_no_row(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    small = [files.write(0, 10 * number, 10) for number in range(5)]
    for number, file in enumerate(small):
        await tables.commit(files.topic, [files.change(f"100-{number}", file)], ours)
    large = files.write(0, 0, 30)
    removed = tuple(file.path for file in small[:3])
    await tables.commit(files.topic, [files.change("100-9", large, removed=removed)], ours)
    table = await loaded(tables, files)
    summary = newest(table).summary
    assert summary is not None
    assert summary.operation is Operation.REPLACE
    kept = {large.path, small[3].path, small[4].path}
    assert rows_of(table) == files.records_of(kept)
    assert summary["total-records"] == "50"
    assert await tables.current_files(files.topic) == kept
    # Older snapshots are alive, and so are their files.
    assert await tables.live_files(files.topic) == kept | set(removed)


async def test_each_kind_of_change_is_a_snapshot_of_one_commit(
    tables: IcebergTables, files: TopicFiles
) -> None:
    """So that a reader who follows the table never meets an overwrite."""
    await tables.ensure(files.topic)
    a, b, old = files.write(0, 0), files.write(0, 3), files.write(1, 0)
    await tables.commit(files.topic, [files.change("100-1", a, b, old)], ours)
    both, fresh = files.write(0, 0, 6), files.write(2, 0)
    outcome = await tables.commit(
        files.topic,
        [
            files.change("101-2", removed=(old.path,)),
            files.change("102-1", fresh),
            files.change("100-2", both, removed=(a.path, b.path)),
            files.change("103-1"),
        ],
        ours,
    )
    assert set(outcome.values()) == {COMMITTED}
    table = await loaded(tables, files)
    operations = [
        snapshot.summary and snapshot.summary.operation for snapshot in table.metadata.snapshots[1:]
    ]
    assert operations == [Operation.REPLACE, Operation.APPEND, Operation.DELETE]
    assert table.metadata.metadata_log[-1].metadata_file != table.metadata_location
    assert rows_of(table) == files.records_of({both.path, fresh.path})
    assert await tables.committed(files.topic, list(outcome)) == set(outcome)


async def test_commits_need_a_table(tables: IcebergTables, files: TopicFiles) -> None:
    with pytest.raises(TableMissing, match=r"table \S+\.orders: there is none"):
        await tables.commit(files.topic, [files.change("100-1", files.write(0, 0))], ours)
    assert await tables.live_files(files.topic) is None
    assert await tables.committed(files.topic, ["100-1"]) == set()


async def test_two_at_once_add_each_file_once(
    tables: IcebergTables,
    settings: CatalogSettings,
    places: Locations,
    files: TopicFiles,
    runtime: SystemRuntime,
) -> None:
    """Two compactors resume the same jobs, and each does its own besides."""
    await tables.ensure(files.topic)
    other = IcebergTables(settings, places, CLUSTER, runtime)
    shared = [files.change(f"100-{number}", files.write(0, 3 * number)) for number in range(4)]
    own = {
        tables: [files.change(f"101-{number}", files.write(1, 3 * number)) for number in range(4)],
        other: [files.change(f"102-{number}", files.write(2, 3 * number)) for number in range(4)],
    }

    async def work(mine: IcebergTables) -> None:
        for number in range(4):
            left = [shared[number], own[mine][number]]
            for _ in range(20):
                outcomes = await mine.commit(files.topic, left, ours)
                left = [change for change in left if outcomes[change.job] is not COMMITTED]
                if not left:
                    break
            assert not left

    await asyncio.gather(work(tables), work(other))
    assert rows_of(await loaded(tables, files)) == files.records_of(set(files.rows))
    await other.close()


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
