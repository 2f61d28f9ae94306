"""The tables port, held to its word: what the saga of compaction rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest
from tests.services.iceberg_files import TopicFiles

from dray.base.runtime.system import SystemRuntime
from dray.tables.contract import (
    CommitOutcome,
    TableChange,
    TableMissing,
    TableRefused,
    Tables,
    TopicTable,
)

COMMITTED, NOT_OURS, LOST_RACE = CommitOutcome.COMMITTED, CommitOutcome.NOT_OURS, CommitOutcome.LOST_RACE


async def ours(_: TableChange) -> bool:
    return True


async def test_a_table_is_made_once(open_tables: Callable[[], Tables], files: TopicFiles) -> None:
    first, second = open_tables(), open_tables()
    made = await first.ensure(files.topic)
    assert made.created
    again = await second.ensure(files.topic)
    assert not again.created
    assert again.table_uuid == made.table_uuid
    assert await second.topics() == [files.topic]


async def test_nothing_is_known_of_a_table_that_is_not_there(tables: Tables, files: TopicFiles) -> None:
    assert await tables.live_files(files.topic) is None
    assert await tables.current_files(files.topic) is None
    assert await tables.live_metadata(files.topic) is None
    assert await tables.committed(files.topic, ["1-1"]) == set()
    assert not await tables.drop(files.topic)
    assert (await tables.maintain(files.topic, [], 0)).snapshots_expired == 0
    with pytest.raises(TableMissing):
        await tables.commit(files.topic, [TableChange("1-1")], ours)
    assert await tables.topics() == [], "a commit makes no table"


async def test_what_is_committed_is_there(tables: Tables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    one, two = files.write(0, 0), files.write(1, 0)
    changes = [files.change("100-1", one), files.change("101-1", two)]
    assert await tables.commit(files.topic, changes, ours) == {"100-1": COMMITTED, "101-1": COMMITTED}
    assert await tables.current_files(files.topic) == {one.path, two.path}
    assert await tables.live_files(files.topic) == {one.path, two.path}
    assert await tables.committed(files.topic, ["100-1", "101-1", "102-1"]) == {"100-1", "101-1"}


async def test_a_job_is_committed_once(open_tables: Callable[[], Tables], files: TopicFiles) -> None:
    first, second = open_tables(), open_tables()
    await first.ensure(files.topic)
    one, two = files.write(0, 0), files.write(1, 0)
    await first.commit(files.topic, [files.change("100-1", one)], ours)
    both = [files.change("100-1", one), files.change("101-1", two)]
    assert await second.commit(files.topic, both, ours) == {"100-1": COMMITTED, "101-1": COMMITTED}
    assert await second.current_files(files.topic) == {one.path, two.path}


async def test_a_merge_takes_the_place_of_its_files(tables: Tables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    one, two = files.write(0, 0), files.write(0, 3)
    await tables.commit(files.topic, [files.change("100-1", one), files.change("100-2", two)], ours)
    merged = files.write(0, 0, 6, job=3)
    change = files.change("100-3", merged, removed=(one.path, two.path))
    assert await tables.commit(files.topic, [change], ours) == {"100-3": COMMITTED}
    assert await tables.current_files(files.topic) == {merged.path}
    assert await tables.live_files(files.topic) == {one.path, two.path, merged.path}, (
        "older snapshots know them"
    )


async def test_what_is_not_ours_is_left_out(tables: Tables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    one, two = files.write(0, 0), files.write(1, 0)

    async def second_only(change: TableChange) -> bool:
        return change.job == "101-1"

    changes = [files.change("100-1", one), files.change("101-1", two)]
    outcomes = await tables.commit(files.topic, changes, second_only)
    assert outcomes == {"100-1": NOT_OURS, "101-1": COMMITTED}
    assert await tables.current_files(files.topic) == {two.path}


async def test_it_is_asked_whose_a_job_is_after_the_table_was_loaded(
    open_tables: Callable[[], Tables], files: TopicFiles
) -> None:
    """Another finishes the job between the question and the commit: the table has moved, and ours is void."""
    slow, quick = open_tables(), open_tables()
    await slow.ensure(files.topic)
    one = files.write(0, 0)
    asked = 0

    async def overtaken(change: TableChange) -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            assert await quick.commit(files.topic, [change], ours) == {change.job: COMMITTED}
        return True

    outcomes = await slow.commit(files.topic, [files.change("100-1", one)], overtaken)
    # Whether it looks once more or leaves that to the next cycle, the file is there once.
    assert outcomes["100-1"] in (COMMITTED, LOST_RACE)
    assert await slow.current_files(files.topic) == {one.path}
    assert await slow.commit(files.topic, [files.change("100-1", one)], ours) == {"100-1": COMMITTED}


async def test_a_change_with_nothing_to_do_still_stops_a_slower_one(
    open_tables: Callable[[], Tables], files: TopicFiles
) -> None:
    """How the file of a deleted stream is kept out: the one that takes it out may come before the one that
    adds it."""
    slow, quick = open_tables(), open_tables()
    await slow.ensure(files.topic)
    one = files.write(0, 0)
    asked = 0

    async def deleted_meanwhile(_: TableChange) -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            return False
        out = files.change("100-1-out", removed=(one.path,))
        assert await quick.commit(files.topic, [out], ours) == {"100-1-out": COMMITTED}
        return True

    outcomes = await slow.commit(files.topic, [files.change("100-1", one)], deleted_meanwhile)
    assert outcomes["100-1"] in (NOT_OURS, LOST_RACE)
    assert await slow.current_files(files.topic) == set()
    assert await slow.committed(files.topic, ["100-1-out"]) == {"100-1-out"}


async def test_the_table_of_another_topic_of_the_same_name(tables: Tables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    one = files.write(0, 0)
    await tables.commit(files.topic, [files.change("100-1", one)], ours)
    namesake = replace(files.topic, topic_id=uuid4())
    with pytest.raises(TableRefused):
        await tables.ensure(namesake)
    with pytest.raises(TableRefused):
        await tables.commit(namesake, [TableChange("200-1")], ours)
    assert await tables.live_files(namesake) is None
    assert await tables.current_files(namesake) is None
    assert await tables.committed(namesake, ["100-1"]) == set()
    assert not await tables.drop(namesake)
    assert await tables.drop(files.topic)
    assert (await tables.ensure(namesake)).created
    assert await tables.current_files(namesake) == set(), "old rows never appear under the new topic"


async def test_a_table_partitioned_otherwise_is_refused(tables: Tables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    with pytest.raises(TableRefused):
        await tables.ensure(TopicTable(files.topic.topic, files.topic.topic_id, day_partitioned=True))


async def test_expiry_keeps_the_newest_and_what_unfinished_jobs_need(
    tables: Tables, files: TopicFiles, runtime: SystemRuntime
) -> None:
    await tables.ensure(files.topic)
    one, two, three = files.write(0, 0), files.write(0, 3), files.write(0, 6)
    for job, file in (("100-1", one), ("100-2", two), ("100-3", three)):
        await tables.commit(files.topic, [files.change(job, file)], ours)
    gone = files.change("100-4", removed=(one.path,))
    await tables.commit(files.topic, [gone], ours)
    later = runtime.wall_ms() + 60_000
    await tables.maintain(files.topic, ["100-2"], later)
    assert await tables.committed(files.topic, ["100-1", "100-2", "100-3", "100-4"]) == {"100-2", "100-4"}
    assert await tables.live_files(files.topic) == {one.path, two.path, three.path}
    await tables.maintain(files.topic, [], later)
    assert await tables.live_files(files.topic) == {two.path, three.path}
    assert await tables.current_files(files.topic) == {two.path, three.path}
