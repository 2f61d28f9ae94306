"""What one stream has that cannot be read stops nothing but that stream."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services.compaction_cluster import DOMAINS, Cluster

from dray.log.jobs.machine import JobState
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.values import UnreadableValue
from dray_simulation.kernel.loop import run


async def put(cluster: Cluster, key: str, value: bytes) -> None:
    stream = keys.stream_of(key) if keys.stream_of(key) is not None else keys.stream_of_job(key)
    assert stream is not None
    await cluster.store.write(stream % DOMAINS, [Put(key, value)])


async def written_jobs(cluster: Cluster) -> tuple[int, int]:
    """Two streams of one topic whose files are written, and wait for their table."""
    topic = await cluster.topic("orders", 2)
    for stream in topic.streams:
        await cluster.fill(stream, 2)
    worker = cluster.worker()
    worker.tables.down = True
    await worker.once()
    for stream in topic.streams:
        assert (await cluster.streams.job(stream)).value.state is JobState.PARQUET_WRITTEN
    return topic.streams[0], topic.streams[1]


@pytest.mark.parametrize("what", ["high watermark", "file"])
def test_a_stream_that_cannot_be_read_keeps_no_other_from_its_table(what: str) -> None:
    async def test() -> None:
        cluster = Cluster()
        first, second = await written_jobs(cluster)
        if what == "high watermark":
            await put(cluster, keys.high_watermark(first), b"\x09newer")
        else:
            job = await cluster.streams.job(first)
            broken = replace(job.value.compacted, written={"path": 5})
            await put(cluster, keys.job(first), replace(job.value, compaction=broken).encode())
        summary = await cluster.worker().once()
        assert (await cluster.streams.job(second)).value.state is JobState.DONE
        assert (await cluster.streams.job(first)).value.state is JobState.PARQUET_WRITTEN
        assert [entry.split()[0] for entry in await cluster.entries(second)] == ["parquet"]
        assert summary.troubles[0].partition == 0

    run(test())


def test_a_job_that_became_unreadable_is_not_ours_any_more() -> None:
    """It is told by its version, while a commit is under way: its value need not be read for that."""

    async def test() -> None:
        cluster = Cluster()
        first, second = await written_jobs(cluster)
        worker = cluster.worker()
        trap = worker.tables.hold("load", "orders")
        cycle = worker.start()
        await trap.reached()
        await put(cluster, keys.job(first), b"\x09newer")
        trap.release()
        await cycle
        assert (await cluster.streams.job(second)).value.state is JobState.DONE
        with pytest.raises(UnreadableValue):
            await cluster.streams.job(first)
        shown = cluster.catalog.tables["orders"].newest.files
        assert {file.partition for file in shown.values()} == {1}

    run(test())
