"""Commits to a table: what is in it afterwards, and what is asked in which order."""

from __future__ import annotations

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.snapshots import Operation
from tests.services.iceberg_files import TopicFiles
from tests.unit.iceberg.harness import loaded, newest, ours, rows_of
from tests.unit.iceberg.suite import (
    test_a_job_is_committed_once,
    test_commits_need_a_table,
    test_each_kind_of_change_is_a_snapshot_of_one_commit,
    test_ownership_is_asked_after_the_table_was_loaded,
    test_rewriting_files_changes_no_row,
    test_statistics_are_the_writers_own,
    test_two_at_once_add_each_file_once,
    test_what_was_committed_is_read_back_equal,
    test_who_always_comes_second_is_told_so,
)

from dray.tables.contract import CommitOutcome, TableChange
from dray.tables.iceberg.tables import IcebergTables

__all__ = [
    "test_a_job_is_committed_once",
    "test_commits_need_a_table",
    "test_each_kind_of_change_is_a_snapshot_of_one_commit",
    "test_ownership_is_asked_after_the_table_was_loaded",
    "test_rewriting_files_changes_no_row",
    "test_statistics_are_the_writers_own",
    "test_two_at_once_add_each_file_once",
    "test_what_was_committed_is_read_back_equal",
    "test_who_always_comes_second_is_told_so",
]

COMMITTED = CommitOutcome.COMMITTED


async def test_counts_of_columns_are_listed(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    file = files.write(0, 0, 10)
    await tables.commit(files.topic, [files.change("100-1", file)], ours)
    (task,) = (await loaded(tables, files)).scan().plan_files()
    assert task.file.null_value_counts[4] == 2  # keys
    assert task.file.value_counts[2] == 10
    assert task.file.split_offsets == list(file.written.split_offsets)
    assert set(task.file.column_sizes) == {column.field_id for column in file.written.columns}


async def test_the_job_is_found_in_snapshots_that_are_not_the_newest(
    tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    changes = [files.change(f"100-{job}", files.write(0, 10 * job)) for job in range(4)]
    for change in changes:
        await tables.commit(files.topic, [change], ours)
    again = await tables.commit(files.topic, [changes[0]], ours)
    assert again == {"100-0": COMMITTED}
    assert len((await loaded(tables, files)).metadata.snapshots) == 4
    assert await tables.committed(files.topic, ["100-0", "100-3", "100-9"]) == {"100-0", "100-3"}


async def test_a_job_that_is_not_ours_is_left_out(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    mine, other = files.write(0, 0), files.write(1, 0)

    async def only_mine(change: TableChange) -> bool:
        return change.job == "100-1"

    outcome = await tables.commit(
        files.topic, [files.change("100-1", mine), files.change("101-1", other)], only_mine
    )
    assert outcome == {"100-1": COMMITTED, "101-1": CommitOutcome.NOT_OURS}
    assert await tables.live_files(files.topic) == {mine.path}


async def test_retention_deletes_whole_files(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    old, new = files.write(0, 0), files.write(0, 3)
    await tables.commit(files.topic, [files.change("100-1", old), files.change("100-2", new)], ours)
    await tables.commit(files.topic, [files.change("100-3", removed=(old.path,))], ours)
    table = await loaded(tables, files)
    summary = newest(table).summary
    assert summary is not None
    assert summary.operation is Operation.DELETE
    assert rows_of(table) == files.records_of({new.path})
    # The next commit drops the note about what was deleted.
    await tables.commit(files.topic, [files.change("100-4", removed=(new.path,))], ours)
    table = await loaded(tables, files)
    assert rows_of(table) == []
    summary = newest(table).summary
    assert summary is not None
    assert summary["total-data-files"] == "0"
    assert len(newest(table).manifests(table.io)) == 1
    # What says only what was deleted before is left out by the next.
    await tables.commit(files.topic, [files.change("100-5")], ours)
    table = await loaded(tables, files)
    assert list(newest(table).manifests(table.io)) == []


async def test_a_snapshot_says_which_files_it_took_out(tables: IcebergTables, files: TopicFiles) -> None:
    """Also when there are so many manifests that they are merged: others read from it what changed."""
    await tables.ensure(files.topic)
    held = [files.write(0, 10 * number, real=False) for number in range(9)]
    for number, file in enumerate(held):
        await tables.commit(files.topic, [files.change(f"100-{number}", file)], ours)
    new = files.write(0, 40, real=False)
    await tables.commit(files.topic, [files.change("100-9", new, removed=(held[4].path,))], ours)
    table = await loaded(tables, files)
    current = newest(table)
    noted = {
        (entry.status, entry.data_file.file_path.rpartition("/")[2])
        for manifest in current.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        if entry.snapshot_id == current.snapshot_id
    }
    assert noted == {
        (ManifestEntryStatus.DELETED, held[4].path.rpartition("/")[2]),
        (ManifestEntryStatus.ADDED, new.path.rpartition("/")[2]),
    }


async def test_a_file_written_again_with_fewer_rows_is_a_delete(
    tables: IcebergTables, files: TopicFiles
) -> None:
    """Rows went, and none came: readers that follow the table may pass over it, as over files that went."""
    await tables.ensure(files.topic)
    whole, beside = files.write(0, 0, 6), files.write(1, 0, 3)
    await tables.commit(files.topic, [files.change("100-1", whole, beside)], ours)
    left = files.write(0, 4, 2)
    await tables.commit(files.topic, [files.change("100-2", left, removed=(whole.path,))], ours)
    table = await loaded(tables, files)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    summary = snapshot.summary
    assert summary is not None
    assert summary.operation is Operation.DELETE
    assert (summary["deleted-records"], summary["added-records"], summary["total-records"]) == ("6", "2", "5")
    assert rows_of(table) == files.records_of({left.path, beside.path})


async def test_a_change_of_nothing_moves_the_snapshot(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    file = files.write(0, 0)
    await tables.commit(files.topic, [files.change("100-1", file)], ours)
    before = newest(await loaded(tables, files)).snapshot_id
    assert await tables.commit(files.topic, [TableChange("100-1-out", removed=("no/such",))], ours)
    table = await loaded(tables, files)
    assert newest(table).snapshot_id != before
    summary = newest(table).summary
    assert summary is not None
    assert summary.operation is Operation.REPLACE
    assert rows_of(table) == files.records_of({file.path})


async def test_many_commits_keep_few_manifests(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    paths = set()
    for number in range(25):
        file = files.write(number % 3, 100 * number, 2, real=False)
        paths.add(file.path)
        await tables.commit(files.topic, [files.change(f"100-{number}", file)], ours)
    table = await loaded(tables, files)
    manifests = newest(table).manifests(table.io)
    assert len(manifests) <= 9
    listed = {task.file.file_path for task in table.scan().plan_files()}
    assert len(listed) == 25
    assert await tables.live_files(files.topic) == paths
    assert (
        sum(
            (manifest.added_files_count or 0) + (manifest.existing_files_count or 0) for manifest in manifests
        )
        == 25
    )
