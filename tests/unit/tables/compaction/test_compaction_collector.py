"""Collecting files, tables and their metadata: what is known stays, what is not goes, after its time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import UUID

import pytest
from tests.services import compaction_cluster, room_settings
from tests.services.compaction_cluster import ALL, DOMAINS, Cluster
from tests.simulation.scripted import Fate, ScriptedTables

from dray.log.life.collector import Collector
from dray.log.life.lost_objects import PAUSE_SECONDS, TRIES
from dray.objects.contract import ObjectInfo
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.paths import (
    PREFIX,
    TABLES_PREFIX,
    FilePath,
    file_path,
    parse_file_path,
    parse_metadata_path,
    unit_prefix,
)
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep.file_collector import FileCollector, MetadataCollector
from dray.tables.contract import Tables
from dray.tables.iceberg.locations import METADATA_PREFIX, table_path

assert compaction_cluster  # its tests run on virtual time: see conftest

TOPIC_ID = UUID(int=7)


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


# --- paths


def test_paths_say_whose_file_it_is() -> None:
    path = file_path(unit_prefix("a/b %c", TOPIC_ID, 3, 2**40), 12, UUID(int=5))
    assert path.startswith(PREFIX)
    assert parse_file_path(path) == FilePath("a/b %c", TOPIC_ID, 3, 2**40, 12, UUID(int=5))
    for foreign in (
        path + "x",
        path.replace("job-12", "job-012"),
        path[1:],
        "compaction/v1/else",
        path.upper(),
    ):
        assert parse_file_path(foreign) is None


def test_metadata_lies_where_the_tables_put_it() -> None:
    assert TABLES_PREFIX == METADATA_PREFIX
    path = f"{table_path('a/b', TOPIC_ID)}/metadata/1.json"
    assert parse_metadata_path(path) == ("a/b", TOPIC_ID)
    assert parse_metadata_path("iceberg/else/1.json") is None


# --- files


def collector_of(cluster: Cluster, tables: Tables | None, grace_seconds: float = 0.0) -> FileCollector:
    return FileCollector(
        cluster.streams,
        cluster.objects,
        cluster.runtime,
        tables,
        grace_seconds,
        may_delete=cluster.may_delete,
        topics=cluster.topics,
    )


async def test_attempts_that_lost_are_collected_after_their_grace(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    await cluster.worker().once()
    lost = file_path(unit_prefix("orders", topic.topic_id, 0, stream), 1, UUID(int=5))
    foreign = f"{PREFIX}topic=orders/README"
    for path in (lost, foreign):
        cluster.bucket.put(path, b"attempt", 0)
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    collector = collector_of(cluster, tables, 60.0)
    assert (await collector.run()).pending == 1
    await asyncio.sleep(59)
    assert (await collector.run()).pending == 1
    await asyncio.sleep(1)
    dry = await collector.run(dry_run=True)
    assert (dry.deleted, lost in cluster.files()) == (1, True)
    done = await collector.run()
    assert (done.listed, done.deleted) == (2, 1)
    assert lost not in cluster.files()
    assert foreign in cluster.files(), "what is not ours is left alone"
    await cluster.check_log()


async def test_files_of_jobs_that_are_not_over_stay(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 2)
    worker = cluster.worker()
    worker.tables.down = True
    await worker.once()
    later = file_path(unit_prefix("orders", topic.topic_id, 0, stream), 99, UUID(int=5))
    cluster.bucket.put(later, b"of a job that we have not heard of", 0)
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    collector = collector_of(cluster, tables)
    assert (await collector.run()).deleted == 0
    assert len(cluster.files()) == 2


async def test_what_an_older_snapshot_shows_stays(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    keeping = replace(ALL, snapshot_keep_ms=3_600_000)
    for turn in range(2):
        await cluster.fill(stream, 1, first=turn)
        await cluster.worker(keeping).once()
    await cluster.worker(replace(keeping, parquet_max_files=1)).once()
    assert await cluster.entries(stream) == ["parquet 0-4"]
    assert len(cluster.files()) == 3, "queries of the last hour still read them"
    await asyncio.sleep(3601)
    await cluster.worker(keeping).once()
    assert len(cluster.files()) == 1


async def test_a_catalog_that_is_down_keeps_all_files(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    lost = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=5))
    cluster.bucket.put(lost, b"attempt", 0)
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    tables.down = True
    collector = collector_of(cluster, tables)
    seen = await collector.run()
    assert (seen.deleted, seen.undecided) == (0, 1)
    tables.down = False
    assert (await collector.run()).deleted == 1


async def test_a_delete_that_failed_is_tried_again(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    lost = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=5))
    cluster.bucket.put(lost, b"attempt", 0)
    cluster.objects.trap(Fate.REFUSE, "delete", lost)
    collector = collector_of(cluster, None)
    assert (await collector.run()).deleted == 0
    assert (await collector.run()).deleted == 1


# --- deleted topics


async def test_a_deleted_topic_leaves_nothing_and_its_name_is_free(cluster: Cluster) -> None:
    old = await cluster.topic("orders")
    await cluster.fill(old.streams[0], 3)
    await cluster.worker().once()
    await cluster.delete(old)
    new = await cluster.topic("orders")
    await cluster.append(new.streams[0], b"new")
    summary = await cluster.worker().once()
    assert (summary.tables_dropped, summary.finished) == (1, 1), "the old table is out of the way at once"
    assert await cluster.table_rows(new) == {0: [(0, b"new")]}
    await cluster.check_settled()


async def test_a_table_may_outlive_its_topic(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    keeping = replace(ALL, drop_tables=False)
    await cluster.worker(keeping).once()
    await cluster.delete(topic)
    await cluster.worker(keeping).once()
    assert len(cluster.files()) == 1, "its files are those of the table now"
    assert len((await cluster.table_rows(topic))[0]) == 4
    summary = CycleSummary()
    await cluster.worker().compactor.upkeep.drop_dead_tables(summary, dry_run=True)
    assert (summary.tables_dropped, "orders" in cluster.catalog.tables) == (1, True)
    await cluster.worker().once()
    assert cluster.files() == set()


# --- metadata of tables


class KnownMetadata(ScriptedTables):
    needed: set[str] | None = None

    async def live_metadata(self, topic: object) -> set[str] | None:
        return await self.call("load", "", lambda: self.needed)


async def test_metadata_that_no_table_needs_goes_when_it_is_old(cluster: Cluster) -> None:
    folder = table_path("orders", TOPIC_ID)
    needed, dead, foreign = f"{folder}/metadata/1.json", f"{folder}/metadata/2.avro", "iceberg/else"
    for path in (needed, dead, foreign):
        cluster.bucket.put(path, b"", cluster.runtime.wall_ms())
    tables = KnownMetadata(cluster.catalog, cluster.runtime)
    tables.needed = {needed}
    collector = MetadataCollector(
        cluster.objects, cluster.runtime, tables, cluster.topics, 3600.0, may_delete=cluster.may_delete
    )
    assert (await collector.run()).deleted == 0, "a commit may be under way"
    await asyncio.sleep(3600)
    assert (await collector.run(dry_run=True)).deleted == 1
    tables.down = True
    assert (await collector.run()).undecided == 2
    tables.down = False
    assert (await collector.run()).deleted == 1
    assert set(cluster.bucket.objects) == {needed, foreign}
    tables.needed = None  # the table was dropped
    assert (await collector.run()).deleted == 1
    assert set(cluster.bucket.objects) == {foreign}


class DoubtedClock:
    """An expiry clock."""

    def now_ms(self) -> int | None:
        return None

    def likely_ms(self) -> int:
        return 0


async def test_no_metadata_looks_old_while_the_clock_is_doubted(cluster: Cluster) -> None:
    path = f"{table_path('orders', TOPIC_ID)}/metadata/1.json"
    cluster.bucket.put(path, b"", cluster.runtime.wall_ms())
    tables = KnownMetadata(cluster.catalog, cluster.runtime)
    await asyncio.sleep(7200)
    collector = MetadataCollector(
        cluster.objects,
        cluster.runtime,
        tables,
        cluster.topics,
        3600.0,
        may_delete=cluster.may_delete,
        expiry=DoubtedClock(),
    )
    assert (await collector.run()).deleted == 0
    assert set(cluster.bucket.objects) == {path}


async def test_no_snapshot_of_a_table_expires_while_the_clock_is_doubted(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    keeping = replace(ALL, snapshot_keep_ms=3_600_000)
    for turn in range(2):
        await cluster.fill(topic.streams[0], 1, first=turn)
        await cluster.worker(keeping).once()
    await asyncio.sleep(7200)
    worker = cluster.worker(keeping).compactor
    kept, worker.upkeep._expiry = worker.upkeep._expiry, DoubtedClock()
    summary = CycleSummary()
    await worker.upkeep.run(summary)
    assert summary.snapshots_expired == 0
    worker.upkeep._expiry = kept
    await worker.upkeep.run(summary)
    assert summary.snapshots_expired > 0


async def test_the_parts_of_a_compactor_ask_its_clock(cluster: Cluster) -> None:
    clock = DoubtedClock()
    tables = KnownMetadata(cluster.catalog, cluster.runtime)
    stores = CompactorStores(cluster.streams, cluster.objects, cluster.may_delete)
    compactor = Compactor(
        stores,
        cluster.runtime,
        cluster.worker().compactor._writer,
        tables,
        cluster.topics,
        room_settings.compaction(),
        room_settings.log(),
        expiry=clock,
    )
    assert compactor.upkeep._expiry is clock
    assert compactor.upkeep._metadata is not None
    assert compactor.upkeep._metadata._expiry is clock
    assert compactor._kept._retention._expiry is clock
    assert compactor._saga._swap._expiry is clock


# --- WAL objects


async def test_a_dry_run_of_the_wal_collector_changes_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 2)
    await cluster.worker().once()
    await asyncio.sleep(1)
    settings = replace(cluster.settings, orphan_ttl=0.0)
    collector = Collector(
        cluster.streams, cluster.objects, cluster.runtime, settings, may_delete=cluster.may_delete
    )
    stored = {number: dict(cluster.state.domain(number, 0).entries) for number in range(DOMAINS)}
    objects = set(cluster.bucket.objects)
    dry = await collector.run(dry_run=True)
    assert dry.deleted == 2, "what is found by its key is not found again by the listing"
    assert objects == set(cluster.bucket.objects)
    assert stored == {number: dict(cluster.state.domain(number, 0).entries) for number in range(DOMAINS)}
    assert (await collector.run()).deleted == 2


# --- files that are gone


async def test_a_file_that_is_gone_is_said_and_never_put_into_a_table(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    [stream] = topic.streams
    await cluster.fill(stream, 4)
    worker = cluster.worker()
    await worker.once()
    [path] = [each for each in cluster.files() if parse_file_path(each) is not None]
    cluster.bucket.delete(path)
    summary = await worker.once()
    assert [(part.topic, part.partition, part.entry.path) for part in summary.lost] == [("orders", 0, path)]

    cluster.catalog.tables.clear()  # purged: it is made again from the index, and without that file
    summary = await worker.once()
    assert summary.table_files_restored == 0
    assert [part.entry.path for part in summary.lost] == [path]
    [table] = cluster.catalog.tables.values()
    assert not table.newest.files


async def test_a_listing_that_is_short_loses_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await cluster.topic("orders")
    await cluster.fill(topic.streams[0], 4)
    worker = cluster.worker()
    await worker.once()

    async def nothing(_: str) -> AsyncIterator[ObjectInfo]:
        nothing: list[ObjectInfo] = []
        for info in nothing:
            yield info

    monkeypatch.setattr(worker.objects, "list", nothing)
    assert (await worker.once()).lost == []


async def test_looking_for_what_many_streams_have_lost_does_not_hold_compaction_up(cluster: Cluster) -> None:
    topic = await cluster.topic("orders", partitions=32)
    for stream in topic.streams:
        await cluster.fill(stream, 1)
    worker = cluster.worker()
    await worker.once()
    for path in cluster.files():
        cluster.bucket.delete(path)
    began = asyncio.get_running_loop().time()
    summary = await worker.once()
    assert len(summary.lost) == 32
    one_by_one = 32 * (TRIES - 1) * PAUSE_SECONDS
    assert asyncio.get_running_loop().time() - began < one_by_one / 8
