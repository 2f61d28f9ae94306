"""Schedules for what was deleted: rows that leave a table, and rows that must not come into it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.services.compaction_cluster import ALL, Cluster, Worker
from tests.simulation.scripted import Fate

from dray.broker.topics.model import Topic
from dray.tables.compaction.model import UnitFailed

PLAIN = replace(ALL, wal_max_age=0.0, collect_seconds=1e9, parquet_max_files=1000)


async def two_files() -> tuple[Cluster, Topic, Worker]:
    """Offsets 0 to 3 in one file, 4 and 5 in another, and a compactor that has seen both."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    worker = cluster.worker(PLAIN)
    await cluster.fill(stream, 2)
    await worker.once()
    await cluster.fill(stream, 1, first=2)
    await cluster.seal(stream)
    await worker.compactor.run_cycle(everything=False)
    return cluster, topic, worker


async def shows(cluster: Cluster, topic: Topic, first: int) -> None:
    [rows] = (await cluster.table_rows(topic)).values()
    assert [offset for offset, _ in rows] == list(range(first, 6))


async def records_deleted_in_the_middle_of_a_file() -> None:
    cluster, topic, worker = await two_files()
    await cluster.log.delete_records(topic.streams[0], 3)
    await worker.compactor.run_cycle(everything=False)
    await shows(cluster, topic, 3)
    await cluster.check_settled()


async def records_deleted_with_a_whole_file() -> None:
    cluster, topic, worker = await two_files()
    await cluster.log.delete_records(topic.streams[0], 4)
    await worker.compactor.run_cycle(everything=False)
    await shows(cluster, topic, 4)
    await cluster.check_settled()


async def records_deleted_while_a_file_is_trimmed() -> None:
    """The job of the first deletion is given up for the second; then it waits for its table."""
    cluster, topic, worker = await two_files()
    [stream] = topic.streams
    await cluster.log.delete_records(stream, 1)
    upload = worker.objects.hold("put", "compaction/")
    task = worker.runtime.spawn(worker.compactor.run_cycle(everything=False), "compactor")
    await upload.reached()
    await cluster.log.delete_records(stream, 2)
    upload.release()
    await task
    worker.tables.trap(Fate.LOSE_REPLY, "commit", "orders")
    await worker.compactor.run_cycle(everything=False)
    await shows(cluster, topic, 2)
    await cluster.check_settled()


async def records_deleted_before_they_are_compacted() -> None:
    """And the append that filed their entry arrives once more, after the file has replaced it."""
    cluster = Cluster()
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.append(stream, b"0", b"1", b"2")
    late = cluster.store.trap(Fate.COPY, "write", "/offset-index/")
    await cluster.append(stream, b"3", b"4", b"5")
    await cluster.log.delete_records(stream, 2)
    await asyncio.sleep(1)
    await cluster.worker(PLAIN).once()
    await shows(cluster, topic, 2)
    late.land()
    await cluster.worker(PLAIN).once()
    await shows(cluster, topic, 2)
    await cluster.check_log()
    await cluster.check_settled()


async def a_table_made_again_after_a_deletion() -> None:
    """Its first file cannot be trimmed for now: it stays out, and the others come."""
    cluster, topic, worker = await two_files()
    [stream] = topic.streams
    await cluster.log.delete_records(stream, 3)
    worker.writer.failing[stream] = UnitFailed(0, 0, "told to", retriable=False)
    cluster.catalog.tables.clear()
    await worker.compactor.run_cycle(everything=True)
    await shows(cluster, topic, 4)


DELETION_SCHEDULES = {
    records_deleted_in_the_middle_of_a_file: [
        "compact what was deleted",
        "leave deleted rows in their file",
    ],
    records_deleted_with_a_whole_file: ["leave deleted files to the collectors"],
    records_deleted_while_a_file_is_trimmed: ["leave deleted rows in their file"],
    records_deleted_before_they_are_compacted: ["entries count by what was deleted"],
    a_table_made_again_after_a_deletion: ["restore what was deleted"],
}
