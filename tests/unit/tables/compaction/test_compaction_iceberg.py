"""The whole compactor with real Iceberg tables: read back by pyiceberg, the table equals the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL
from tests.services.lake import Lake
from tests.unit.tables.compaction.changed_tables import a_table, rewritten

from dray.tables.compaction.table_keeper import ROUND_SECONDS, TableGuard, table_of
from dray.tables.contract import TopicTable

DAILY = {"message.timestamp.type": "LogAppendTime", "dray.iceberg.partition.by.day": "true"}

assert compaction_cluster  # its tests run on virtual time: see conftest


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    made = Lake(tmp_path)
    yield made
    await made.close()


async def test_a_topic_in_its_table(lake: Lake) -> None:
    cluster = lake.cluster
    topic = await cluster.topic("orders", 2, {"retention.ms": "600000"})
    first, second = topic.streams
    await cluster.fill(second, 2)
    for turn in range(3):
        await cluster.fill(first, 2, first=2 * turn)
        summary = await cluster.worker().once()
        assert summary.troubles == []
    await lake.check(topic)
    # merged
    summary = await cluster.worker(replace(ALL, parquet_max_files=1)).once()
    assert summary.troubles == []
    assert await cluster.entries(first) == ["parquet 0-12"]
    await lake.check(topic)
    # dropped by somebody
    table = await lake.tables.load("orders")
    assert table is not None
    table.catalog.drop_table(table.name())
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.table_files_restored) == ([], 2)
    await lake.check(topic)
    # expired
    await asyncio.sleep(300)
    await cluster.fill(first, 1, first=6)
    await asyncio.sleep(400)
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.raised, summary.table_files_removed) == ([], 2, 2)
    await lake.check(topic)
    assert await lake.rows(topic) == {0: [(12, b"0.6-a"), (13, b"0.6-b")], 1: []}


async def test_what_was_deleted_leaves_the_table(lake: Lake) -> None:
    """In two partitions, by one commit; and what was never compacted does not come in."""
    cluster = lake.cluster
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.append(stream, *[b"%d" % number for number in range(100)])
    await cluster.log.delete_records(topic.streams[1], 10)
    assert (await cluster.worker().once()).troubles == []
    await lake.check(topic)
    for stream in topic.streams:
        await cluster.log.delete_records(stream, 97)
    summary = await cluster.worker().once()
    assert (summary.troubles, summary.commits) == ([], 1)
    await lake.check(topic)
    assert [len(rows) for rows in (await lake.rows(topic)).values()] == [3, 3]


async def test_a_new_topic_of_an_old_name(lake: Lake) -> None:
    cluster = lake.cluster
    old = await cluster.topic("orders", config=DAILY)
    await cluster.fill(old.streams[0], 2)
    await cluster.worker().once()
    await cluster.delete(old)
    new = await cluster.topic("orders")
    await cluster.append(new.streams[0], b"new")
    summary = await cluster.worker().once()
    assert (summary.tables_dropped, summary.finished) == (1, 1)
    assert await lake.rows(new) == {0: [(0, b"new")]}
    await cluster.worker().once()
    assert len(cluster.files()) == 1


async def test_a_crash_after_the_commit_of_a_deleted_topic_by_day(lake: Lake) -> None:
    """Its file is taken out of the table as it was, though the topic cannot be asked any more."""
    cluster = lake.cluster
    keeping = replace(ALL, drop_tables=False)
    topic = await cluster.topic("orders", config=DAILY)
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(keeping)
    await cluster.seal(topic.streams[0])
    task = worker.start()
    swap = worker.store.hold("write", "/offset-index/")
    await swap.reached()
    worker.runtime.kill()
    await asyncio.wait([task])
    assert len(await lake.tables.current_files(table_of(topic)) or ()) == 1
    await cluster.delete(topic)
    summary = await cluster.worker(keeping).once()
    assert (summary.troubles, summary.finished) == ([], 1)
    assert await lake.tables.current_files(table_of(topic)) == set()


# --- changed by others


async def test_files_that_were_rewritten_are_put_back_and_nothing_waits(lake: Lake) -> None:
    topic, table = await a_table(lake)
    rewritten(table)
    await lake.cluster.fill(topic.streams[0], 1, first=4)
    summary = await lake.cluster.worker().once()
    assert summary.finished == 1
    await lake.check(topic)
    assert (await lake.cluster.worker().once()).troubles == []
    now = await lake.tables.load("orders")
    assert now is not None
    paths = {task.file.file_path for task in now.scan().plan_files()}
    assert all("/compaction/v1/" in path for path in paths), "they are the log's own files again"


async def test_rows_of_others_hold_the_table_until_they_are_put_back(lake: Lake) -> None:
    topic, table = await a_table(lake)
    table.delete("offset = 3")
    await lake.cluster.fill(topic.streams[0], 1, first=4)
    summary = await lake.cluster.worker().once()
    assert summary.finished == 0
    assert "another writer (overwrite) changed its rows" in summary.troubles[0].reason
    summary = await lake.cluster.worker(replace(ALL, revert_foreign_rows=True)).once()
    assert summary.finished == 1
    await lake.check(topic)


async def test_what_the_log_has_lost_is_never_put_back(lake: Lake) -> None:
    """The table has the rows in files of another writer: they may be the last copy."""
    _, table = await a_table(lake)
    rewritten(table)
    for path in lake.cluster.files():
        lake.cluster.bucket.delete(path)
    summary = await lake.cluster.worker(replace(ALL, revert_foreign_rows=True)).once()
    told = " ".join(each.reason for each in summary.troubles)
    assert "Do not drop it: drayd admin lost orders --recover" in told
    kept = await lake.tables.load("orders")
    assert kept is not None
    assert kept.scan().to_arrow().num_rows == 16


async def test_properties_that_protect_the_log_are_set_back_within_seconds(lake: Lake) -> None:
    topic, table = await a_table(lake)
    with table.transaction() as changed:
        changed.set_properties({"gc.enabled": "true"})
        changed.remove_properties("dray.topic_id")
    guard = TableGuard(lake.tables, lake.cluster.topics, lake.cluster.runtime)
    guard.start()
    await asyncio.sleep(ROUND_SECONDS / 2)
    for _ in range(1000):  # the catalog is asked in a thread, which has no virtual time
        table.refresh()
        if table.properties.get("gc.enabled") == "false":
            break
        await asyncio.sleep(0.001)
    await guard.stop()
    assert table.properties["gc.enabled"] == "false"
    assert table.properties["dray.topic_id"] == str(topic.topic_id)


async def test_one_table_that_cannot_be_guarded_does_not_keep_the_guard_from_the_others(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("broken", "orders"):
        await lake.cluster.topic(name)
    seen: list[str] = []

    async def guarded(topic: TopicTable) -> bool:
        seen.append(topic.topic)
        if topic.topic == "broken":
            raise KeyError("mistaken")
        return False

    monkeypatch.setattr(lake.tables, "guard", guarded)
    guard = TableGuard(lake.tables, lake.cluster.topics, lake.cluster.runtime)
    guard.start()
    await asyncio.sleep(3 * ROUND_SECONDS)
    await guard.stop()
    assert seen.count("orders") >= 2
    assert lake.cluster.runtime.background.failures["guard a table"] == seen.count("broken")
