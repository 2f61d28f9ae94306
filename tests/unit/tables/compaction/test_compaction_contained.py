"""What one stream, one topic or one unit meets is its own affair, whatever it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster, Worker

from dray.broker.topics.retention import RetentionLoop
from dray.log.jobs.values import WrittenFile
from dray.log.life.retention import Retention
from dray.log.producer_state import ProducerEntry, ProducerSnapshot, ProducerStates, RememberedBatch
from dray.metadata import keys
from dray.metadata.contract import Limits, Put
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitFailed, WriterGone
from dray.tables.compaction.writing.careful_writer import CarefulWriter

assert compaction_cluster  # its tests run on virtual time: see conftest

ETCD = Limits(operations=1100, value_bytes=1 << 20)
HOUR = 3_600_000


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


def poison(client: Any, *streams: int) -> None:
    """Whatever touches a key of these streams fails in a way that nobody foresaw."""
    names = [f"/{keys.number(stream)}/" for stream in streams]

    def poisoned(kept: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(domain: int, what: Any, *rest: Any) -> Any:
            touched = [what] if isinstance(what, str) else [getattr(each, "key", "") for each in what]
            if any(name in key for name in names for key in touched):
                raise ValueError("not foreseen")
            return await kept(domain, what, *rest)

        return call

    for method in ("get", "scan", "write"):
        setattr(client, method, poisoned(getattr(client, method)))


async def test_a_stream_that_fails_keeps_no_other_from_compaction(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 4)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker()
    worker.contains = True
    poison(worker.store, topic.streams[1])
    summary = await worker.once()
    assert summary.finished == 3
    assert {trouble.partition for trouble in summary.troubles} == {1, -1}, "and the table waits for it"
    assert worker.runtime.background.failures
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4"]
    assert await cluster.entries(topic.streams[1]) == ["wal 0-2"], "beside the head"


async def test_a_compactor_goes_on_through_whatever_a_cycle_meets(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(replace(ALL, interval=60.0, wal_max_age=0.0))
    kept = cluster.topics.live
    asked = 0

    async def live() -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise RuntimeError("not foreseen")
        return await kept()

    cluster.topics.live = live  # type: ignore[method-assign]
    stop = asyncio.Event()
    running = worker.runtime.spawn(worker.compactor.run(stop), "compactor")
    await asyncio.sleep(90)
    assert not running.done()
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4"]
    stop.set()
    await asyncio.wait_for(running, 1.0)


async def test_a_commit_that_fails_keeps_no_other_topic_waiting(cluster: Cluster) -> None:
    for name in ("bad", "good"):
        topic = await cluster.topic(name)
        await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker()
    kept = worker.tables.commit

    async def commit(table: Any, *rest: Any) -> Any:
        if table.topic == "bad":
            raise KeyError("not foreseen")
        return await kept(table, *rest)

    worker.contains = True
    worker.tables.commit = commit  # type: ignore[method-assign, assignment]
    summary = await worker.once()
    assert summary.finished == 1
    assert "bad" in {trouble.topic for trouble in summary.troubles}
    assert "good" not in {trouble.topic for trouble in summary.troubles}
    [good] = [topic for topic in cluster.topics.topics if topic.name == "good"]
    assert await cluster.entries(good.streams[0]) == ["parquet 0-4"]


# --- retention


async def expiring(cluster: Cluster) -> Any:
    topic = await cluster.topic("orders", 3, {"retention.ms": str(HOUR)})
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    await asyncio.sleep(2 * HOUR / 1000)
    return topic


async def test_retention_of_one_stream_fails_alone(cluster: Cluster) -> None:
    topic = await expiring(cluster)
    poison(cluster.store, topic.streams[1])
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    loop = RetentionLoop(retention, cluster.topics, cluster.runtime, 300.0)
    assert await loop.once() == 2
    assert [type(error) for error in cluster.runtime.failures] == [ValueError]


async def test_the_retention_of_a_broker_outlives_a_round_that_fails(cluster: Cluster) -> None:
    topic = await expiring(cluster)
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    loop = RetentionLoop(retention, cluster.topics, cluster.runtime, 300.0)
    kept = cluster.topics.live

    async def live() -> Any:
        cluster.topics.live = kept  # type: ignore[method-assign]
        raise RuntimeError("not foreseen")

    cluster.topics.live = live  # type: ignore[method-assign]
    loop.start()
    await asyncio.sleep(1000)
    for stream in topic.streams:
        assert (await cluster.new_log().bounds(stream)).start == 4
    assert cluster.runtime.background.failures == {"retention": 1}
    await loop.stop()
    assert cluster.runtime.background.ended() == {}


async def test_etcd_holds_retention_and_compaction_of_a_stream_with_too_many_producers() -> None:
    """25,000 of them, of which a write of etcd's holds some 24,000."""
    cluster = Cluster(ETCD)
    topic = await cluster.topic("orders", 2, {"retention.ms": str(HOUR)})
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    crowded = topic.streams[0]
    now = cluster.runtime.wall_ms()
    many = ProducerStates(24 * HOUR)
    many._own = {number: ProducerEntry(0, now, (RememberedBatch(0, 0, 0, -1),)) for number in range(25_000)}
    cluster.state.apply(
        cluster.streams.domain(crowded),
        [Put(keys.producers(crowded), ProducerSnapshot(0, many).encode())],
        None,
        cluster.runtime.monotonic(),
    )
    assert (await cluster.worker().once()).finished == 2
    assert await cluster.entries(crowded) == ["parquet 0-4"]
    record = await cluster.store.get(cluster.streams.domain(crowded), keys.producers(crowded))
    assert record is not None
    assert len(record.value) <= ETCD.value_bytes
    await asyncio.sleep(2 * HOUR / 1000)
    retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
    assert await RetentionLoop(retention, cluster.topics, cluster.runtime, 300.0).once() == 2


# --- a unit that ends its worker


class DyingWriter:
    """Ends, and fails all it was given, when it is given a unit of these streams."""

    def __init__(self, inner: Any, deadly: set[int]) -> None:
        self._inner = inner
        self.deadly = deadly
        self.calls: list[list[int]] = []

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, _: Deliver | None = None
    ) -> list[WrittenFile | UnitFailed]:
        self.calls.append([unit.stream for unit in units])
        if self.deadly & {unit.stream for unit in units}:
            raise RuntimeError("the worker was killed")
        answers: list[WrittenFile | UnitFailed] = await self._inner.write(units, progress)
        return answers


def fragile(worker: Worker, *deadly: int) -> DyingWriter:
    worker.contains = True
    writer = DyingWriter(worker.writer, set(deadly))
    worker.compactor._writer = CarefulWriter(writer, worker.runtime)
    return writer


async def test_a_unit_that_ends_its_worker_is_set_aside_alone(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 5)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker()
    deadly = topic.streams[3]
    writer = fragile(worker, deadly)
    summary = await worker.once()
    assert (summary.finished, summary.abandoned) == (4, 1)
    [trouble] = summary.troubles
    assert (trouble.partition, "the worker was killed" in trouble.reason) == (3, True)
    assert len([call for call in writer.calls if call == [deadly]]) == 1
    calls = len(writer.calls)
    assert (await worker.once()).finished == 0, "for a while it is not even tried"
    assert len(writer.calls) == calls


async def test_a_unit_that_was_alone_has_one_more_try(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(replace(ALL, interval=10.0, wal_max_age=0.0))
    writer = fragile(worker, *topic.streams)
    for tries in (1, 2, 2):
        await worker.compactor.run_cycle(everything=False)
        assert len(writer.calls) == tries
    await asyncio.sleep(ALL.failed_pause_seconds + 1)
    writer.deadly = set()
    assert (await worker.compactor.run_cycle(everything=False)).finished == 1, "and again after a while"


async def test_where_all_units_fail_none_is_to_blame(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 3, {"retention.ms": str(HOUR)})
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker(replace(ALL, wal_max_age=0.0))
    writer = fragile(worker, *topic.streams)
    with pytest.raises(RuntimeError, match="the worker was killed"):
        await worker.once()
    summary = await worker.compactor.run_cycle(everything=False)
    assert {trouble.partition for trouble in summary.troubles} == {0, 1, 2}
    assert summary.abandoned == 0
    writer.deadly = set()
    assert (await worker.compactor.run_cycle(everything=False)).finished == 3


async def test_a_writer_that_is_gone_ends_the_compactor(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker(replace(ALL, wal_max_age=0.0))

    async def gone(*_: Any) -> Any:
        raise WriterGone("the JVM is gone")

    worker.writer.write = gone  # type: ignore[method-assign, assignment]
    with pytest.raises(WriterGone):
        await worker.compactor.run(asyncio.Event())


# --- what is left of deleted streams


async def test_jobs_of_deleted_streams_leave_the_board(cluster: Cluster) -> None:
    """Those of earlier builds too, which left them when they swept a stream."""
    topic = await cluster.topic("orders", 3)
    kept = await cluster.topic("kept")
    for stream in (*topic.streams, *kept.streams):
        await cluster.fill(stream, 2)
    assert (await cluster.worker().once()).finished == 4
    await cluster.delete(topic, sweep=False)
    worker = cluster.worker()
    await worker.once()
    assert cluster.keys(keys.JOBS) == [keys.job(kept.streams[0])]
    assert len(cluster.keys(keys.CLOSED)) == 3


async def test_files_of_deleted_streams_are_collected_though_their_jobs_are_gone(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    assert (await cluster.worker().once()).finished == 2
    await cluster.delete(topic)
    assert cluster.keys(keys.JOBS) == []
    assert any(path.startswith("compaction/") for path in cluster.bucket.objects)
    await cluster.worker().once()
    assert not any(path.startswith("compaction/") for path in cluster.bucket.objects)


async def test_files_stay_where_neither_a_job_nor_a_closed_mark_is_known(cluster: Cluster) -> None:
    """As in the metadata of another cluster: nothing is deleted on the absence of knowledge."""
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    assert (await cluster.worker().once()).finished == 1
    other = Cluster(bucket=cluster.bucket, seed=2)
    worker = other.worker()
    await worker.once()
    await asyncio.sleep(ALL.collect_grace + 1)
    await worker.once()
    assert any(path.startswith("compaction/") for path in cluster.bucket.objects)
