"""A compaction that waits for a compactor which never comes is finished by hand; its table follows later."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.services import (
    compaction_cluster,  # noqa: F401 - the room's tests run on virtual time with it
    room_settings,
)
from tests.services.compaction_cluster import ALL, DOMAINS, Cluster
from tests.simulation.scripted import Fate
from typer.testing import CliRunner

from dray.base.runtime import SystemRuntime
from dray.broker.cluster.bucket_owner import put_owner
from dray.broker.cluster.identity import open_cluster
from dray.broker.cluster.tally import Mark, encode_mark, mark_path
from dray.cli.main import app
from dray.daemons.assembly.stores import SqliteFile, open_metadata_store
from dray.log.jobs.machine import Job, JobState, put_job
from dray.log.life.retention import WaitsForTable
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue
from dray.objects.local.store import LocalStore
from dray.tables.compaction.planning.job_board import WaitingCompactions
from dray_simulation.kernel.loop import SimulationLoop


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


async def waiting_job(cluster: Cluster, stream: int) -> Job:
    """Compacted by somebody whose catalog is down, and who is not seen again."""
    worker = cluster.worker()
    worker.tables.down = True
    await worker.once()
    job = (await cluster.streams.job(stream)).value
    assert job.state is JobState.PARQUET_WRITTEN
    return job


def release_of(cluster: Cluster) -> WaitingCompactions:
    return WaitingCompactions(cluster.streams, cluster.runtime, room_settings.log())


async def test_records_can_be_deleted_again_and_the_table_follows_when_a_compactor_comes(
    cluster: Cluster,
) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    await waiting_job(cluster, stream)
    with pytest.raises(WaitsForTable):
        await cluster.log.delete_records(stream, 2)
    release = release_of(cluster)
    [found] = await release.waiting()
    assert (found.topic, found.partition, found.offsets, found.deleted) == ("orders", 0, (0, 8), False)
    assert await release.finish(found)
    assert await cluster.entries(stream) == ["parquet 0-8"]
    assert await release.waiting() == []
    await cluster.check_log()
    assert await cluster.log.delete_records(stream, 2) == 2
    assert (await cluster.table_rows(topic))[0] == []
    await cluster.check_settled()  # which runs a compactor: the table equals the log then


async def test_a_merge_that_waited_shows_no_record_twice_at_any_moment(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    for turn in range(4):
        await cluster.fill(stream, 2, first=2 * turn)
        await cluster.worker().once()
    worker = cluster.worker(replace(ALL, parquet_max_files=2))
    worker.tables.down = True
    await worker.once()
    job = (await cluster.streams.job(stream)).value
    assert job.state is JobState.PARQUET_WRITTEN
    assert any(each.path for each in job.compacted.inputs), "files are merged"
    [found] = await release_of(cluster).waiting()
    assert await release_of(cluster).finish(found)
    await cluster.check_settled()  # the catalog checks every commit


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_REPLY])
async def test_a_lost_reply_is_looked_up(cluster: Cluster, fate: Fate) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    await waiting_job(cluster, stream)
    [found] = await release_of(cluster).waiting()
    cluster.store.trap(fate, "write", "/job")
    finished = await release_of(cluster).finish(found)
    assert finished == (fate is Fate.LOSE_REPLY)
    if not finished:
        assert [each.stream for each in await release_of(cluster).waiting()] == [stream], "it waits on"
    await cluster.check_settled()


async def test_a_compactor_that_came_first_has_the_word(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    await waiting_job(cluster, stream)
    [found] = await release_of(cluster).waiting()
    await cluster.worker().once()
    assert not await release_of(cluster).finish(found)
    await cluster.check_settled()


async def test_the_job_of_a_deleted_topic_is_left_to_a_compactor(cluster: Cluster) -> None:
    """Its file may be in the table: somebody has to take it out."""
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    await waiting_job(cluster, stream)
    [before] = await release_of(cluster).waiting()
    await cluster.delete(topic)
    [found] = await release_of(cluster).waiting()
    assert found.deleted
    for each in (found, before):
        assert not await release_of(cluster).finish(each)
    assert (await cluster.streams.job(stream)).value.state is JobState.PARQUET_WRITTEN
    await cluster.check_settled()


async def test_a_job_that_waits_for_no_table_is_not_touched(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    job = await waiting_job(cluster, stream)
    assert job.compaction is not None
    without = replace(job, compaction=replace(job.compaction, table=False))
    version = (await cluster.streams.job(stream)).version
    await cluster.streams.write(stream, [put_job(stream, without, version)])
    assert await release_of(cluster).waiting() == []


def test_the_command_says_what_it_would_do_and_does_it_when_told(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=SimulationLoop) as runner:
        cluster, stream = runner.run(_waiting_cluster())
        records = runner.run(_records(cluster))
        job = runner.run(cluster.streams.job(stream)).value
    asyncio.run(_copied_to_disk(tmp_path, stream, records, job))

    def run(*arguments: str) -> list[dict[str, object]]:
        command = ["admin", "finish-compactions", "--data-dir", str(tmp_path), "--json", *arguments]
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        found: list[dict[str, object]] = json.loads(ran.stdout)
        return found

    shown = {"topic": "orders", "partition": 0, "from offset": 0, "to offset": 7}
    assert run() == [{**shown, "state": "waits"}]
    assert run() == [{**shown, "state": "waits"}], "nothing was done"
    mark = tmp_path / "objects" / mark_path(1)
    mark.parent.mkdir()
    mark.write_bytes(encode_mark(Mark("a cluster", 1, "another's", 1000)))
    refused = CliRunner().invoke(
        app, ["admin", "finish-compactions", "--data-dir", str(tmp_path), "--execute"]
    )
    assert "is a copy of the cluster's" in str(refused.exception)
    mark.unlink()
    assert run("--execute") == [{**shown, "state": "finished"}]
    assert run() == []


async def _waiting_cluster() -> tuple[Cluster, int]:
    cluster = Cluster()
    [stream] = (await cluster.topic("orders")).streams
    await cluster.fill(stream, 4)
    await waiting_job(cluster, stream)
    return cluster, stream


async def _records(cluster: Cluster) -> list[tuple[int, StoredValue]]:
    """All but jobs, with their domains."""
    return [
        (domain, record)
        for domain in range(DOMAINS)
        for record in await cluster.store.scan(domain, "/", "0")
        if not record.key.startswith(keys.JOBS)
    ]


async def _copied_to_disk(
    directory: Path, stream: int, records: list[tuple[int, StoredValue]], job: Job
) -> None:
    """The same in the stores of a data directory: there the inputs have other versions."""
    runtime = SystemRuntime()
    store = await open_metadata_store(SqliteFile(directory / "metadata.sqlite"), runtime)
    cluster = await open_cluster(store, runtime, DOMAINS, True)
    objects = await LocalStore.open(directory / "objects", runtime)
    await put_owner(objects, cluster)
    await objects.close()
    versions: dict[str, int] = {}
    for domain, record in records:
        [outcome] = await store.write(domain, [Put(record.key, record.value)])
        versions[record.key] = outcome.version
    compaction = job.compacted
    inputs = tuple(
        each._replace(version=versions[keys.index_entry(stream, each.end, each.cumulative_size)])
        for each in compaction.inputs
    )
    own = replace(job, compaction=replace(compaction, inputs=inputs))
    await StreamStore(store, DOMAINS, 1000).write(stream, [put_job(stream, own, 0)])
    await store.close()
    runtime.close()
