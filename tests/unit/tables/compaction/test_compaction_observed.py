"""What a cycle tells those who watch: phases, commits, causes of trouble, and how far tables are behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster
from tests.simulation.scripted import Fate

from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.summary import Backlog, Cause, CompactionObserver, CycleSummary, Observers, Phase

assert compaction_cluster.DOMAINS  # this module runs on virtual time


class RecordingObserver(CompactionObserver):
    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.commits: list[str] = []
        self.summaries: list[CycleSummary] = []
        self.interruptions = 0

    def took(self, phase: Phase, seconds: float) -> None:
        assert seconds >= 0
        self.phases.append(phase)

    def committed(self, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.commits.append(outcome)

    def interrupted(self) -> None:
        self.interruptions += 1

    def finished(self, summary: CycleSummary) -> None:
        self.summaries.append(summary)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_phases_and_commits_are_told_to_all(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    one, other = RecordingObserver(), RecordingObserver()
    await cluster.worker(observer=Observers(one, other)).once()
    assert set(one.phases) == set(Phase)
    assert one.commits == ["done"]
    assert (one.phases, one.commits, one.summaries) == (other.phases, other.commits, other.summaries)


async def test_a_catalog_that_is_away_is_trouble_with_a_table(cluster: Cluster) -> None:
    [stream] = (await cluster.topic("orders")).streams
    await cluster.fill(stream, 1)
    heard = RecordingObserver()
    worker = cluster.worker(observer=heard)
    worker.tables.trap(Fate.REFUSE, "commit", "orders")
    await worker.once()
    assert heard.commits[0] == "refused"
    assert [trouble.cause for trouble in heard.summaries[0].troubles] == [Cause.TABLE]


async def test_a_unit_that_cannot_be_written_is_trouble_with_a_unit(cluster: Cluster) -> None:
    [stream] = (await cluster.topic("orders")).streams
    await cluster.fill(stream, 1)
    worker = cluster.worker()
    worker.writer.failing[stream] = UnitFailed(stream, 0, "it is damaged", retriable=False)
    [trouble] = (await worker.once()).troubles
    assert trouble.cause is Cause.UNIT


async def test_the_backlog_is_what_is_in_no_file_yet(cluster: Cluster) -> None:
    orders, quiet = await cluster.topic("orders", 2), await cluster.topic("quiet")
    await cluster.fill(orders.streams[0], 3)
    await cluster.fill(orders.streams[1], 1)
    began = cluster.runtime.wall_ms()
    worker = cluster.worker(replace(ALL, wal_max_age=60.0))
    summary = await worker.compactor.run_cycle(everything=False)
    behind = summary.backlog["orders"]
    assert (behind.records, behind.entries) == (8, 4)
    assert behind.size > 0
    assert behind.oldest_ms is not None
    assert abs(behind.oldest_ms - began) < 10_000
    assert summary.backlog[quiet.name] == Backlog()
    await worker.once()
    summary = await worker.compactor.run_cycle(everything=False)
    assert summary.backlog["orders"] == Backlog(), "all of it is in files now"


async def test_a_cycle_that_cannot_be_run_is_told(cluster: Cluster) -> None:
    await cluster.topic("orders")
    heard = RecordingObserver()
    worker = cluster.worker(replace(ALL, interval=1.0), observer=heard)
    worker.store.trap(Fate.REFUSE, "scan", "compaction/")
    stop = asyncio.Event()
    running = worker.runtime.spawn(worker.compactor.run(stop), "compactor")
    await worker.runtime.sleep(2.5)
    stop.set()
    await running
    assert heard.interruptions == 1
    assert heard.summaries, "the next one went well"
