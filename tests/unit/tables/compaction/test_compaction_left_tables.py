"""The log goes on without a table that cannot be written for long, and the table catches up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation
from tests.services import compaction_cluster  # noqa: F401 - its tests run on virtual time: see conftest
from tests.services.compaction_cluster import ALL, Cluster, Worker
from tests.services.lake import Lake
from tests.unit.tables.compaction.changed_tables import a_table

from dray.broker.topics.model import Topic
from dray.log.jobs.machine import JobState
from dray.log.life.retention import WaitsForTable
from dray.tables.compaction import left_tables
from dray.tables.compaction.summary import Cause

PATIENCE = 3600.0
DAEMON = replace(ALL, table_patience_seconds=PATIENCE, wal_max_age=0.0, parquet_max_files=4)
HASTY = replace(DAEMON, table_patience_seconds=0.0)


async def filled(partitions: int = 1, **config: str) -> tuple[Cluster, Topic]:
    cluster = Cluster()
    topic = await cluster.topic(
        "orders", partitions, {key.replace("_", "."): text for key, text in config.items()}
    )
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    return cluster, topic


async def cycle(worker: Worker) -> None:
    """As a daemon does it, with all that is there."""
    await worker.compactor.run_cycle(everything=True)


async def check_settled(cluster: Cluster, topic: Topic) -> None:
    await cluster.check_settled()
    for stream in topic.streams:
        assert (await cluster.streams.job(stream)).value.left_table is None


async def test_a_table_that_others_hold_does_not_hold_the_log(cluster_with_table: Cluster) -> None:
    """One row that an analyst deleted stopped retention and DeleteRecords, and kept other topics' WAL."""
    cluster = cluster_with_table
    topic = cluster.topics.topics[0]
    [stream] = topic.streams
    cluster.catalog.held.add("orders")
    worker = cluster.worker(DAEMON)
    await cluster.fill(stream, 2, first=2)
    await cycle(worker)
    with pytest.raises(WaitsForTable):
        await cluster.log.delete_records(stream, 1)
    await asyncio.sleep(PATIENCE - 10)
    await cycle(worker)
    assert (await cluster.streams.job(stream)).value.state is JobState.PARQUET_WRITTEN
    await asyncio.sleep(20)
    await cycle(worker)
    assert await cluster.entries(stream) == ["parquet 0-4", "parquet 4-8"]
    assert [offset for offset, _ in (await cluster.table_rows(topic))[0]] == [0, 1, 2, 3]
    assert await cluster.log.delete_records(stream, 5) == 5
    await cluster.fill(stream, 2, first=4)
    await cycle(worker)  # at once: the topic's table was left already
    assert await cluster.entries(stream) == ["parquet 4-8", "parquet 8-12"]
    assert cluster.keys("wal/refs/") == []
    await cluster.check_log()
    cluster.catalog.held.clear()
    await cycle(worker)
    assert [offset for offset, _ in (await cluster.table_rows(topic))[0]] == list(range(5, 12))
    await check_settled(cluster, topic)


async def test_a_compactor_that_is_started_anew_each_time_loses_its_patience_too(
    cluster_with_table: Cluster,
) -> None:
    """As by cron, with `--once`; or one that does not live for as long."""
    cluster = cluster_with_table
    [stream] = cluster.topics.topics[0].streams
    cluster.catalog.held.add("orders")
    await cluster.fill(stream, 2, first=2)
    await cluster.worker(DAEMON).once()
    await asyncio.sleep(PATIENCE - 10)
    assert (await cluster.worker(DAEMON).once()).without_table == 0
    await asyncio.sleep(20)
    assert (await cluster.worker(DAEMON).once()).without_table == 1
    assert await cluster.entries(stream) == ["parquet 0-4", "parquet 4-8"]
    assert await cluster.log.delete_records(stream, 5) == 5
    cluster.catalog.held.clear()
    await cluster.worker(DAEMON).once()
    await check_settled(cluster, cluster.topics.topics[0])


@pytest.fixture
async def cluster_with_table() -> Cluster:
    cluster, _ = await filled()
    await cluster.worker(DAEMON).once()
    return cluster


async def test_a_catalog_that_is_away_for_a_week() -> None:
    cluster, topic = await filled(2, retention_ms=str(48 * 3_600_000))
    worker = cluster.worker(DAEMON)
    worker.tables.down = True
    for hour in range(0, 7 * 24, 4):
        for stream in topic.streams:
            await cluster.append(stream, b"%d" % hour)
        await asyncio.sleep(4 * 3600)
        await cycle(worker)
    for stream in topic.streams:
        entries = await cluster.entries(stream)
        assert 11 <= len(entries) <= 13, "retention runs: two days of records are left"
        assert {entry.partition(" ")[0] for entry in entries} == {"parquet"}
    assert cluster.keys("wal/refs/") == []
    await cluster.check_log()
    assert cluster.catalog.tables == {}
    worker.tables.down = False
    await cycle(worker)
    first = cluster.catalog.tables["orders"].snapshots
    for partition, stream in enumerate(topic.streams):
        assert (await cluster.table_rows(topic))[partition] == await cluster.read(stream)
    assert cluster.catalog.commits <= len(first) + 2, "one commit brings all of it"
    await check_settled(cluster, topic)


async def test_a_file_that_is_gone_does_not_come_with_what_a_table_missed() -> None:
    cluster, _ = await filled(2)
    worker = cluster.worker(HASTY)
    worker.tables.down = True
    await cycle(worker)
    worker.tables.down = False
    lost, kept = sorted(cluster.files())
    del cluster.bucket.objects[lost]
    for _ in range(2):
        await cycle(worker)
    assert set(cluster.catalog.tables["orders"].newest.files) == {kept}


async def test_a_merge_goes_on_too_and_comes_into_the_table_in_one_commit() -> None:
    cluster, topic = await filled()
    [stream] = topic.streams
    for turn in range(1, 5):
        await cluster.worker(DAEMON).once()
        await cluster.fill(stream, 2, first=2 * turn)
    await cluster.worker(replace(DAEMON, parquet_max_files=100)).once()
    merging = cluster.worker(replace(HASTY, parquet_max_files=1))
    merging.tables.down = True
    await cycle(merging)
    assert await cluster.entries(stream) == ["parquet 0-20"]
    await cluster.fill(stream, 2, first=10)
    await cycle(merging)
    assert await cluster.entries(stream) == ["parquet 0-20", "parquet 20-24"], "nothing more is merged"
    before = len(cluster.catalog.tables["orders"].snapshots)
    await cluster.worker(replace(DAEMON, snapshot_keep_ms=10**9)).once()
    for snapshot in cluster.catalog.tables["orders"].snapshots[before:]:
        files = snapshot.files.values()
        rows = sum(file.last_offset + 1 - file.first_offset for file in files if file.first_offset < 20)
        assert rows == 20, "a query would miss rows that it has seen"
    await check_settled(cluster, topic)


async def test_a_commit_that_another_came_before_is_no_reason_to_leave_a_table(
    cluster_with_table: Cluster,
) -> None:
    cluster = cluster_with_table
    [stream] = cluster.topics.topics[0].streams
    await cluster.fill(stream, 2, first=2)
    worker = cluster.worker(HASTY)
    held = worker.tables.hold("commit", "orders")
    task = worker.runtime.spawn(worker.compactor.run_cycle(everything=False), "compactor")
    await held.reached()
    table = cluster.catalog.tables["orders"]
    assert cluster.catalog.commit(table.loaded(), [], 0)
    held.release()
    summary = await task
    assert summary.waiting == 1
    assert (await cluster.streams.job(stream)).value.state is JobState.PARQUET_WRITTEN
    await cluster.check_settled()


async def test_a_deleted_topic_does_not_wait_for_its_table(cluster_with_table: Cluster) -> None:
    """Its job, and what that would replace, would stay for as long as the catalog is away."""
    cluster = cluster_with_table
    topic = cluster.topics.topics[0]
    await cluster.fill(topic.streams[0], 2, first=2)
    worker = cluster.worker(DAEMON)
    worker.tables.down = True
    await cycle(worker)
    [stream] = topic.streams
    await cluster.delete(topic)
    await cycle(worker)
    assert (await cluster.streams.job(stream)).value.state is JobState.PARQUET_WRITTEN
    await asyncio.sleep(PATIENCE + 10)
    await cycle(worker)
    assert (await cluster.streams.job(stream)).value.state is JobState.DONE
    worker.tables.down = False
    await cycle(worker)
    assert cluster.catalog.tables == {}
    await cluster.check_settled()


async def test_many_files_come_in_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_tables, "MOST_FILES", 5)
    cluster, topic = await filled(2)
    worker = cluster.worker(HASTY)
    worker.tables.down = True
    for turn in range(1, 8):
        await cycle(worker)
        for stream in topic.streams:
            await cluster.fill(stream, 1, first=2 * turn)
    await cycle(worker)
    worker.tables.down = False
    before = cluster.catalog.commits
    await cycle(worker)
    assert cluster.catalog.commits - before >= 4
    await check_settled(cluster, topic)


async def test_one_table_shows_that_the_catalog_does_not_answer() -> None:
    """A thousand topics would each wait for the catalog's timeout, in every cycle."""
    cluster = Cluster()
    topics = [await cluster.topic(f"t{number}") for number in range(4)]
    for topic in topics:
        await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(replace(HASTY, collect_seconds=1e9))
    worker.tables.down = True
    await cycle(worker)
    asked: list[str] = []
    kept = worker.tables.call

    async def call(kind: Any, name: Any, act: Any) -> Any:
        asked.append(name)
        return await kept(kind, name, act)

    worker.tables.call = call  # type: ignore[method-assign]
    for _ in range(4):
        await worker.compactor.run_cycle(everything=False)
    assert sorted(asked) == ["t0", "t1", "t2", "t3"], "one in each cycle, and each in its turn"


async def test_a_mistake_in_the_tables_does_not_hold_the_log(
    cluster_with_table: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ours, or of a library: it is reported as one, and counts as a table that takes no commit."""
    cluster = cluster_with_table
    [stream] = cluster.topics.topics[0].streams
    await cluster.fill(stream, 2, first=2)
    worker = cluster.worker(HASTY)

    async def commit(*_: object) -> Any:
        raise KeyError("mistaken")

    monkeypatch.setattr(worker.tables, "commit", commit)
    summary = await worker.compactor.run_cycle(everything=True)
    assert worker.runtime.background.failures["commit a table"] == 1
    assert summary.troubles[0].cause is Cause.TABLE
    assert await cluster.entries(stream) == ["parquet 0-4", "parquet 4-8"]
    assert await cluster.log.delete_records(stream, 5) == 5


# --- real tables


@pytest.fixture
async def lake(tmp_path: Path) -> AsyncIterator[Lake]:
    made = Lake(tmp_path)
    yield made
    await made.close()


def spoil(location: str, damage: bytes | None) -> None:
    path = Path(location.removeprefix("file:"))
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)


@pytest.mark.parametrize("which", ["metadata", "list", "manifest"])
@pytest.mark.parametrize("damage", [b"", b"<html>busy</html>", None], ids=["empty", "another", "gone"])
async def test_a_table_whose_metadata_is_damaged_does_not_hold_the_log(
    lake: Lake, which: str, damage: bytes | None
) -> None:
    cluster = lake.cluster
    topic, table = await a_table(lake)
    newest = table.current_snapshot()
    assert newest is not None
    places = {
        "metadata": table.metadata_location,
        "list": newest.manifest_list,
        "manifest": newest.manifests(table.io)[0].manifest_path,
    }
    spoil(places[which], damage)
    await cluster.fill(topic.streams[0], 2, first=4)
    patient = await cluster.worker().once()
    assert (patient.finished, patient.waiting) == (0, 1)
    [told] = {trouble.reason for trouble in patient.troubles if trouble.topic == "orders"}
    assert "\n" not in told
    assert "cannot be read" in told
    assert "the log is as it was; if this stays so, drayd admin table orders --rebuild" in told
    await cycle(cluster.worker(HASTY))
    assert cluster.keys("wal/refs/") == []
    assert await cluster.log.delete_records(topic.streams[0], 1) == 1
    await cluster.check_log()


async def test_one_table_that_cannot_be_read_is_no_reason_to_pass_over_others(lake: Lake) -> None:
    cluster = lake.cluster
    _, table = await a_table(lake)
    other = await cluster.topic("clicks")
    await cluster.fill(other.streams[0], 2)
    await cluster.worker().once()
    spoil(table.metadata_location, b"")
    assert [found.topic for found in await lake.tables.topics()] == ["clicks"]
    await cluster.delete(other)
    assert (await cluster.worker().once()).tables_dropped == 1


async def test_readers_that_follow_a_table_see_new_rows_as_new_and_old_ones_as_moved(lake: Lake) -> None:
    """An `overwrite` stops Spark's streaming reader for good."""
    cluster = lake.cluster
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(3):
        await cluster.fill(stream, 2, first=2 * turn)
        await cluster.worker().once()
    table = await lake.tables.load("orders")
    assert table is not None
    known = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
    with table.transaction() as changed:
        changed.set_properties({"dray.schema_version": "9"})
    merging = cluster.worker(replace(HASTY, parquet_max_files=1))
    await cycle(merging)
    await cluster.fill(stream, 2, first=6)
    await cycle(merging)
    await cluster.fill(stream, 2, first=8)
    await cycle(merging)
    assert await cluster.entries(stream) == ["parquet 0-12", "parquet 12-16", "parquet 16-20"]
    table.refresh()
    with table.transaction() as changed:
        changed.set_properties({"dray.schema_version": "1"})
    keeping = cluster.worker(replace(DAEMON, snapshot_keep_ms=10**9))
    assert (await keeping.once()).troubles == []
    await lake.check(topic)
    table.refresh()
    new = [snapshot for snapshot in table.metadata.snapshots if snapshot.snapshot_id not in known]
    kinds = [snapshot.summary.operation for snapshot in new if snapshot.summary]
    assert Operation.OVERWRITE not in kinds
    assert {Operation.REPLACE, Operation.APPEND} <= set(kinds)
