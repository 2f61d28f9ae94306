"""Snapshots say up to which offset of each partition they hold the log."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import LongType
from tests.services.iceberg_files import T0, TopicFiles
from tests.unit.tables.iceberg.harness import loaded, newest, ours

from dray.inspection.storage.tables import table_as_of, table_history
from dray.log.parquet.statistics import RowGroup
from dray.tables.contract import LARGEST_TEXT, TOO_MANY, ends_text, parse_ends
from dray.tables.iceberg import snapshots as commits
from dray.tables.iceberg.schema import OFFSET
from dray.tables.iceberg.tables import IcebergTables
from dray.tables.iceberg.view import ENDS


def test_ends_as_text_and_back() -> None:
    ends = {0: 0, 11: 2**63 - 1, 2: 84213}
    assert ends_text(ends) == "0:0,2:84213,11:9223372036854775807"
    assert parse_ends(ends_text(ends)) == ends
    assert parse_ends("") == {}


@pytest.mark.parametrize("text", [None, TOO_MANY, "0", "0:", "a:1", "0:-1", "0:1;1:2", "0:1,"])
def test_a_text_that_says_nothing(text: str | None) -> None:
    assert parse_ends(text) is None


def test_the_text_is_bounded() -> None:
    most = dict.fromkeys(range(150), 2**62)
    assert len(ends_text(most)) <= LARGEST_TEXT
    assert ends_text(dict.fromkeys(range(100000), 2**62)) == TOO_MANY


async def test_every_snapshot_of_a_commit_has_the_ends_it_reaches(
    tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    first, second, other = files.write(0, 0, 3), files.write(0, 3, 2), files.write(4, 10, 5)
    await tables.commit(files.topic, [files.change("100-1", first), files.change("104-1", other)], ours)
    await tables.commit(files.topic, [files.change("100-2", second)], ours)
    merged = files.write(0, 0, 5, job=3)
    rewrite = files.change("100-3", merged, removed=(first.path, second.path))
    append = files.change("104-2", files.write(4, 15, 1, job=2))
    await tables.commit(files.topic, [rewrite, append], ours)
    history = await table_history(tables, "orders")
    assert history is not None
    assert history.total == 4
    assert [(each.operation, each.ends) for each in history.snapshots] == [
        ("append", {0: 5, 4: 16}),
        ("replace", {0: 5, 4: 15}),
        ("append", {0: 5, 4: 15}),
        ("append", {0: 3, 4: 15}),
    ]
    newest_row = history.snapshots[0]
    assert (newest_row.rows, newest_row.files, newest_row.rows_added, newest_row.is_ours) == (11, 3, 1, True)
    assert newest_row.snapshot_id == newest(await loaded(tables, files)).snapshot_id


async def test_what_expires_lowers_no_end(tables: IcebergTables, files: TopicFiles) -> None:
    """Records that expired were in the table; an end that fell would say that they never were."""
    await tables.ensure(files.topic)
    file = files.write(0, 0)
    await tables.commit(files.topic, [files.change("100-1", file)], ours)
    await tables.commit(files.topic, [files.change("100-2", removed=(file.path,))], ours)
    await tables.commit(files.topic, [files.change("101-1", files.write(1, 0))], ours)
    history = await table_history(tables, "orders")
    assert history is not None
    assert [each.ends for each in history.snapshots] == [{0: 3, 1: 3}, {0: 3}, {0: 3}]
    assert history.snapshots[1].rows == 0


async def test_the_first_commit_after_an_upgrade_reads_the_manifests(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tables.ensure(files.topic)
    with monkeypatch.context() as older:
        older.setattr(commits, "ENDS", "of no build")
        await tables.commit(
            files.topic,
            [files.change("100-1", files.write(0, 0)), files.change("101-1", files.write(1, 5))],
            ours,
        )
    await tables.commit(files.topic, [files.change("100-2", files.write(0, 3, job=2))], ours)
    found = await tables.snapshots("orders")
    assert found is not None
    assert [each.ends for each in found] == [{0: 6, 1: 8}, None]
    assert await tables.ends_of("orders", found[1].snapshot_id) == {0: 3, 1: 8}


async def test_too_many_partitions_are_read_from_the_manifests(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dray.tables.contract.LARGEST_TEXT", 5)
    await tables.ensure(files.topic)
    await tables.commit(
        files.topic,
        [files.change("100-1", files.write(0, 0)), files.change("101-1", files.write(1, 5))],
        ours,
    )

    def no_reading(*_: object) -> None:
        pytest.fail("a commit read every manifest")

    with monkeypatch.context() as watched:  # one look at all manifests a commit would not stay flat
        watched.setattr(commits, "ends_in", no_reading)
        await tables.commit(files.topic, [files.change("100-2", files.write(0, 3, job=2))], ours)
    table = await loaded(tables, files)
    summary = newest(table).summary
    assert summary is not None
    assert summary[ENDS] == TOO_MANY
    as_of = await table_as_of(tables, "orders", newest(table).timestamp_ms)
    assert as_of is not None
    assert as_of.ends == {0: 6, 1: 8}


async def test_the_table_as_of_a_time(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    await tables.commit(files.topic, [files.change("100-1", files.write(0, 0))], ours)
    made = newest(await loaded(tables, files)).timestamp_ms
    found = await table_as_of(tables, "orders", made)
    assert found is not None
    assert (found.made_ms, found.ends) == (made, {0: 3})
    assert await table_as_of(tables, "orders", made - 1) is None
    assert await table_as_of(tables, "nothing", made) is None
    assert await table_history(tables, "nothing") is None


async def test_ends_of_a_snapshot_that_is_gone(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    assert await tables.ends_of("orders", 17) is None


async def test_of_a_file_with_holes_bounds_are_those_of_its_rows(
    tables: IcebergTables, files: TopicFiles
) -> None:
    """Engines answer min and max from them. How far the table is, the snapshot says all the same."""
    await tables.ensure(files.topic)
    whole = files.write(0, 0, 20)
    groups = (RowGroup(4, 50, 2, 3, 100, T0, T0, 6), RowGroup(54, 50, 2, 9, 100, T0, T0, 14))
    thinned = replace(whole, written=replace(whole.written, record_count=4, row_groups=groups))
    await tables.commit(files.topic, [files.change("100-1", thinned)], ours)
    table = await loaded(tables, files)
    [listed] = [task.file for task in table.scan().plan_files()]
    bounds = [from_bytes(LongType(), each[OFFSET]) for each in (listed.lower_bounds, listed.upper_bounds)]
    assert bounds == [3, 14]
    view = await tables.view(files.topic.topic)
    assert view is not None
    assert view.ends == {0: 20}, "the last offsets have no row, and the table is not behind for that"
