"""A cycle reads what can have changed, and no more; what it does not hear of, it finds later."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster, Worker

from dray.broker.topics.model import Topic
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import CycleSummary

QUIET = replace(ALL, collect_seconds=1e9, wal_max_age=60.0, target_file_bytes=20_000)
LARGE = Random(1).randbytes(20_000)
STREAMS = 8


class ReadCounts:
    """How often a worker reads which part of a stream, and how many records come back."""

    def __init__(self, worker: Worker) -> None:
        self.calls: Counter[str] = Counter()
        self.records = 0
        get, scan = worker.store.get, worker.store.scan

        async def counted_get(domain: int, key: str) -> StoredValue | None:
            self.calls["get of a stream"] += key.startswith(keys.STREAMS)
            return await get(domain, key)

        async def counted_scan(
            domain: int, start: str, end: str, limit: int | None = None
        ) -> list[StoredValue]:
            found = await scan(domain, start, end, limit)
            if start.startswith(keys.STREAMS):
                self.calls["scan of a stream"] += 1
                self.records += len(found)
            else:
                self.calls["other scan"] += 1
            return found

        worker.store.get = counted_get  # type: ignore[method-assign]
        worker.store.scan = counted_scan  # type: ignore[method-assign]

    def take(self) -> tuple[dict[str, int], int]:
        seen = {what: count for what, count in self.calls.items() if count}, self.records
        self.calls.clear()
        self.records = 0
        return seen


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def resting(cluster: Cluster, worker: Worker, streams: int = STREAMS) -> Topic:
    """A topic whose partitions are all compacted, and known to the worker."""
    topic = await cluster.topic("orders", streams, {"retention.ms": "3600000"})
    for stream in topic.streams:
        await cluster.fill(stream, 1)
    await worker.once()
    await cycle(worker)
    await cycle(worker)
    return topic


async def cycle(worker: Worker) -> CycleSummary:
    await worker.runtime.sleep(0.1)  # virtual time, for hints to arrive
    summary = await worker.compactor.run_cycle(everything=False)
    assert summary.troubles == []
    return summary


async def follower(cluster: Cluster, settings: CompactionSettings = QUIET) -> Worker:
    worker = cluster.worker(settings)
    worker.compactor.follow()
    await worker.runtime.sleep(0.1)
    return worker


async def test_an_idle_cluster_costs_a_few_reads_however_many_streams_it_has(cluster: Cluster) -> None:
    worker = await follower(cluster)
    await resting(cluster, worker)
    counted = ReadCounts(worker)
    assert (await cycle(worker)).looked == 0
    assert counted.take() == ({"other scan": compaction_cluster.DOMAINS}, 0)


async def test_without_a_watch_every_stream_is_asked_for_one_key(cluster: Cluster) -> None:
    worker = cluster.worker(QUIET)
    await resting(cluster, worker)
    counted = ReadCounts(worker)
    assert (await cycle(worker)).looked == 0
    assert counted.take()[0] == {"other scan": compaction_cluster.DOMAINS, "get of a stream": STREAMS}


@pytest.mark.parametrize("follows", [True, False])
async def test_a_stream_that_grew_is_looked_at_and_no_other(cluster: Cluster, follows: bool) -> None:
    worker = await follower(cluster) if follows else cluster.worker(QUIET)
    topic = await resting(cluster, worker)
    await cluster.fill(topic.streams[3], 1, first=1)
    summary = await cycle(worker)
    assert (summary.looked, summary.units) == (1, 0)
    await worker.runtime.sleep(60)
    summary = await cycle(worker)
    assert (summary.sealed, summary.units, summary.finished) == (1, 1, 1), (
        "it came of age, and nothing changed"
    )
    assert (await cycle(worker)).looked == 1, "its job changed it"
    assert (await cycle(worker)).looked == 0
    await cluster.check_settled()


async def with_large_files(cluster: Cluster, worker: Worker, files: int) -> int:
    [stream] = (await cluster.topic("orders")).streams
    for _ in range(files):
        await cluster.append(stream, LARGE)
    await worker.once()
    assert len(await cluster.entries(stream)) == files
    await cycle(worker)
    return stream


async def test_only_the_end_of_a_long_index_is_read(cluster: Cluster) -> None:
    worker = await follower(cluster)
    stream = await with_large_files(cluster, worker, 10)
    counted = ReadCounts(worker)
    await cluster.append(stream, b"one")
    await cluster.append(stream, b"two")
    assert (await cycle(worker)).looked == 1
    assert counted.take() == (
        {"other scan": compaction_cluster.DOMAINS, "get of a stream": 2, "scan of a stream": 1},
        1,  # the new entry below the head
    )
    await cluster.check_settled()


async def test_small_files_at_the_end_are_merged_though_the_others_are_not_read(cluster: Cluster) -> None:
    worker = await follower(cluster, replace(QUIET, wal_max_age=0.0, parquet_max_files=5))
    stream = await with_large_files(cluster, worker, 4)
    counted = ReadCounts(worker)
    for value in (b"one", b"two"):
        await cluster.append(stream, value)
        for _ in range(3):  # compact, perhaps merge, rest
            await cycle(worker)
    assert (await cluster.entries(stream))[3:] == ["parquet 3-4", "parquet 4-6"]
    assert counted.take()[1] < 20
    await cluster.check_settled()


async def test_what_a_late_write_brings_back_is_swept(cluster: Cluster) -> None:
    worker = await follower(cluster)
    stream = await with_large_files(cluster, worker, 3)
    await cluster.append(stream, b"one", b"two")
    await cluster.seal(stream)
    [late] = [entry.value for entry in await cluster.streams.entries_above(stream, 3)]
    await worker.once()
    await cluster.append(stream, LARGE)
    await worker.once()
    await cycle(worker)
    key = keys.index_entry(stream, late.end - 1, late.cumulative_size)
    await cluster.streams.write(stream, [Put(key, replace(late, end=late.end - 1).encode())])
    assert (await cycle(worker)).swept == 1, "the hint names an offset below what is settled"
    await cluster.check_settled()


async def test_a_silent_watch_delays_and_no_more(cluster: Cluster) -> None:
    worker = await follower(cluster, replace(QUIET, wal_max_age=0.0, reread_seconds=600.0))
    topic = await resting(cluster, worker)
    worker.store.deaf = True
    await cluster.fill(topic.streams[0], 1, first=1)
    assert (await cycle(worker)).looked == 0
    await worker.runtime.sleep(600)
    summary = await cycle(worker)
    assert (summary.looked >= STREAMS, summary.finished) == (True, 1)
    await cluster.check_settled()


async def test_a_topic_that_is_configured_otherwise_is_looked_at(cluster: Cluster) -> None:
    worker = await follower(cluster)
    topic = await resting(cluster, worker)
    changed = replace(topic, settings=replace(topic.settings, iceberg_enabled=False))
    cluster.topics.topics = [changed]
    assert (await cycle(worker)).looked == STREAMS


async def test_resting_streams_are_asked_for_retention_when_something_expires(cluster: Cluster) -> None:
    worker = await follower(cluster, replace(QUIET, reread_seconds=1e9))
    topic = await resting(cluster, worker)
    counted = ReadCounts(worker)
    await worker.runtime.sleep(3_500)
    await cycle(worker)
    assert "get of a stream" not in counted.take()[0], "nothing can have expired"
    await worker.runtime.sleep(200)
    assert (await cycle(worker)).raised == STREAMS
    assert (await cluster.log.bounds(topic.streams[0])).start == 2


async def test_a_smaller_retention_holds_at_once(cluster: Cluster) -> None:
    worker = await follower(cluster)
    topic = await resting(cluster, worker)
    cluster.topics.topics = [replace(topic, settings=replace(topic.settings, retention_bytes=0))]
    assert (await cycle(worker)).raised == STREAMS


async def test_a_restarted_compactor_reads_everything(cluster: Cluster) -> None:
    await resting(cluster, await follower(cluster))
    assert (await cycle(await follower(cluster))).looked == STREAMS
