"""Whole cycles: what is planned, written, committed, swapped and collected, and what a summary says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.services import compaction_cluster, room_settings
from tests.services.compaction_cluster import ALL, Cluster
from tests.simulation.scripted import Fate, Lie

from dray.log.jobs.values import WrittenFile
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.summary import CompactionObserver, CycleSummary, Phase


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def test_everything_becomes_one_file_in_log_and_table(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    first, second = topic.streams
    await cluster.fill(first, 5)
    await cluster.fill(second, 1)
    worker = cluster.worker()
    summary = await worker.once()
    assert (summary.units, summary.files, summary.records, summary.finished) == (2, 2, 12, 2)
    assert summary.commits == 1, "one commit for all jobs of a topic"
    assert [len(units) for units in worker.writer.calls] == [2], "one call for all units"
    assert await cluster.entries(first) == ["parquet 0-10"]
    assert await cluster.entries(second) == ["parquet 0-2"]
    assert summary.troubles == []
    await cluster.check_settled()


async def test_a_log_that_goes_on_growing(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(4):
        await cluster.fill(stream, 3, first=turn * 3)
        await cluster.worker().once()
        await cluster.check_log()
    assert await cluster.entries(stream) == ["parquet 0-6", "parquet 6-12", "parquet 12-18", "parquet 18-24"]
    await cluster.check_settled()


async def test_nothing_happens_before_its_time(cluster: Cluster) -> None:
    settings = replace(ALL, wal_max_age=60.0)
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker(settings)
    assert (await worker.compactor.run_cycle(everything=False)).units == 0
    await worker.runtime.sleep(61)
    summary = await worker.compactor.run_cycle(everything=False)
    assert (summary.sealed, summary.units, summary.finished) == (1, 1, 1)
    assert await cluster.entries(stream) == ["parquet 0-6"]


async def test_a_topic_may_opt_out_of_its_table(cluster: Cluster) -> None:
    plain = await cluster.topic("plain", config={"dray.iceberg.enabled": "false"})
    await cluster.fill(plain.streams[0], 2)
    await cluster.worker().once()
    assert await cluster.entries(plain.streams[0]) == ["parquet 0-4"]
    assert cluster.catalog.tables == {}
    await cluster.check_settled()


async def test_iceberg_may_be_off_for_the_cluster(cluster: Cluster) -> None:
    topic = await cluster.topic("plain")
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(tables=False)
    await worker.once()
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4"]
    assert len(cluster.files()) == 1
    await cluster.check_log()


async def test_a_table_catches_up_when_iceberg_is_turned_on(cluster: Cluster) -> None:
    topic = await cluster.topic("plain")
    await cluster.fill(topic.streams[0], 2)
    await cluster.worker(tables=False).once()
    summary = await cluster.worker().once()
    assert summary.table_files_restored == 1
    await cluster.check_settled()


async def test_a_table_that_somebody_dropped_is_made_again(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    await cluster.worker().once()
    del cluster.catalog.tables["orders"]
    await cluster.fill(topic.streams[0], 2, first=2)
    summary = await cluster.worker().once()
    assert summary.table_files_restored == 2
    await cluster.check_settled()


async def test_files_that_were_merged_while_iceberg_was_off(cluster: Cluster) -> None:
    """Out go the small ones, in comes the large one; never both at once, as the catalog here checks."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(2):
        await cluster.fill(stream, 1, first=turn)
        await cluster.worker().once()
    await cluster.worker(replace(ALL, parquet_max_files=1), tables=False).once()
    worker = cluster.worker()
    worker.tables.trap(Fate.REFUSE, "commit", "orders")
    assert (await worker.once()).table_files_restored == 0
    summary = await worker.once()
    assert (summary.table_files_removed, summary.table_files_restored) == (2, 1)
    await cluster.check_settled()


async def test_small_files_are_merged(cluster: Cluster) -> None:
    settings = replace(ALL, parquet_max_files=3)
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(5):
        await cluster.fill(stream, 1, first=turn)
        await cluster.worker(replace(ALL, parquet_max_files=100)).once()
    assert len(await cluster.entries(stream)) == 5
    await cluster.worker(settings).once()
    assert await cluster.entries(stream) == ["parquet 0-10"]
    await cluster.check_settled()
    assert len(cluster.files()) == 1, "the small ones are gone"


async def test_a_corrupt_object_stops_its_stream_and_no_other(cluster: Cluster) -> None:
    bad, good = await cluster.topic("bad"), await cluster.topic("good")
    await cluster.fill(bad.streams[0], 3)
    await cluster.fill(good.streams[0], 3)
    entry = (await cluster.streams.entries_above(bad.streams[0], 2, 1))[0].value
    [(_, batch)] = entry.batches()
    data = bytearray(cluster.bucket.objects[entry.path].data)
    data[batch.position + 70] ^= 1
    cluster.bucket.put(entry.path, bytes(data), 0)
    worker = cluster.worker()
    summary = await worker.once()
    [trouble] = summary.troubles
    assert (trouble.topic, trouble.partition) == ("bad", 0)
    assert entry.path in trouble.reason
    assert "offset 2" in trouble.reason
    assert summary.abandoned == 1
    assert await cluster.entries(bad.streams[0]) == ["wal 0-2", "wal 2-4", "wal 4-6"]
    assert await cluster.entries(good.streams[0]) == ["parquet 0-6"]
    again = await worker.once()
    assert again.units == 0, "it is left alone for a while"
    await worker.runtime.sleep(61)
    assert (await worker.once()).units == 1, "and then tried again"


async def test_what_failed_for_a_moment_is_tried_again(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    worker.writer.failing[stream] = UnitFailed(0, 0, "the object store is away", retriable=True)
    summary = await worker.once()
    assert [trouble.reason for trouble in summary.troubles] == ["the object store is away"]
    worker.writer.failing.clear()
    assert (await worker.once()).finished == 1
    await cluster.check_settled()


@pytest.mark.parametrize("lie", list(Lie))
async def test_one_bad_answer_costs_a_minute_and_not_an_hour(cluster: Cluster, lie: Lie) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker(replace(ALL, failed_pause_seconds=3600.0))
    worker.objects.lies.append(lie)
    [trouble] = (await worker.once()).troubles
    assert lie is Lie.MISSING or "next try at" in trouble.reason
    await worker.runtime.sleep(61)
    assert (await worker.once()).finished == 1
    await cluster.check_settled()


async def test_the_same_damage_twice_sets_a_stream_aside(cluster: Cluster) -> None:
    [stream] = (await cluster.topic("orders")).streams
    await cluster.fill(stream, 3)
    worker = cluster.worker(replace(ALL, failed_pause_seconds=3600.0))
    reasons = iter(["byte 7", "byte 9", "byte 9"])

    def damaged() -> UnitFailed:
        return UnitFailed(0, 0, next(reasons), retriable=False, may_pass=True)

    for seconds in (61, 61, 3000):
        worker.writer.failing[stream] = damaged()
        assert (await worker.once()).units == 1
        await worker.runtime.sleep(seconds)
    assert (await worker.once()).units == 0, "it is left alone for an hour"
    worker.writer.failing.clear()
    await worker.runtime.sleep(601)
    assert (await worker.once()).finished == 1
    worker.writer.failing[stream] = UnitFailed(0, 0, "byte 9", retriable=False, may_pass=True)
    await cluster.fill(stream, 3)
    assert (await worker.once()).units == 1
    await worker.runtime.sleep(61)
    assert (await worker.once()).units == 1, "a file was written since: it is new damage"


async def test_a_file_that_is_not_what_was_asked_for_counts_for_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    worker = cluster.worker()
    written = worker.writer.write

    async def short(units: Any, progress: Any = None, *_: object) -> list[WrittenFile]:
        files = [file for file in await written(units, progress) if isinstance(file, WrittenFile)]
        return [replace(file, record_count=file.record_count - 1) for file in files]

    worker.writer.write = short  # type: ignore[method-assign, assignment]
    summary = await worker.once()
    assert "its number of records" in summary.troubles[0].reason
    assert await cluster.entries(stream) == ["wal 0-2", "wal 2-4", "wal 4-6"]


async def test_the_catalog_is_down_and_the_jobs_wait(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    plain = await cluster.topic("plain", config={"dray.iceberg.enabled": "false"})
    await cluster.fill(topic.streams[0], 2)
    await cluster.fill(plain.streams[0], 2)
    worker = cluster.worker()
    worker.tables.down = True
    summary = await worker.once()
    assert summary.waiting >= 1
    assert "the catalog is down" in summary.troubles[0].reason
    assert await cluster.entries(topic.streams[0]) == ["wal 0-2", "wal 2-4"]
    assert await cluster.entries(plain.streams[0]) == ["parquet 0-4"], "other topics go on"
    await cluster.check_log()
    await cluster.fill(topic.streams[0], 1, first=2)  # so does the log
    worker.tables.down = False
    assert (await worker.once()).finished == 2
    await cluster.check_settled()


async def test_a_commit_that_loses_its_race_is_made_again(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    first, second = topic.streams
    await cluster.fill(first, 2)
    worker = cluster.worker()
    task = worker.start()
    commit = worker.tables.hold("commit", "orders")
    await commit.reached()
    await cluster.fill(second, 2)
    await cluster.worker(replace(ALL, takeover_seconds=60.0, wal_max_age=0.0)).compactor.run_cycle(
        everything=False
    )
    commit.release()
    summary = await task
    assert (summary.finished, summary.waiting, summary.troubles) == (1, 1, [])
    assert await cluster.entries(first) == ["parquet 0-4"]
    await cluster.check_settled()


async def test_two_compactors_at_once(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 4)
    for stream in topic.streams:
        await cluster.fill(stream, 3)
    tasks = [cluster.worker().start() for _ in range(3)]
    for task in tasks:
        await task
    await cluster.check_settled()


async def test_work_of_others_is_left_to_them_for_a_while(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 3)
    settings = replace(ALL, takeover_seconds=30.0, wal_max_age=0.0)
    dead, other = cluster.worker(), cluster.worker(settings)
    upload = dead.objects.hold("put", "compaction/")
    task = dead.start()
    await upload.reached()
    task.cancel()
    assert (await other.compactor.run_cycle(everything=False)).left_to_others == 1
    await other.runtime.sleep(31)
    summary = await other.compactor.run_cycle(everything=False)
    assert (summary.left_to_others, summary.finished) == (0, 1)
    await cluster.check_settled()


async def test_more_than_one_unit(cluster: Cluster) -> None:
    """A stream with more than one file's worth is done one file after the other."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 7)
    settings = replace(ALL, max_inputs=3)
    summary = await cluster.worker(settings).once()
    assert summary.finished == 3
    assert await cluster.entries(stream) == ["parquet 0-6", "parquet 6-12", "parquet 12-14"]
    await cluster.check_settled()


async def test_a_backlog_is_done_a_part_at_a_time(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 5)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker(replace(ALL, cycle_bytes=400))
    summary = await worker.once()
    assert (summary.finished, summary.commits) == (5, 3)
    assert [len(units) for units in worker.writer.calls] == [2, 2, 1]
    await cluster.check_settled()


async def test_a_job_that_this_build_cannot_read_stops_its_stream_only(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", 2)
    first, second = topic.streams
    for stream in topic.streams:
        await cluster.fill(stream, 1)
    await cluster.store.write(cluster.streams.domain(first), [Put(keys.job(first), b"\x09{}")])
    assert (await cluster.worker().once()).finished == 1
    assert await cluster.entries(second) == ["parquet 0-2"]


async def test_cycles_go_on_through_trouble_until_they_are_stopped(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    worker = cluster.worker(replace(ALL, interval=60.0, wal_max_age=0.0))
    worker.store.trap(Fate.REFUSE, "barrier")
    stop = asyncio.Event()
    running = worker.runtime.spawn(worker.compactor.run(stop), "compactor")
    await asyncio.sleep(30)
    assert await cluster.entries(topic.streams[0]) == ["wal 0-2"]
    await asyncio.sleep(60)
    assert await cluster.entries(topic.streams[0]) == ["parquet 0-4"]
    stop.set()
    await asyncio.wait_for(running, 1.0)


async def test_the_days_of_a_table_by_day(cluster: Cluster) -> None:
    config = {"message.timestamp.type": "LogAppendTime", "dray.iceberg.partition.by.day": "true"}
    topic = await cluster.topic("orders", config=config)
    [stream] = topic.streams
    midnight = 20_000 * 24 * 3_600_000
    for place, time in enumerate((midnight - 5, midnight - 1, midnight, midnight + 7)):
        await cluster.append(stream, b"%d" % place, at=time)
    await cluster.worker().once()
    assert await cluster.entries(stream) == ["parquet 0-2", "parquet 2-4"]
    assert cluster.catalog.tables["orders"].topic.day_partitioned
    await cluster.check_settled()


async def test_progress_is_told(cluster: Cluster) -> None:
    told: list[tuple[Phase, int, int]] = []
    summaries: list[CycleSummary] = []

    class Telling(CompactionObserver):
        def progress(self, phase: Phase, done: int, total: int) -> None:
            told.append((phase, done, total))

        def finished(self, summary: CycleSummary) -> None:
            summaries.append(summary)

    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 1)
    summary = await cluster.worker(observer=Telling()).once()
    assert summaries == [summary]
    assert {phase for phase, _, _ in told} == set(Phase)
    assert (Phase.WRITE, 2, 2) in told
    assert (Phase.SWAP, 2, 2) in told


def test_the_defaults_fit_together() -> None:
    settings = room_settings.compaction()
    assert settings.wal_max_bytes <= settings.target_file_bytes
    assert compaction_cluster.ALL.takeover_seconds == 0.0
