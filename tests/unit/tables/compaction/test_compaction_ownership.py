"""Two clusters and one bucket, or one cluster and an earlier copy of its metadata: whose files stay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, DOMAINS, Cluster
from tests.simulation.scripted import Fate, ScriptedStore, ScriptedTables

from dray.broker.cluster import BucketGuard, ClusterInfo
from dray.broker.cluster.bucket_owner import put_owner
from dray.broker.topics.model import Tombstone, Topic, encode_tombstone, encode_topic
from dray.log.life.deletions import HELD, RELEASED, Brake
from dray.log.wal import object_path
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.tables.compaction.cycle import CompactorStores
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep import bucket_survey
from dray.tables.compaction.upkeep.bucket_survey import BucketSurvey, survey_bucket
from dray.tables.compaction.upkeep.file_collector import FileCollector, MetadataCollector
from dray.tables.contract import TopicTable
from dray.tables.iceberg.locations import table_path

assert compaction_cluster  # its tests run on virtual time: see conftest

FIRST = ClusterInfo("first-first-first-firs", DOMAINS, 1)
SECOND = ClusterInfo("second-second-second-s", DOMAINS, 2)


@pytest.fixture
async def cluster() -> Cluster:
    """It owns its bucket, and its collectors ask whether it does."""
    made = Cluster()
    await put_owner(made.objects, FIRST)
    made.may_delete = BucketGuard(made.objects, FIRST.cluster_id)
    made.log = made.new_log()
    return made


def beside(cluster: Cluster) -> Cluster:
    """Another cluster with metadata of its own, on the same bucket."""
    other = Cluster(bucket=cluster.bucket, seed=2)
    other.may_delete = BucketGuard(other.objects, SECOND.cluster_id)
    other.log = other.new_log()
    return other


async def compact(cluster: Cluster, topic: Topic, jobs: int = 1) -> None:
    for job in range(jobs):
        await cluster.fill(topic.streams[0], 2, first=job)
        await cluster.worker(replace(ALL, snapshot_keep_ms=3_600_000)).once()


# --- another cluster


async def test_files_of_another_cluster_stay(cluster: Cluster) -> None:
    """Its streams have the same numbers, and its jobs are further on."""
    topic = await cluster.topic("orders")
    await compact(cluster, topic)
    files = cluster.files()
    stranger = beside(cluster)
    await compact(stranger, await stranger.topic("other"), 3)
    with capture_logs() as logs:
        summary = await stranger.worker().once()
    assert (summary.files_deleted, summary.metadata_deleted) == (0, 0)
    assert summary.held is not None
    assert FIRST.cluster_id in summary.held
    assert SECOND.cluster_id in summary.held
    assert HELD in {line["event"] for line in logs}
    assert files <= cluster.files()
    await cluster.check_log()


async def test_the_rightful_owner_goes_on_beside_it(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await compact(cluster, topic, 2)
    await cluster.delete(topic)
    await cluster.worker().once()
    assert cluster.files() == set()


async def test_a_collector_that_may_not_leaves_all_as_it_is(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    lost = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=5))
    old = f"{table_path('orders', UUID(int=9))}/metadata/1.json"
    for path in (lost, old):
        cluster.bucket.put(path, b"", 0)
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    files = FileCollector(
        cluster.streams, cluster.objects, cluster.runtime, tables, 0.0, may_delete=cluster.may_delete
    )
    metadata = MetadataCollector(
        cluster.objects, cluster.runtime, tables, cluster.topics, 0.0, may_delete=cluster.may_delete
    )
    await asyncio.sleep(1)
    for _ in range(2):
        cluster.objects.trap(Fate.REFUSE, "head")
    assert (await files.run()).held is not None
    assert (await metadata.run()).held is not None
    assert {lost, old} <= set(cluster.bucket.objects)
    assert ((await files.run()).deleted, (await metadata.run()).deleted) == (1, 1)


async def test_tables_are_neither_dropped_nor_expired_without_permission(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await compact(cluster, topic, 2)
    snapshots = len(cluster.catalog.tables["orders"].snapshots)
    cluster.topics.topics.remove(topic)

    async def no() -> str | None:
        return "it is another's"

    cluster.may_delete = no
    upkeep = cluster.worker().compactor.upkeep
    summary = CycleSummary()
    await upkeep.drop_dead_tables(summary)
    assert (summary.tables_dropped, summary.held) == (0, "it is another's")
    cluster.topics.topics.append(topic)
    await upkeep.run(summary)
    assert summary.snapshots_expired == 0
    assert len(cluster.catalog.tables["orders"].snapshots) == snapshots


# --- metadata from an earlier moment


async def test_files_of_topics_that_the_metadata_never_heard_of_are_held(cluster: Cluster) -> None:
    """Their streams' numbers were given anew, to other topics, whose jobs are further on."""
    topic = await cluster.topic("new")
    await compact(cluster, topic, 3)
    strange = {
        file_path(unit_prefix("lost", UUID(int=77), 0, topic.streams[0]), 1, UUID(int=number))
        for number in range(12)
    }
    for path in strange:
        cluster.bucket.put(path, b"", 0)
    worker = cluster.worker(replace(ALL, collect_grace=60.0))
    for _ in range(2):
        summary = await worker.once()
        assert summary.files_deleted == 0
        assert summary.braked is not None
        assert "--release-brake" in summary.braked
        await asyncio.sleep(3600)
    assert strange <= cluster.files()
    await cluster.worker(replace(ALL, brake=RELEASED)).once()
    assert not strange & cluster.files()
    await cluster.check_log()


async def test_files_of_deleted_topics_are_proven_garbage_however_many(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    for number in range(12):
        path = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=number))
        cluster.bucket.put(path, b"", 0)
    await cluster.delete(topic)
    summary = await cluster.worker().once()
    assert (summary.files_deleted, summary.braked) == (12, None)


async def test_attempts_of_live_topics_are_proven_garbage_however_many(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    for number in range(12):
        path = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=number))
        cluster.bucket.put(path, b"", 0)
    summary = await cluster.worker().once()
    assert (summary.files_deleted, summary.braked) == (12, None)


async def tables_without_topics(cluster: Cluster, number: int) -> list[Topic]:
    """As a metadata store from before their topics were made sees them."""
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    topics = [await cluster.topic(f"t{place}") for place in range(number)]
    for topic in topics:
        await tables.ensure(TopicTable(topic.name, topic.topic_id))
    cluster.topics.topics.clear()
    return topics


async def test_tables_of_topics_that_the_metadata_never_heard_of_are_held(cluster: Cluster) -> None:
    await tables_without_topics(cluster, 12)
    upkeep = cluster.worker().compactor.upkeep
    summary = CycleSummary()
    await upkeep.drop_dead_tables(summary)
    assert (summary.tables_dropped, len(cluster.catalog.tables)) == (0, 12)
    assert summary.braked is not None
    released = cluster.worker(replace(ALL, brake=RELEASED)).compactor.upkeep
    with capture_logs() as logs:
        await released.drop_dead_tables(summary)
    assert (summary.tables_dropped, cluster.catalog.tables) == (12, {})
    assert [line["event"] for line in logs] == ["table of a deleted topic dropped"] * 12


async def test_tables_of_topics_that_were_deleted_or_made_anew_are_not_held(cluster: Cluster) -> None:
    old = await tables_without_topics(cluster, 12)
    for topic in old[:6]:
        tombstone = encode_tombstone(Tombstone(topic.name, topic.topic_id, topic.streams, 0))
        await cluster.store.write(0, [Put(keys.deleted_topic(topic.topic_id), tombstone)])
    for topic in old[6:]:
        await cluster.topic(topic.name)
    summary = CycleSummary()
    strict = cluster.worker(replace(ALL, brake=Brake(0.1, 3)))
    await strict.compactor.upkeep.drop_dead_tables(summary)
    assert (summary.tables_dropped, summary.braked) == (12, None)


async def test_metadata_of_a_live_topic_stays_though_the_catalog_knows_no_table(cluster: Cluster) -> None:
    """The catalog may be the wrong one."""
    topic = await cluster.topic("orders")
    path = f"{table_path('orders', topic.topic_id)}/metadata/1.json"
    cluster.bucket.put(path, b"", 0)
    tables = ScriptedTables(cluster.catalog, cluster.runtime)
    collector = MetadataCollector(
        cluster.objects, cluster.runtime, tables, cluster.topics, 0.0, may_delete=cluster.may_delete
    )
    await asyncio.sleep(1)
    seen = await collector.run()
    assert (seen.deleted, seen.undecided) == (0, 1)
    cluster.topics.topics.remove(topic)
    assert (await collector.run()).deleted == 1


async def test_collected_files_leave_one_line(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    lost = file_path(unit_prefix("orders", topic.topic_id, 0, topic.streams[0]), 0, UUID(int=5))
    cluster.bucket.put(lost, b"attempt", 0)
    with capture_logs() as logs:
        await cluster.worker().once()
    [line] = [line for line in logs if line["event"] == "files deleted" and line["log_level"] == "info"]
    assert (line["number"], line["bytes"], line["examples"]) == (1, 7, [lost])


# --- a bucket from before there were owners


async def survey(cluster: Cluster, objects: Sequence[str] = ()) -> BucketSurvey:
    for path in objects:
        cluster.bucket.put(path, b"", 0)
    return await survey_bucket(cluster.store, DOMAINS, cluster.objects, Random(1))


async def stored(cluster: Cluster, topic: Topic) -> None:
    await cluster.store.write(0, [Put(keys.topic(topic.name), encode_topic(topic))])


async def test_an_empty_bucket_raises_no_doubt(cluster: Cluster) -> None:
    found = await survey(cluster, ["somebody/else.txt", "wal/v1/readme.txt"])
    assert (found.listed, found.doubt()) == (0, None)


async def test_what_the_metadata_knows_raises_no_doubt(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await stored(cluster, topic)
    await compact(cluster, topic)
    await cluster.append(topic.streams[0], b"in the log")
    await cluster.log.delete_records(topic.streams[0], 2)
    gone = await cluster.topic("gone")
    tombstone = encode_tombstone(Tombstone("gone", gone.topic_id, gone.streams, 0))
    await cluster.store.write(0, [Put(keys.deleted_topic(gone.topic_id), tombstone)])
    paths = [
        f"{table_path('orders', topic.topic_id)}/metadata/1.json",
        file_path(unit_prefix("gone", gone.topic_id, 0, gone.streams[0]), 0, UUID(int=5)),
    ]
    found = await survey(cluster, paths)
    assert found.looked_at == found.listed == len(cluster.wal_objects() | cluster.files()) + 1
    assert found.doubt() is None


@pytest.mark.parametrize(
    "path",
    [
        object_path("local", 0, 0, UUID(int=5)),
        object_path("local", DOMAINS, 0, UUID(int=5)),
        file_path(unit_prefix("orders", UUID(int=77), 0, 0), 1, UUID(int=5)),
        f"{table_path('orders', UUID(int=77))}/metadata/1.json",
    ],
)
async def test_one_unknown_object_is_enough(cluster: Cluster, path: str) -> None:
    topic = await cluster.topic("orders")
    await stored(cluster, topic)
    await compact(cluster, topic)
    found = await survey(cluster, [path])
    assert (found.unknown, found.examples) == (1, (path,))
    assert path in str(found.doubt())


async def test_the_survey_asks_behind_a_barrier(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    behind = ScriptedStore(cluster.runtime, cluster.state)
    behind.fall_behind(topic.streams[0] % DOMAINS)
    await cluster.append(topic.streams[0], b"a")
    found = await survey_bucket(behind, DOMAINS, cluster.objects, Random(1))
    assert (found.listed, found.doubt()) == (1, None)


async def test_a_topic_that_cannot_be_read_proves_nothing(cluster: Cluster) -> None:
    topic = await cluster.topic("orders")
    await cluster.store.write(0, [Put(keys.topic("orders"), b"\x63" + encode_topic(topic)[1:])])
    path = f"{table_path('orders', topic.topic_id)}/metadata/1.json"
    assert (await survey(cluster, [path])).unknown == 1


async def test_a_large_bucket_is_sampled(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_survey, "_SAMPLE", 10)
    monkeypatch.setattr(bucket_survey, "_MOST_LISTED", 60)
    paths = [object_path("local", 0, 0, UUID(int=number)) for number in range(100)]
    found = await survey(cluster, paths)
    assert (found.listed, found.looked_at, found.unknown, len(found.examples)) == (60, 10, 10, 3)
    assert set(found.examples) - set(paths[:10]), "not the first ones only"


async def test_a_compactor_that_was_given_no_guard_deletes_nothing(cluster: Cluster) -> None:
    assert await CompactorStores(cluster.streams, cluster.objects).may_delete() is not None


def test_a_brake_has_a_default() -> None:
    assert ALL.brake == Brake() == Brake(0.5, 10)
