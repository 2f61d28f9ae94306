"""Commits to a table: what is in it afterwards, and what is asked in which order."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import InputFile
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from requests import ReadTimeout
from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import CLUSTER, loaded, newest, ours, rows_of
from tests.unit.tables.iceberg.suite import (
    test_each_kind_of_change_is_a_snapshot_of_one_commit,
    test_ownership_is_asked_after_the_table_was_loaded,
    test_rewriting_files_changes_no_row,
    test_statistics_are_the_writers_own,
    test_two_at_once_add_each_file_once,
    test_what_was_committed_is_read_back_equal,
    test_who_always_comes_second_is_told_so,
)

from dray.base.runtime import SystemRuntime
from dray.tables.contract import CommitOutcome, TableChange, TablesUnavailable
from dray.tables.iceberg.local_files import LocalFiles
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.manifests import TIER
from dray.tables.iceberg.patient_calls import MOST_STUCK, PATIENCES, SILENCES
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

__all__ = [
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


async def test_no_manifest_list_is_read_twice(
    tables: IcebergTables,
    files: TopicFiles,
    settings: CatalogSettings,
    places: Locations,
    runtime: SystemRuntime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor any that this process wrote, and of its manifests only those that are put together."""
    read: list[str] = []
    inner = LocalFiles.new_input

    def counted(io: LocalFiles, location: str) -> InputFile:
        read.append(Path(location).name)
        return inner(io, location)

    monkeypatch.setattr(LocalFiles, "new_input", counted)

    def avro() -> list[str]:
        found = [name for name in read if name.endswith(".avro")]
        read.clear()
        return found

    await tables.ensure(files.topic)
    for job in range(TIER - 1):
        await tables.commit(
            files.topic, [files.change(f"100-{job}", files.write(0, 10 * job, real=False))], ours
        )
    await tables.live_files(files.topic)
    assert avro() == []
    await tables.commit(files.topic, [files.change("100-9", files.write(0, 900, real=False))], ours)
    assert len(avro()) == TIER  # ten manifests become one
    restarted = IcebergTables(settings, places, CLUSTER, runtime)
    known = await tables.live_files(files.topic), await tables.live_metadata(files.topic)
    for _ in range(2):
        assert (await restarted.live_files(files.topic), await restarted.live_metadata(files.topic)) == known
        assert await restarted.current_files(files.topic) == known[0]
    lists = [name for name in avro() if name.startswith("snap-")]
    assert len(lists) == len(set(lists)) == TIER
    await restarted.close()


async def test_a_commit_loads_the_table_once(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every snapshot that it has, its metadata is the largest part of what a commit reads."""
    await tables.ensure(files.topic)
    read: list[str] = []
    inner = LocalFiles.new_input

    def counted(io: LocalFiles, location: str) -> InputFile:
        read.append(location)
        return inner(io, location)

    monkeypatch.setattr(LocalFiles, "new_input", counted)
    await tables.commit(files.topic, [files.change("100-1", files.write(0, 0, real=False))], ours)
    assert len([location for location in read if location.endswith(".metadata.json")]) == 1


async def test_calls_that_never_come_back_are_given_up(
    settings: CatalogSettings, places: Locations, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database behind a network that swallows packets: compaction of all topics goes on, and not all
    threads are lost to it."""
    runtime = SystemRuntime(threads=MOST_STUCK + 1)
    clock = Clock(runtime, monkeypatch)
    tables = IcebergTables(replace(settings, timeout_seconds=2 / PATIENCES), places, CLUSTER, runtime)
    assert await tables.version(files.topic) is None
    answers = Event()

    def load_table(*_: object) -> Table:
        answers.wait()
        raise NoSuchTableError("none")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "load_table", load_table)
        try:
            calls = [tables.version(files.topic) for _ in range(MOST_STUCK)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(each) for each in found} == {TablesUnavailable}
            assert all(str(each).endswith("has not answered for 2 s") for each in found)
            with pytest.raises(TablesUnavailable, match="8 times, and is not asked"):
                await tables.version(files.topic)
            assert await runtime.in_thread(lambda: "a thread is left") == "a thread is left"
        finally:
            answers.set()
        for each in tables._calls._stuck:
            await runtime.in_thread(each.wait)
    clock.now += settings.timeout_seconds
    assert await tables.version(files.topic) is None, "asked again, once it answers"
    await tables.close()
    runtime.close()


async def test_a_catalog_that_says_nothing_is_not_waited_for_by_each_topic(
    settings: CatalogSettings,
    places: Locations,
    files: TopicFiles,
    runtime: SystemRuntime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand topics, each with its timeout, were half an hour of each cycle."""
    clock = Clock(runtime, monkeypatch)
    tables = IcebergTables(settings, places, CLUSTER, runtime)
    asked: list[object] = []

    def load_table(*arguments: object) -> Table:
        asked.append(arguments)
        raise answer

    async def fails(match: str) -> None:
        with pytest.raises(TablesUnavailable, match=match):
            await tables.version(files.topic)

    answer: Exception = ReadTimeout("timed out")
    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "load_table", load_table)
        for _ in range(SILENCES):
            await fails("timed out")
        await fails("has not answered 3 times in a row, and is asked again in 30 s")
        clock.now += settings.timeout_seconds
        await fails("timed out")
        await fails("4 times in a row")
        assert len(asked) == SILENCES + 1
        clock.now += settings.timeout_seconds
        answer = OSError("refused")  # an answer, and each topic may have another
        for _ in range(SILENCES + 1):
            await fails("refused")
    assert await tables.version(files.topic) is None
    await tables.close()


class Clock:
    def __init__(self, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(runtime, "monotonic", lambda: self.now)
