"""Topics that are compacted since somebody asked, whatever the age of their records."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster, Worker

from dray.broker.topics import compaction_requests
from dray.broker.topics.compaction_requests import (
    CompactionRequest,
    CompactionRequests,
    RequestState,
    TooManyRequests,
)
from dray.broker.topics.model import Topic
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.planning.asked_topics import GIVEN_UP_MS, LOOK_SECONDS, REMEMBERED_MS
from dray.tables.compaction.summary import CycleSummary

assert compaction_cluster
PATIENT = replace(ALL, wal_max_age=1000000.0, interval=3600.0, takeover_seconds=60.0)
"""Nothing comes of age, and cycles are far apart."""


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster(requests=True)


def requests(cluster: Cluster) -> CompactionRequests:
    return CompactionRequests(cluster.store, cluster.runtime)


async def state(cluster: Cluster, topic: Topic) -> CompactionRequest:
    found = await requests(cluster).of(topic)
    assert found is not None
    return found


async def cycle(worker: Worker) -> CycleSummary:
    summary = await worker.compactor.run_cycle(everything=False)
    if worker.runtime.failures:
        raise worker.runtime.failures[0]
    return summary


async def test_only_the_topic_that_was_asked_for(cluster: Cluster) -> None:
    topic, other = await cluster.topic("orders", 2), await cluster.topic("payments")
    for stream in (*topic.streams, *other.streams):
        await cluster.fill(stream, 3)
    asked = await requests(cluster).ask(topic)
    assert (asked.state, asked.partitions, asked.done) == (RequestState.WAITING, 2, 0)
    await cycle(cluster.worker(PATIENT))
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-6"]
    assert await cluster.entries(topic.streams[1]) == ["parquet 0-6"]
    assert await cluster.entries(other.streams[0]) == ["wal 0-2", "wal 2-4"], "and the head"
    done = await state(cluster, topic)
    assert (done.state, done.partitions, done.done, done.why) == (RequestState.DONE, 2, 2, "")
    await cluster.check_log()


async def test_a_backlog_takes_as_many_rounds_as_it_needs(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 6)
    await requests(cluster).ask(topic)
    await cycle(cluster.worker(replace(PATIENT, max_inputs=2)))
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4", "parquet 4-8", "parquet 8-12"]
    assert (await state(cluster, topic)).state is RequestState.DONE


async def test_records_that_come_later_wait_as_ever(cluster: Cluster) -> None:
    """A topic that is written to all the time would never be done otherwise."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await requests(cluster).ask(topic)
    worker = cluster.worker(PATIENT)
    write = worker.writer.write

    async def write_and_append(*arguments: object) -> object:
        if len(worker.writer.calls) > 20:
            pytest.fail("it follows the topic for ever")
        await cluster.fill(stream, 2, first=100)
        return await write(*arguments)  # type: ignore[arg-type]

    worker.writer.write = write_and_append  # type: ignore[method-assign,assignment]
    await cycle(worker)
    assert (await state(cluster, topic)).state is RequestState.DONE
    assert len(worker.writer.calls) == 1
    assert await cluster.entries(stream) == ["parquet 0-4", "wal 4-6"], "and the head"


async def test_a_compactor_that_rests_notices_within_seconds(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 3)
    worker = cluster.worker(PATIENT)
    stop = asyncio.Event()
    running = worker.runtime.spawn(worker.compactor.run(stop), "compactor")
    await worker.runtime.sleep(100.5)
    assert await cluster.entries(topic.streams[0]) == ["wal 0-2", "wal 2-4"], "and the head"
    await requests(cluster).ask(topic)
    began = cluster.runtime.monotonic()
    while (await state(cluster, topic)).state.is_open:
        await cluster.runtime.sleep(0.1)
    assert cluster.runtime.monotonic() - began <= LOOK_SECONDS + 1
    stop.set()
    await running


async def test_asking_again_while_it_is_open_changes_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    first = await requests(cluster).ask(topic)
    await cluster.runtime.sleep(5)
    assert await requests(cluster).ask(topic) == first
    await cycle(cluster.worker(PATIENT))
    assert (await state(cluster, topic)).state is RequestState.DONE
    again = await requests(cluster).ask(topic)
    assert again.state is RequestState.WAITING
    assert again.asked_ms > first.asked_ms


async def test_of_two_compactors_one_sees_to_it(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 3)
    await requests(cluster).ask(topic)
    workers = [cluster.worker(PATIENT) for _ in range(2)]
    await asyncio.gather(*(cycle(worker) for worker in workers))
    assert sum(len(worker.writer.calls) for worker in workers) == 1
    assert (await state(cluster, topic)).state is RequestState.DONE
    await cluster.check_log()


async def test_what_was_read_before_another_changed_it_changes_nothing(cluster: Cluster) -> None:
    """Neither a second compactor's claim, nor the end of an old request over one that was asked for anew."""
    topic = await cluster.topic("orders")
    await requests(cluster).ask(topic)
    [waiting] = (await requests(cluster).all()).values()
    taken = await requests(cluster).move("orders", waiting, RequestState.RUNNING, owner="first")
    assert taken is not None
    assert await requests(cluster).move("orders", waiting, RequestState.RUNNING, owner="second") is None
    assert (await state(cluster, topic)).owner == "first"
    done = await requests(cluster).move("orders", taken, RequestState.DONE)
    assert done is not None
    await requests(cluster).ask(topic)
    await requests(cluster).forget("orders", done)
    assert (await state(cluster, topic)).state is RequestState.WAITING


async def test_a_request_of_a_compactor_that_died_is_taken_over(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 3)
    await requests(cluster).ask(topic)
    [(name, waiting)] = (await requests(cluster).all()).items()
    await requests(cluster).move(name, waiting, RequestState.RUNNING, owner="one that died")
    worker = cluster.worker(PATIENT)
    await cycle(worker)
    assert (await state(cluster, topic)).owner == "one that died"
    await worker.runtime.sleep(61)
    await cycle(worker)
    found = await state(cluster, topic)
    assert (found.state, found.owner) == (RequestState.DONE, worker.compactor.owner)


async def test_what_keeps_it_is_said_and_it_fails_in_the_end(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 3)
    await requests(cluster).ask(topic)
    worker = cluster.worker(PATIENT)
    worker.writer.failing[topic.streams[0]] = UnitFailed(0, 0, "the disk is full", retriable=False)
    await cycle(worker)
    kept = await state(cluster, topic)
    assert (kept.state, kept.done) == (RequestState.RUNNING, 0)
    assert kept.why.startswith("the disk is full (next try at 20")
    await worker.runtime.sleep(GIVEN_UP_MS / 1000 + 1)
    await cycle(worker)
    failed = await state(cluster, topic)
    assert failed.state is RequestState.FAILED
    assert failed.why.startswith("the disk is full")


async def test_what_was_set_aside_is_tried_when_somebody_asks(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker(replace(PATIENT, wal_max_age=0.0, failed_pause_seconds=36_000.0))
    worker.writer.failing[stream] = UnitFailed(0, 0, "it is damaged", retriable=False)
    [trouble] = (await cycle(worker)).troubles
    assert "or by drayd admin compact orders)" in trouble.reason
    worker.writer.failing.clear()
    assert (await cycle(worker)).units == 0
    await requests(cluster).ask(topic)
    assert (await cycle(worker)).finished == 1


async def test_a_topic_that_is_gone(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await requests(cluster).ask(topic)
    await cluster.delete(topic)
    await cycle(cluster.worker(PATIENT))
    [found] = (await requests(cluster).all()).values()
    assert found.value.state is RequestState.FAILED
    assert "gone" in found.value.why
    new = await cluster.topic("orders")
    assert await requests(cluster).of(new) is None
    assert (await requests(cluster).ask(new)).topic_id == new.topic_id


async def test_the_end_of_a_request_is_forgotten_after_a_while(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await requests(cluster).ask(topic)
    worker = cluster.worker(PATIENT)
    await cycle(worker)
    await cycle(worker)
    assert (await state(cluster, topic)).state is RequestState.DONE
    await worker.runtime.sleep(REMEMBERED_MS / 1000 + 1)
    await cycle(worker)
    assert await requests(cluster).of(topic) is None


async def test_requests_are_bounded(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction_requests, "MOST_REQUESTS", 3)
    topics = [await cluster.topic(f"topic-{number}") for number in range(4)]
    for topic in topics[:3]:
        await requests(cluster).ask(topic)
    with pytest.raises(TooManyRequests, match="wait for a compactor"):
        await requests(cluster).ask(topics[3])
    await requests(cluster).ask(topics[0])  # there already


async def test_a_request_of_a_newer_build_is_left_alone(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    key = keys.compaction_request("orders")
    await cluster.store.write(keys.CLUSTER_DOMAIN, [Put(key, b"\x09{}")])
    await cycle(cluster.worker(PATIENT))
    record = await cluster.store.get(keys.CLUSTER_DOMAIN, key)
    assert record is not None
    assert record.value == b"\x09{}"
    assert await requests(cluster).of(topic) is None
