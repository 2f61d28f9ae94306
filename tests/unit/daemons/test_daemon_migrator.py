"""A migrator: which topics it works on, what it leaves to others, and what it shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen
from uuid import UUID

import pytest
import uvloop
from tests.services import room_settings
from tests.services.two_builds import MIGRATION
from tests.unit.migration.attach_harness import DOMAINS, Cluster
from tests.unit.migration.sources import local_files

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import ProcessMetrics
from dray.broker.cluster.identity import ClusterInfo
from dray.cli.options import load_config
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.health import HealthServer
from dray.daemons.assembly.instrumented_stores import measured
from dray.daemons.assembly.stores import Stores
from dray.daemons.config import FlagValue, Settings, load
from dray.daemons.migrator import process as migrator_module
from dray.daemons.migrator.metrics import MigratorMetrics, WorkedTopic
from dray.daemons.migrator.migration import Rooms, live_settings, mirror_memory
from dray.daemons.migrator.process import Migrator, migrate
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.daemons.supervisor.children import MIGRATOR
from dray.kafka.client.cluster import Cluster as KafkaCluster
from dray.log.life.retention import Retention
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore
from dray.migration.attach.inventory import SourceLayout
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.segments import ForeignSegments
from dray.migration.live.migration import LiveSeen, LiveSettings
from dray.migration.live.mirror_lag import MirrorLag
from dray.migration.live.moving_topic import SourceCluster
from dray.migration.mirror.mirroring import StreamMirror
from dray.migration.record import NO_TIER, MigrationRecord, MigrationState, encode_migration
from dray.objects.memory import MemoryObjects

NOWHERE = "127.0.0.1:1"


def settings(**flags: str) -> Settings:
    given = {"upstream.clusters": f"{{old: '{NOWHERE}'}}", **flags}
    return load(None, {}, [FlagValue("--test", key, text) for key, text in given.items()]).settings


def test_a_migrator_has_the_event_loop_and_the_memory_of_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It mirrors as fast as a consumer reads only with both (note 0131)."""
    tuned: list[str] = []
    loops: list[type] = []

    async def runs(_settings: Settings, _again: Callable[[], Settings]) -> None:
        loops.append(type(asyncio.get_running_loop()))

    monkeypatch.setattr(migrator_module, "tune_memory", lambda: tuned.append("memory"))
    monkeypatch.setattr(migrator_module, "_run", runs)
    migrate(settings(), settings)
    assert tuned == ["memory"]
    assert loops == [uvloop.Loop]


def test_the_memory_of_the_config_arrives() -> None:
    for size, places in (("512MiB", 3), ("143MiB", 0)):
        memory = mirror_memory(settings(**{"upstream.mirror_bytes": size}))
        assert [memory.take() for _ in range(places + 1)] == [True] * places + [False]


def test_the_settings_of_the_config_arrive() -> None:
    given = {"upstream.give_up_time": "7s", "upstream.straggler_watch": "8s", "upstream.group_interval": "9s"}
    assert live_settings(settings(**given)) == LiveSettings(7.0, 8.0, 9.0)


def test_the_flag_of_a_migrator() -> None:
    assert load_config(None, migrator_http="127.0.0.1:9645").settings.upstream.http == Address(
        "127.0.0.1", 9645
    )


def test_up_runs_a_migrator_where_there_is_something_to_move() -> None:
    assert MIGRATOR.child(load(None, {}, []).settings, None) is None
    child = MIGRATOR.child(settings(data_dir="here"), Path("dray.yaml"))
    assert child is not None
    assert list(child.arguments) == ["migrator", "--data-dir", "here", "--config", "dray.yaml"]
    assert MIGRATOR.child(settings(**{"metadata.engine": "memory"}), None) is None


def test_a_migrator_without_anything_to_move_says_so() -> None:
    with pytest.raises(Failure, match=r"add one to upstream\.clusters"):
        migrate(load(None, {}, []).settings, settings)


def numbers(metrics: ProcessMetrics) -> dict[str, float]:
    found = re.findall(r"^(dray_mi\S+) (\S+)$", metrics.exposition().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def worked(
    records: int, seconds: float = 0, *, size: int = 0, stopped: int = 0, seen: LiveSeen | None = None
) -> WorkedTopic:
    return WorkedTopic(MirrorLag(records, seconds, seconds + 1), size, stopped, seen or LiveSeen())


def test_the_topics_furthest_behind_have_numbers() -> None:
    metrics = ProcessMetrics(process=False)
    shown = MigratorMetrics(metrics, 1)
    seen = LiveSeen(groups=2, stragglers=3)
    states = {"a": "mirroring", "b": "switched", "elsewhere": "mirroring"}
    mirrored = replace(worked(5, 7, size=100, stopped=1, seen=LiveSeen(groups=4)), unfollowed_seconds=33)
    shown.show(states, {"a": mirrored, "b": worked(0, 2, size=10, seen=seen)}, 1000.0)
    found = numbers(metrics)
    assert found['dray_migration_topics{state="mirroring"}'] == 2
    assert found['dray_migration_topics{state="pending"}'] == 0
    assert found["dray_migration_worked_topics"] == 2
    assert found["dray_mirror_lag_records"] == 5
    assert found["dray_mirror_lag_seconds"] == 7
    assert found["dray_mirror_silent_seconds"] == 8
    assert found["dray_mirror_bytes_total"] == 110
    assert found["dray_mirror_stopped_partitions"] == 1
    assert found["dray_migration_waiting_groups"] == 2, "those of a topic that is mirrored do not wait"
    assert found["dray_migration_straggler_offsets"] == 3
    assert found["dray_migration_unfollowed_seconds"] == 33
    assert found['dray_mirror_topic_lag_records{topic="a"}'] == 5
    assert found['dray_mirror_topic_lag_seconds{topic="a"}'] == 7
    assert found['dray_mirror_topic_bytes_total{topic="a"}'] == 100
    assert found['dray_migration_topic_state{state="mirroring",topic="a"}'] == 1
    assert not [name for name in found if 'topic="b"' in name]
    shown.show({}, {}, 1001.0)
    assert not any("topic=" in name for name in numbers(metrics))


def test_counts_never_fall_when_a_topic_is_worked_on_anew() -> None:
    metrics = ProcessMetrics(process=False)
    shown = MigratorMetrics(metrics, 1)
    for size in (100, 150, 30, 40):
        each = WorkedTopic(MirrorLag(skipped=size // 10), size, 0, LiveSeen())
        shown.show({"a": "mirroring"}, {"a": each}, 0.0)
    assert numbers(metrics)["dray_mirror_bytes_total"] == 190
    assert numbers(metrics)["dray_mirror_skipped_offsets_total"] == 19


def test_the_time_in_a_state_begins_with_it() -> None:
    metrics = ProcessMetrics(process=False)
    shown = MigratorMetrics(metrics, 0)

    def longest() -> list[float]:
        found = numbers(metrics)
        return [
            found[f'dray_migration_state_seconds{{state="{state}"}}']
            for state in ("mirroring", "pending", "switched")
        ]

    shown.show({"a": "mirroring"}, {}, 100.0)
    shown.show({"a": "mirroring", "b": "pending"}, {}, 130.0)
    assert longest() == [30, 0, 0]
    shown.show({"a": "pending", "b": "pending"}, {}, 150.0)
    assert longest() == [0, 20, 0]
    shown.show({"a": "pending"}, {}, 160.0)
    assert longest() == [0, 10, 0]
    shown.show({"a": "mirroring"}, {}, 170.0)  # it went back
    assert longest() == [0, 0, 0]


@dataclass
class World:
    cluster: Cluster
    rooms: Rooms

    def migrator(self, upstreams: str = f"{{old: '{NOWHERE}'}}") -> Migrator:
        given = settings(**{"upstream.clusters": upstreams})
        clusters = UpstreamClusters(given, self.cluster.runtime)
        metrics = MigratorMetrics(ProcessMetrics(process=False), 10)
        return Migrator(given, self.rooms, clusters, self.cluster.runtime, metrics)

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
    topics = attacher.topics
    yield World(cluster, Rooms(stores, info, cluster.streams, topics, ownership, attacher, mirror, segments))
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


async def test_topics_of_one_source_share_its_connections(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that ends leaves them to the others."""
    opened: list[str] = []
    genuine = UpstreamClusters.open

    def counted(self: UpstreamClusters, name: str, *given: str) -> KafkaCluster:
        opened.append(name)
        return genuine(self, name, *given)

    closed: list[SourceCluster] = []

    async def close(self: SourceCluster) -> None:
        closed.append(self)

    monkeypatch.setattr(UpstreamClusters, "open", counted)
    monkeypatch.setattr(SourceCluster, "close", close)
    for topic in ("orders", "bills", "visits"):
        await world.put(topic, encode_migration(record()))
    await world.put("other", encode_migration(record(upstream="new")))
    migrator = world.migrator(f"{{old: '{NOWHERE}', new: '{NOWHERE}'}}")
    await migrator.look()
    assert len(migrator.topics) == 4
    assert sorted(opened) == ["new"] * 4 + ["old"] * 4
    await world.put("orders", encode_migration(record(state=MigrationState.MOVED)))
    await migrator.look()
    assert migrator.topics == ["bills", "other", "visits"]
    assert closed == []
    await migrator.stop()
    assert len(closed) == 2


async def test_a_topic_is_left_to_who_has_its_lease_by_now(world: World) -> None:
    """A session ends when its process or the store stands still: then another takes the topic."""
    await world.put("orders", encode_migration(record()))
    one, other = world.migrator(), world.migrator()
    await one.look()
    session = one._leases._session
    assert session is not None
    await session.close()
    await one.look()
    await other.look()
    assert (one.topics, other.topics) == (["orders"], []), "nobody else was there: it is kept"
    session = one._leases._session
    assert session is not None
    await session.close()
    await other.look()
    await one.look()
    assert (one.topics, other.topics) == ([], ["orders"])
    await other.stop()
    await one.look()
    assert one.topics == ["orders"]
    await one.stop()


async def test_what_cannot_be_moved_here_does_not_hold_up_the_others(world: World) -> None:
    await world.put("newer", b"\x63{}")
    await world.put("unknown", encode_migration(record(upstream="new")))
    await world.put("orders", encode_migration(record()))
    migrator = world.migrator()
    for _ in range(2):
        await migrator.look()
    assert migrator.topics == ["orders"]
    await migrator.stop()


async def test_a_topic_is_left_to_a_migrator_that_knows_its_source(world: World) -> None:
    await world.put("orders", encode_migration(record()))
    stranger, able = world.migrator(f"{{other: '{NOWHERE}'}}"), world.migrator()
    await stranger.look()
    await able.look()
    assert (stranger.topics, able.topics) == ([], ["orders"])
    await able.stop()
    await stranger.stop()


async def test_health_and_numbers_over_http() -> None:
    runtime = SystemRuntime(threads=2)
    metrics = ProcessMetrics(process=False)
    stores = measured(Stores(MemoryStore(runtime), MemoryObjects(runtime)), metrics, runtime)
    fault: list[str | None] = ["the records of migrations were not read yet"]
    http = HealthServer("migrator", "upstream.http", stores, runtime, metrics, lambda: fault[0])
    MigratorMetrics(metrics, 1)
    await http.start(Address("127.0.0.1", 0))
    try:
        status, body = await get(runtime, http, "/readyz")
        assert (status, b"were not read yet" in body) == (503, True)
        fault[0] = None
        assert (await get(runtime, http, "/readyz"))[0] == 200
        status, body = await get(runtime, http, "/metrics")
        assert b"dray_mirror_lag_seconds 0.0" in body
        assert b'role="migrator"' in body
        assert b'dray_metadata_seconds_count{operation="get"}' in body, "the stores are measured"
        with pytest.raises(Failure, match=r"already in use: .* another upstream\.http"):
            others = ProcessMetrics(process=False)
            other = HealthServer("migrator", "upstream.http", stores, runtime, others, lambda: None)
            await other.start(Address(*http.address))
    finally:
        await http.stop()
        await stores.close()
        runtime.close()


async def get(runtime: Runtime, http: HealthServer, path: str) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        host, port = http.address
        try:
            with urlopen(f"http://{host}:{port}{path}", timeout=60) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    return await runtime.in_thread(ask)
