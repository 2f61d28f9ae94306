"""What is written is committed and swapped while other units of the round still are being written; and files
of a stream that are written before their job begins."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster, Worker

from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer, UnitFailed
from dray.tables.compaction.planning import plan
from dray.tables.compaction.saga import RunningJob
from dray.tables.compaction.summary import CompactionObserver
from dray.tables.compaction.writing.careful_writer import CarefulWriter
from dray.tables.compaction.writing.deliveries import LINGER_SECONDS

assert compaction_cluster  # its tests run on virtual time: see conftest

ONE_ENTRY = replace(ALL, target_file_bytes=1, parquet_max_files=1000)
"""Each entry becomes a file of its own."""


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


class Heard(CompactionObserver):
    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []
        self.commits = 0

    def compacted(self, done: int, total: int) -> None:
        self.told.append((done, total))

    def committed(self, seconds: float, outcome: str) -> None:
        self.commits += 1


class SlowWriter:
    """Delivers each unit as it is written; those of `slow` streams wait until they are let go, or fail."""

    def __init__(self, inner: Any, *slow: int) -> None:
        self._inner = inner
        self.slow = slow
        self.calls: list[list[tuple[int, int]]] = []
        self.released = asyncio.Event()
        self.fails = False

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> list[UnitAnswer]:
        self.calls.append([(unit.stream, unit.job) for unit in units])
        assert deliver is not None
        for unit in units:
            if unit.stream not in self.slow:
                [answer] = await self._inner.write([unit])
                deliver(answer)
        left = [unit for unit in units if unit.stream in self.slow]
        if left:
            await self.released.wait()
        if left and self.fails:
            raise RuntimeError("the worker was killed")
        answers: list[UnitAnswer] = await self._inner.write(left)
        return answers


def slow(worker: Worker, *streams: int) -> SlowWriter:
    writer = SlowWriter(worker.writer, *streams)
    worker.compactor._writer = CarefulWriter(writer, worker.runtime)
    return writer


async def test_a_topic_does_not_wait_for_the_unit_of_another(cluster: Cluster) -> None:
    quick = await cluster.topic("quick", 3)
    slow_one = await cluster.topic("slow")
    for stream in (*quick.streams, *slow_one.streams):
        await cluster.fill(stream, 2)
    heard = Heard()
    worker = cluster.worker(observer=heard)
    writer = slow(worker, slow_one.streams[0])
    running = worker.start()
    await asyncio.sleep(LINGER_SECONDS / 2)
    for stream in quick.streams:
        assert await cluster.entries(stream) == ["parquet 0-4"], "swapped, and all of them in one commit"
    assert len(await cluster.table_rows(quick)) == 3
    assert heard.commits == 1
    assert await cluster.entries(slow_one.streams[0]) == ["wal 0-2", "wal 2-4"]
    writer.released.set()
    assert (await running).finished == 4
    await cluster.check_settled()


async def test_partitions_wait_a_while_for_one_commit_and_then_no_longer(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 3)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker()
    writer = slow(worker, topic.streams[2])
    running = worker.start()
    await asyncio.sleep(LINGER_SECONDS / 2)
    assert await cluster.entries(topic.streams[0]) == ["wal 0-2", "wal 2-4"]
    await asyncio.sleep(2 * LINGER_SECONDS)
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4"]
    assert await cluster.entries(topic.streams[2]) == ["wal 0-2", "wal 2-4"]
    writer.released.set()
    assert (await running).finished == 3
    await cluster.check_settled()


async def test_what_was_delivered_is_not_written_again(cluster: Cluster) -> None:
    """A call that fails in the end fails only what has no answer, and that alone is tried again."""
    topic = await cluster.topic("orders", 4)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker()
    worker.contains = True
    bad = topic.streams[1]
    writer = slow(worker, bad)
    writer.fails = True
    writer.released.set()
    summary = await worker.once()
    assert [[stream for stream, _ in call] for call in writer.calls][1:] == [[bad]]
    assert (summary.finished, summary.abandoned) == (3, 1)
    assert [trouble.partition for trouble in summary.troubles] == [1]


async def test_bytes_are_told_as_they_come(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 3)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    heard = Heard()
    worker = cluster.worker(observer=heard)
    slow(worker)
    summary = await worker.once()
    done = [done for done, _ in heard.told]
    assert done == sorted(done)
    assert heard.told[0] == (0, summary.input_bytes)
    assert heard.told[-1] == (summary.input_bytes, summary.input_bytes)
    assert len(set(done)) == 4


# --- several units of one stream


async def test_a_large_backlog_of_one_stream_is_written_in_one_call(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    hot, cold = topic.streams
    await cluster.fill(hot, 6)
    await cluster.fill(cold, 1)
    worker = cluster.worker(ONE_ENTRY)
    summary = await worker.once()
    first = worker.writer.calls[0]
    assert sorted((unit.stream == hot, unit.start, unit.end) for unit in first) == [
        (False, 0, 2),
        *[(True, start, start + 2) for start in range(0, 12, 2)],
    ]
    assert [unit.job for unit in first if unit.stream == hot] == [1, 2, 3, 4, 5, 6]
    assert await cluster.entries(hot) == [f"parquet {start}-{start + 2}" for start in range(0, 12, 2)]
    assert (summary.finished, summary.files) == (7, 7)
    assert len(worker.writer.calls) == 1
    await cluster.check_settled()


async def test_units_ahead_are_dealt_in_turns_within_the_bytes_of_a_cycle(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 5)
        await cluster.seal(stream)
    view = await cluster.streams.view(topic.streams[0])
    assert view is not None
    size = plan.size_of(view.split()[0][0].value)
    worker = cluster.worker(replace(ONE_ENTRY, cycle_bytes=6 * size))
    await worker.compactor.run_cycle(everything=False)
    [call] = worker.writer.calls[:1]
    assert [sum(unit.stream == stream for unit in call) for stream in topic.streams] == [3, 3]


async def test_a_file_whose_number_another_job_took_is_used_by_nobody(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are deleted while the files are written: the job of that has the number of the second file."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    worker = cluster.worker(ONE_ENTRY)
    kept = worker.compactor._saga.finish

    async def finish(job: RunningJob) -> bool:
        done = await kept(job)
        if job.job.value.number == 1:
            await cluster.log.delete_records(stream, 5)
        return done

    monkeypatch.setattr(worker.compactor._saga, "finish", finish)
    summary = await worker.once()
    assert summary.troubles == []
    assert (await cluster.log.bounds(stream)).start == 5
    ahead = {unit.job for unit in worker.writer.calls[0]}
    assert ahead == {1, 2, 3, 4}
    again = [unit for call in worker.writer.calls[1:] for unit in call]
    assert min(unit.start for unit in again) == 5, "nothing below the start goes into a file"
    assert min(unit.job for unit in again) > 2
    await cluster.check_log()
    await cluster.check_settled()


async def test_behind_a_file_that_is_missing_nothing_is_used(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    worker = cluster.worker(ONE_ENTRY)
    inner = worker.writer._inner

    class Misses:
        tries = 0

        async def write(self, units: Sequence[Unit], *_: Any) -> list[UnitAnswer]:
            self.tries += 1
            answers: list[UnitAnswer] = list(await inner.write(units))
            if self.tries == 1:
                answers[1] = UnitFailed(units[1].stream, units[1].job, "the store is away", retriable=True)
            return answers

    worker.writer._inner = Misses()
    await worker.compactor.run_cycle(everything=False)
    found = await cluster.entries(stream)
    assert found[0] == "parquet 0-2"
    assert [entry for entry in found[1:] if entry.startswith("parquet")] == []
    await cluster.check_settled()
