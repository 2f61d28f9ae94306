"""Clean points among a table's properties: published with the snapshot that makes them true, only then."""

from __future__ import annotations

from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import files, loaded, newest, ours, places, runtime, settings, tables

from dray.tables.contract import CleanRange, TableChange, TableFile
from dray.tables.iceberg.snapshots import MOST_POINTS, clean_points
from dray.tables.iceberg.tables import IcebergTables

__all__ = ["files", "places", "runtime", "settings", "tables"]


async def points(tables: IcebergTables, files: TopicFiles) -> dict[int, int]:
    view = await tables.view(files.topic.topic)
    assert view is not None
    return dict(view.clean_points)


def cleaned(job: str, file: TableFile, removed: tuple[str, ...], *beside: str, end: int = 0) -> TableChange:
    """A file that replaces others, with one row of each key below its end; `beside`: other files there."""
    named = frozenset({file.path, *beside})
    return TableChange(job, (file,), removed, CleanRange(file.partition, end or file.last_offset + 1, named))


async def test_a_point_comes_with_its_snapshot_and_stays(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    first, other = files.write(0, 0, 10), files.write(1, 0, 5)
    changes = [files.change("100-1", first), files.change("101-1", other)]
    await tables.commit(files.topic, changes, ours)
    assert await points(tables, files) == {}
    merged = files.write(0, 0, 10, job=2)
    await tables.commit(files.topic, [cleaned("100-2", merged, (first.path,))], ours)
    table = await loaded(tables, files)
    assert table.properties["dray.clean.0"] == "10"
    assert (await points(tables, files), newest(table).summary is not None) == ({0: 10}, True)
    await tables.commit(files.topic, [files.change("100-3", files.write(0, 10, 5, job=3))], ours)
    assert await points(tables, files) == {0: 10}, "what comes above it changes nothing"
    again = files.write(0, 0, 15, job=4)
    await tables.commit(files.topic, [cleaned("100-4", again, (merged.path,), *files.rows)], ours)
    assert await points(tables, files) == {0: 15}


async def test_a_file_that_the_log_no_longer_has_is_in_the_way(
    tables: IcebergTables, files: TopicFiles
) -> None:
    """The table was not written for a while, and still holds what the log has replaced since."""
    await tables.ensure(files.topic)
    stale = files.write(0, 0, 10)
    await tables.commit(files.topic, [cleaned("100-1", stale, ())], ours)
    assert await points(tables, files) == {0: 10}
    merged = files.write(0, 0, 20, job=3)
    await tables.commit(files.topic, [cleaned("100-3", merged, ())], ours)
    assert await points(tables, files) == {}, "the older point goes, too: its rows are there twice"
    await tables.commit(files.topic, [TableChange("expired-1", (), (stale.path,))], ours)
    last = files.write(0, 0, 25, job=4)
    await tables.commit(files.topic, [cleaned("100-4", last, (merged.path,))], ours)
    assert await points(tables, files) == {0: 25}


async def test_files_above_the_point_and_of_other_partitions_are_not_in_the_way(
    tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    later, other = files.write(0, 10, 5), files.write(1, 0, 5)
    changes = [files.change("100-1", later), files.change("101-1", other)]
    await tables.commit(files.topic, [*changes, cleaned("100-2", files.write(0, 0, 10), ())], ours)
    assert await points(tables, files) == {0: 10}
    await tables.commit(files.topic, [cleaned("100-3", files.write(0, 15, 5), (), end=12)], ours)
    assert await points(tables, files) == {}, "there is a file below 12 that the change does not name"


async def test_a_topic_of_many_partitions_has_points_for_some(
    tables: IcebergTables, files: TopicFiles
) -> None:
    await tables.ensure(files.topic)
    written = [files.write(number, 0, 1, real=False) for number in range(MOST_POINTS + 2)]
    changes = [cleaned(f"{each.partition}-1", each, ()) for each in written]
    await tables.commit(files.topic, changes, ours)
    assert set(await points(tables, files)) == set(range(MOST_POINTS))
    moved = files.write(3, 1, 1, real=False)
    beyond = files.write(MOST_POINTS, 1, 1, real=False)
    later = [cleaned("3-2", moved, (), *files.rows), cleaned("x-2", beyond, (), *files.rows)]
    await tables.commit(files.topic, later, ours)
    found = await points(tables, files)
    assert (found[3], len(found)) == (2, MOST_POINTS), "those that have one go on"


def test_what_others_wrote_under_the_name_says_nothing() -> None:
    said = {
        "dray.clean.0": "5",
        "dray.clean.x": "5",
        "dray.clean.1": "-5",
        "dray.clean.": "5",
        "clean.2": "5",
    }
    assert clean_points(said) == {0: 5}
