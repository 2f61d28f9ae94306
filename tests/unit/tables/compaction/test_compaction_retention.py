"""Retention by age and size: what goes, what stays, who does it, and that the tables follow."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import takewhile
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster

from dray.broker.topics.retention import RetentionLoop
from dray.log.entries import IndexEntry
from dray.log.life.retention import Expiring, Retention, WaitsForTable
from dray.log.types import OffsetOutOfRange

assert compaction_cluster  # its tests run on virtual time: see conftest

HOUR = 3_600_000


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


def entry(start: int, end: int, size: int, at: int, *, created: int = 0) -> IndexEntry:
    return IndexEntry(start, end, size, created, at, at, at, start, UUID(int=end), "path", b"")


def expired_below(now: int, age: int, size: int, *entries: IndexEntry) -> int:
    rule = Expiring(now, age, size, entries[-1].cumulative_size)
    return max([entry.end for entry in takewhile(rule.takes, entries)], default=0)


ENTRIES = (
    entry(0, 10, 100, 1000),
    entry(10, 20, 200, 3000),
    entry(20, 30, 300, 2000),
    entry(30, 40, 400, 5000),
)


@pytest.mark.parametrize(
    ("now", "age", "size", "expected"),
    [
        (10_000, -1, -1, 0),
        (1_000 + HOUR, HOUR, -1, 0),  # as old as that is not yet older
        (1_001 + HOUR, HOUR, -1, 10),
        (2_500 + HOUR, HOUR, -1, 10),  # the third is old enough, but the second stands before it
        (3_001 + HOUR, HOUR, -1, 30),
        (9_000 + HOUR, HOUR, -1, 40),  # the head too
        (0, -1, 1000, 0),
        (0, -1, 300, 10),  # what is left must still be that much
        (0, -1, 299, 10),
        (0, -1, 301, 0),
        (0, -1, 100, 30),
        (0, -1, 0, 40),
        (1_001 + HOUR, HOUR, 200, 20),  # whichever lets go of more
        (0, -5, -7, 0),
    ],
)
def test_what_has_expired(now: int, age: int, size: int, expected: int) -> None:
    assert expired_below(now, age, size, *ENTRIES) == expected


def test_records_without_a_time_are_as_old_as_their_object() -> None:
    untimed = entry(0, 10, 100, -1, created=5000)
    assert expired_below(5000 + HOUR, HOUR, -1, untimed) == 0
    assert expired_below(5001 + HOUR, HOUR, -1, untimed) == 10


async def test_a_compactor_keeps_what_topics_keep_and_tables_follow(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", config={"retention.ms": "600000"})
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await cluster.worker().once()
    await asyncio.sleep(400)
    await cluster.fill(stream, 2, first=2)
    await cluster.worker().once()
    assert len((await cluster.table_rows(topic))[0]) == 8
    await asyncio.sleep(300)
    summary = await cluster.worker(replace(ALL, collect_grace=600.0)).once()
    assert (summary.raised, summary.table_files_removed) == (1, 1)
    assert (await cluster.log.bounds(stream)).start == 4
    assert [offset for offset, _ in (await cluster.table_rows(topic))[0]] == [4, 5, 6, 7]
    assert len(cluster.files()) == 2, "readers may still know it"
    await cluster.check_settled()
    assert len(cluster.files()) == 1
    await asyncio.sleep(400)
    await cluster.worker().once()
    assert (await cluster.log.bounds(stream)).start == 8
    await cluster.check_settled()
    assert cluster.files() == set()


async def test_a_broker_keeps_what_topics_keep_where_no_compactor_runs(cluster: Cluster) -> None:
    aged = await cluster.topic("aged", config={"retention.ms": "60000"})
    sized = await cluster.topic("sized", config={"retention.bytes": "100"})
    compacted = await cluster.topic("kept", config={"retention.ms": "1", "cleanup.policy": "compact"})
    for topic in (aged, sized, compacted):
        await cluster.fill(topic.streams[0], 4)
    heard: list[tuple[str, int]] = []
    retention = Retention(
        cluster.streams,
        cluster.runtime,
        cluster.settings,
        on_deleted=lambda why, records: heard.append((why, records)),
    )
    loop = RetentionLoop(retention, cluster.topics, cluster.runtime, 100.0)
    with capture_logs() as logs:
        assert await loop.once() == 1
    assert heard == [("retention", 4)]
    [line] = [line for line in logs if line["log_level"] == "info"]
    assert (line["event"], line["partitions"], line["examples"]) == ("records expired", 1, ["sized"])
    loop.start()
    await asyncio.sleep(126)
    await loop.stop()
    starts = [(await cluster.log.bounds(topic.streams[0])).start for topic in (aged, sized, compacted)]
    assert starts == [8, 4, 0]  # two batches are the least that is 100 bytes or more
    await cluster.check_log()
    assert await loop.once() == 0


async def test_what_is_kept_for_ever_is_not_even_looked_at(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    trap = cluster.store.hold("get", "/hwm")
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    assert not await retention.keep(topic.streams[0], -1, -1)
    assert not trap.sprung.is_set()


async def test_retention_waits_for_whoever_writes_a_file_but_not_for_ever(cluster: Cluster) -> None:
    """Were the job given up each time something expires, a busy stream would never get its file."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    upload = worker.objects.hold("put", "compaction/")
    worker.start()
    await upload.reached()
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    assert not await retention.keep(stream, -1, 100)
    await asyncio.sleep(cluster.settings.job_seconds - 1)
    assert not await retention.keep(stream, -1, 100)
    await asyncio.sleep(1)  # its compactor does not come back
    assert await retention.keep(stream, -1, 100)
    worker.runtime.kill()
    await cluster.check_settled()


# --- DeleteRecords and compactions of the same stream


async def test_records_are_deleted_while_a_compactor_writes(cluster: Cluster) -> None:
    """A job that is only CREATED does not stand in the way: it is given up."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    upload = worker.objects.hold("put", "compaction/")
    task = worker.start()
    await upload.reached()
    assert await cluster.log.delete_records(stream, 4) == 4
    upload.release()
    await task
    assert (await cluster.log.bounds(stream)).start == 4
    await cluster.check_settled()


async def test_records_are_deleted_while_a_compactor_waits_for_the_catalog(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    worker.tables.down = True
    await worker.once()
    with pytest.raises(WaitsForTable, match="waits for the table"):
        await cluster.log.delete_records(stream, 4)
    with pytest.raises(OffsetOutOfRange):
        worker.tables.down = False
        await worker.once()
        await cluster.log.delete_records(stream, 40)
    assert await cluster.log.delete_records(stream, 6) == 6
    await cluster.check_settled()


@pytest.mark.parametrize("at", ["/offset-index/", "/wal/refs/"])
async def test_a_broker_carries_a_committed_job_on(cluster: Cluster, at: str) -> None:
    """The compactor died before its swap, or before it deleted what was replaced."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    write = worker.store.hold("write", at)
    task = worker.start()
    await write.reached()
    if at == "/offset-index/":  # that was the seal, which files the head
        write.release()
        write = worker.store.hold("write", at)
        await write.reached()
    task.cancel()
    assert await cluster.log.delete_records(stream, 2) == 2
    assert await cluster.entries(stream) == ["parquet 0-6"]
    await cluster.check_log()
    await cluster.check_settled()


async def test_a_job_without_a_table_is_the_brokers_to_finish(cluster: Cluster) -> None:
    topic = await cluster.topic("plain", config={"dray.iceberg.enabled": "false"})
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    written = worker.store.hold("write", "/job")
    task = worker.start()
    await written.reached()  # CREATED
    written.release()
    committing = worker.store.hold("write", "/job")
    await committing.reached()  # PARQUET_WRITTEN
    committing.release()
    third = worker.store.hold("write", "/job")
    await third.reached()  # ICEBERG_COMMITTED, not yet
    task.cancel()
    assert await cluster.log.delete_records(stream, 6) == 6
    await cluster.check_settled()
