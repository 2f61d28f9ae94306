"""A migrator: which topics it works on, what it leaves to others, and what it shows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.services.two_builds import MIGRATION
from tests.unit.migration.attach_harness import DOMAINS, Cluster
from tests.unit.migration.sources import local_files

from dray.cli.options import load_config
from dray.cluster.identity import ClusterInfo
from dray.config import FlagValue, Settings, load
from dray.config.kinds import Address
from dray.daemon.failures import Failure
from dray.daemon.live_topic import live_settings
from dray.daemon.migration import Rooms
from dray.daemon.migrator import Migrator, migrate
from dray.daemon.migrator_child import migrator_child
from dray.daemon.migrator_http import MigratorMetrics, TopicLag
from dray.daemon.stores import Stores
from dray.daemon.upstream_clusters import UpstreamClusters
from dray.log.foreign_ownership import ForeignOwnership
from dray.log.foreign_segments import ForeignSegments
from dray.log.mirroring import StreamMirror
from dray.log.retention import Retention
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.migration.inventory import SourceLayout
from dray.migration.live_migration import LiveSeen, LiveSettings
from dray.migration.record import NO_TIER, MigrationRecord, MigrationState, encode_migration
from dray.telemetry import ProcessMetrics

NOWHERE = "127.0.0.1:1"


def settings(**flags: str) -> Settings:
    given = {"upstream.clusters": f"{{old: '{NOWHERE}'}}", **flags}
    return load(None, {}, [FlagValue("--test", key, text) for key, text in given.items()]).settings


def test_the_settings_of_the_config_arrive() -> None:
    given = {"upstream.give_up_time": "7s", "upstream.straggler_watch": "8s", "upstream.group_interval": "9s"}
    assert live_settings(settings(**given)) == LiveSettings(7.0, 8.0, 9.0)


def test_the_flag_of_a_migrator() -> None:
    assert load_config(None, migrator_http="127.0.0.1:9645").settings.upstream.http == Address(
        "127.0.0.1", 9645
    )


def test_up_runs_a_migrator_where_there_is_something_to_move() -> None:
    assert migrator_child(load(None, {}, []).settings, None) is None
    child = migrator_child(settings(data_dir="here"), Path("dray.yaml"))
    assert child is not None
    assert list(child.arguments) == ["migrator", "--data-dir", "here", "--config", "dray.yaml"]
    assert migrator_child(settings(**{"metadata.engine": "memory"}), None) is None


def test_a_migrator_without_anything_to_move_says_so() -> None:
    with pytest.raises(Failure, match=r"add one to upstream\.clusters"):
        migrate(load(None, {}, []).settings)


def numbers(metrics: ProcessMetrics) -> dict[str, float]:
    found = re.findall(r"^(dray_mi\S+) (\S+)$", metrics.exposition().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_the_topics_furthest_behind_have_numbers() -> None:
    metrics = ProcessMetrics(process=False)
    shown = MigratorMetrics(metrics, 1)
    seen = LiveSeen(groups=2, stragglers=3)
    shown.show(
        {"a": "mirroring", "b": "switched", "elsewhere": "mirroring"},
        {"a": TopicLag(5, 1, LiveSeen(groups=4)), "b": TopicLag(0, 0, seen)},
    )
    found = numbers(metrics)
    assert found['dray_migration_topics{state="mirroring"}'] == 2
    assert found['dray_migration_topics{state="pending"}'] == 0
    assert found["dray_mirror_lag_records"] == 5
    assert found["dray_mirror_stopped_partitions"] == 1
    assert found["dray_migration_waiting_groups"] == 2, "those of a topic that is mirrored do not wait"
    assert found["dray_migration_straggler_offsets"] == 3
    assert found['dray_mirror_topic_lag_records{topic="a"}'] == 5
    assert 'dray_mirror_topic_lag_records{topic="b"}' not in found
    shown.show({}, {})
    assert not any("topic=" in name for name in numbers(metrics))


@dataclass
class World:
    cluster: Cluster
    rooms: Rooms

    def migrator(self) -> Migrator:
        clusters = UpstreamClusters(settings(), self.cluster.runtime)
        metrics = MigratorMetrics(ProcessMetrics(process=False), 10)
        return Migrator(settings(), self.rooms, clusters, self.cluster.runtime, metrics)

    async def put(self, topic: str, value: bytes) -> None:
        await self.cluster.store.write(keys.CLUSTER_DOMAIN, [Put(keys.migration(topic), value)])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    cluster = Cluster(SourceLayout.KAFKA_TIERED, local_files())
    attacher = cluster.process()
    segments = ForeignSegments(cluster.objects, cluster.runtime)
    retention = Retention(cluster.streams, cluster.runtime, room_settings.log())
    ownership = ForeignOwnership(cluster.streams, segments, cluster.objects, cluster.runtime, retention)
    mirror = StreamMirror(
        cluster.streams, cluster.objects, cluster.runtime, room_settings.log(), segments, retention
    )
    stores = Stores(cluster.store, cluster.objects)
    info = ClusterInfo("c", DOMAINS, 0)
    yield World(cluster, Rooms(stores, info, cluster.streams, attacher.topics, ownership, attacher, mirror))
    cluster.runtime.close()


def record(**changes: object) -> MigrationRecord:
    live = {"layout": NO_TIER, "upstream": "old", "source_topic_id": UUID(int=6), "attempt": 0}
    mirroring = {"state": MigrationState.MIRRORING, **live}
    return replace(MIGRATION, **mirroring | changes)  # type: ignore[arg-type]


async def test_a_migrator_works_on_what_no_other_does(world: World) -> None:
    await world.put("orders", encode_migration(record()))
    await world.put("bills", encode_migration(record(state=MigrationState.MOVED)))
    await world.put("cold", encode_migration(MIGRATION))
    one, other = world.migrator(), world.migrator()
    assert one.fault() == "the records of migrations were not read yet"
    await one.look()
    await other.look()
    assert (one.topics, other.topics) == (["orders"], [])
    assert one.fault() is None
    await one.stop()
    await other.look()
    assert other.topics == ["orders"]
    await world.put("orders", encode_migration(record(state=MigrationState.MOVED)))
    await other.look()
    assert other.topics == []
    await other.stop()


async def test_what_cannot_be_moved_here_does_not_hold_up_the_others(world: World) -> None:
    await world.put("newer", b"\x63{}")
    await world.put("unknown", encode_migration(record(upstream="new")))
    await world.put("orders", encode_migration(record()))
    migrator = world.migrator()
    for _ in range(2):
        await migrator.look()
    assert migrator.topics == ["orders"]
    await migrator.stop()
