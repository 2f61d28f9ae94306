"""Whose bucket it is, from the shell and in a broker: refusals, adoption, the brake, and what is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics, ProcessMetrics
from dray.broker.cluster import BucketRefused, ClockGuard, ClusterInfo, TallyKeeper, open_cluster
from dray.broker.cluster.bucket_owner import OWNER, put_owner, read_owner
from dray.broker.server import Health
from dray.broker.server.http.requests import HttpRequest
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.broker.topics.live import StoredTopics
from dray.cli.main import main
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.metrics import MeasuredLog
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.assembly.stores import Stores, open_stores
from dray.daemons.broker.node import Node
from dray.daemons.compactor import process as compacting
from dray.daemons.compactor.collection import CollectionReport, CollectionRequest, collect
from dray.daemons.compactor.health import CompactorHttp, CycleHealth
from dray.daemons.compactor.metrics import CompactorMetrics
from dray.daemons.config import Settings, load
from dray.daemons.recovery.ownership import claimed_bucket
from dray.log import Collection, Log, LogSettings
from dray.log.stream_store import StreamStore
from dray.log.wal import object_path
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.compaction.cycle import Compactor
from dray.tables.compaction.cycle import CompactorStores as CompactedStores
from dray.tables.compaction.planning.shares import TopicShare
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.writing.executor import LocalUnitWriter

OTHER = ClusterInfo("other-other-other-othe", 4, 5)


@pytest.fixture(autouse=True)
def known_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this metadata store is the cluster."""
    monkeypatch.setenv("DRAY_CLUSTER__TALLY_INTERVAL", "100ms")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    environment = {
        "DRAY_DATA_DIR": str(tmp_path),
        "DRAY_ICEBERG__ENABLED": "false",
        "DRAY_CLUSTER__TALLY_INTERVAL": "100ms",
    }
    return load(environment=environment).settings


def prepare(
    settings: Settings, *, owner: ClusterInfo | None = None, unknown: int = 0, mine: bool = False
) -> str:
    """The stores, with a cluster, perhaps an owner, and objects that the metadata does not know; its id."""

    async def work() -> str:
        runtime = SystemRuntime()
        stores = await open_stores(settings, runtime)
        cluster = await open_cluster(stores.metadata, runtime, 4)
        if owner is not None or mine:
            await put_owner(stores.objects, owner or cluster)
        for _ in range(unknown):
            await stores.objects.put(object_path("local", 0, 0, runtime.uuid()), [b"unknown"])
        await stores.close()
        runtime.close()
        return cluster.cluster_id

    return asyncio.run(work())


def drayd(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    told = capsys.readouterr()
    return code, told.out, told.err


def wal_objects(settings: Settings) -> int:
    return len(list(Path(settings.data_dir).rglob("*.wo")))


# --- collecting by hand


def test_gc_refuses_the_bucket_of_another(settings: Settings) -> None:
    mine = prepare(settings, owner=OTHER, unknown=3)
    for wanted in (
        CollectionRequest(now=True),
        CollectionRequest(now=True, dry_run=True),
        CollectionRequest(now=True, release_brake=True),
    ):
        with pytest.raises(Failure) as refused:
            collect(settings, wanted)
        assert mine in str(refused.value)
        assert OTHER.cluster_id in str(refused.value)
    assert wal_objects(settings) == 3


def test_gc_refuses_a_bucket_without_an_owner(settings: Settings) -> None:
    prepare(settings, unknown=3)
    with pytest.raises(Failure, match="is gone"):
        collect(settings, CollectionRequest(now=True))
    assert wal_objects(settings) == 3


def test_gc_stops_by_itself_and_goes_on_when_told_to(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(settings, mine=True, unknown=11)
    capsys.readouterr()
    where = ("--data-dir", str(settings.data_dir))
    code, out, error = drayd(capsys, "admin", "gc", *where, "--now", "--json")
    assert (code, json.loads(out)["deleted"], json.loads(out)["unknown"]) == (1, 0, 11)
    assert "--release-brake" in error.splitlines()[-1]
    assert wal_objects(settings) == 11
    release = ("admin", "gc", *where, "--now", "--json", "--release-brake")
    code, out, error = drayd(capsys, *release)
    assert (code, json.loads(out)["deleted"]) == (0, 11)
    assert error.endswith("nothing was done: add --execute to do this\n")
    assert wal_objects(settings) == 11
    code, out, error = drayd(capsys, *release, "--execute")
    assert (code, json.loads(out)["deleted"], error) == (0, 11, "")
    assert wal_objects(settings) == 0


def test_what_gc_counts(settings: Settings) -> None:
    prepare(settings, mine=True, unknown=2)
    done = collect(settings, CollectionRequest(now=True, dry_run=True))
    assert isinstance(done, CollectionReport)
    assert (done.held, done.counts["deleted"]) == (None, 2)
    assert all(isinstance(count, int) for count in done.counts.values())
    assert {"files_deleted", "standing", "unknown"} <= done.counts.keys()


# --- adopting


def test_a_bucket_is_adopted_only_when_confirmed(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = prepare(settings, unknown=2)
    where = ("--data-dir", str(settings.data_dir))
    owner = Path(settings.data_dir) / "objects" / OWNER
    code, out, _ = drayd(capsys, "admin", "adopt-bucket", *where)
    assert code == 0
    assert f"cluster {mine}: 2 objects listed, 2 looked at" in out
    assert "unknown to its metadata store: 2" in out
    assert "--execute" in out
    assert not list(Path(settings.data_dir).rglob(OWNER))
    code, out, _ = drayd(capsys, "admin", "adopt-bucket", *where, "--execute")
    assert (code, out.splitlines()[-1]) == (0, "the object store belongs to this cluster now")
    assert list(Path(settings.data_dir).rglob(OWNER)), owner
    code, out, _ = drayd(capsys, "admin", "adopt-bucket", *where)
    assert (code, out) == (0, f"the object store belongs to cluster {mine} already\n")


def test_what_has_an_owner_is_not_adopted(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    mine = prepare(settings, owner=OTHER)
    code, _, error = drayd(capsys, "admin", "adopt-bucket", "--data-dir", str(settings.data_dir), "--execute")
    assert code == 1
    assert mine in error
    assert OTHER.cluster_id in error
    assert error.count("\n") == 1


# --- compactors


async def test_a_compactor_goes_by_the_same_rule() -> None:
    runtime = SystemRuntime()
    stores = Stores(MemoryStore(runtime), MemoryObjects(runtime))
    cluster = await open_cluster(stores.metadata, runtime, 2)
    guard = await claimed_bucket(stores, cluster, runtime, 0.1)
    assert await guard() is None
    stranger = Stores(MemoryStore(runtime), stores.objects)
    with pytest.raises(Failure, match=cluster.cluster_id):
        await claimed_bucket(stranger, OTHER, runtime, 0.1)
    full = Stores(MemoryStore(runtime), MemoryObjects(runtime))
    await full.objects.put(object_path("local", 0, 0, runtime.uuid()), [b"unknown"])
    with pytest.raises(Failure, match="adopt-bucket"):
        await claimed_bucket(full, OTHER, runtime, 0.1)
    runtime.close()


def test_a_compactor_s_retention_has_the_brokers_settings(tmp_path: Path) -> None:
    settings = load(environment={"DRAY_DATA_DIR": str(tmp_path), "DRAY_LOG__ORPHAN_TTL": "7m"}).settings
    runtime = SystemRuntime()
    store, objects = MemoryStore(runtime), MemoryObjects(runtime)
    compactor = Compactor(
        CompactedStores(StreamStore(store, 2, 1000), objects),
        runtime,
        LocalUnitWriter(objects, runtime),
        None,
        StoredTopics(store, {}),
        compaction_settings(settings),
        log_settings(settings),
    )
    assert compactor._kept._retention._settings.orphan_ttl == 420.0
    assert compaction_settings(replace_percent(settings, 7)).brake.share == 0.07
    runtime.close()


def replace_percent(settings: Settings, percent: int) -> Settings:
    return replace(settings, log=replace(settings.log, collect_share=percent / 100))


def test_what_compactors_delete_and_why_not_is_counted() -> None:
    metrics = ProcessMetrics(process=False)
    observer = CompactorMetrics(metrics, lambda: 0, 10)
    observer.records_deleted("retention", 5)
    observer.finished(
        CycleSummary(files_deleted=2, metadata_deleted=3, tables_dropped=1, held="no", braked="no")
    )
    shown = metrics.exposition().decode()
    for kind, number in (("parquet", 2), ("table_metadata", 3), ("table", 1), ("records_retention", 5)):
        assert f'dray_deleted_total{{kind="{kind}"}} {number}.0' in shown
    for reason in ("owner", "brake"):
        assert f'dray_deletions_held_total{{reason="{reason}"}} 1.0' in shown


async def test_a_compactor_tells_on_readyz_why_it_does_not_delete() -> None:
    runtime = SystemRuntime()
    http = CompactorHttp(
        Stores(MemoryStore(runtime), MemoryObjects(runtime)), runtime, ProcessMetrics(process=False)
    )
    http.cycles = CycleHealth(runtime.monotonic, 60.0)
    http.collection.finished(CycleSummary(collected=True, braked="too much is unknown"))
    http.collection.finished(CycleSummary())  # its collectors had no turn: nothing new is known
    assert await notes(http._health) == {"collection": "too much is unknown"}
    http.collection.finished(CycleSummary(collected=True))
    assert await notes(http._health) is None
    runtime.close()


async def notes(health: Health) -> object:
    answer = await health.routes()["/readyz"](HttpRequest("GET", "/readyz", "", keep_alive=False))
    assert answer.status == 200
    return json.loads(answer.body).get("notes")


# --- brokers


def node_on(runtime: SystemRuntime, state: MemoryState, bucket: MemoryBucket) -> Node:
    environment = {
        "DRAY_BROKER__LISTEN": "127.0.0.1:0",
        "DRAY_BROKER__HTTP": "127.0.0.1:0",
    }
    stores = MemoryStore(runtime, state), MemoryObjects(runtime, bucket)
    settings = load(environment=environment).settings
    return Node(replace(settings, log=replace(settings.log, collect_seconds=1.0)), runtime, *stores)


async def test_brokers_of_a_fresh_cluster_may_start_at_once() -> None:
    runtime, state, bucket = SystemRuntime(), MemoryState(), MemoryBucket()
    nodes = [node_on(runtime, state, bucket) for _ in range(3)]
    await asyncio.gather(*(node.start() for node in nodes))
    owner = await read_owner(MemoryObjects(runtime, bucket))
    assert owner is not None
    for node in nodes:
        await node.stop()
    stranger = node_on(runtime, MemoryState(), bucket)
    with pytest.raises(BucketRefused, match=owner.cluster_id):
        await stranger.start()
    await stranger.stop()
    runtime.close()


async def test_a_broker_goes_on_serving_and_tells_why_it_does_not_delete() -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    node = node_on(runtime, MemoryState(), bucket)
    await node.start()
    bucket.delete(OWNER)
    assert (await node.parts.need(Log).collector.run()).held is not None
    told = await notes(node.health)
    assert isinstance(told, dict)
    assert "is gone" in told["collection"]
    await node.stop()
    runtime.close()


def test_what_brokers_collect_is_counted() -> None:
    metrics = Metrics(process=False)
    observer = MeasuredLog(metrics)
    seen = Collection(deleted=2, pending=3, standing=4, orphans=5, unknown=6)
    observer.collected(seen)
    observer.collected(seen)
    observer.records_deleted("delete_records", 9)

    def shown() -> list[float]:
        return [
            metrics.collection_orphans.value,
            metrics.collection_pending.value,
            metrics.collection_resolved.value,
            metrics.deleted.labels("wal").value,
            metrics.deleted.labels("records_delete_records").value,
            metrics.deletions_held.labels("owner").value,
            metrics.deletions_held.labels("brake").value,
        ]

    assert shown() == [10, 3, 10, 4, 9, 0, 0], "what waits is what waits now; what went adds up"
    observer.collected(Collection(held="not ours"))
    assert (observer.held, shown()) == ("not ours", [10, 3, 10, 4, 9, 1, 0])
    observer.collected(replace(seen, braked="too much"))
    assert (observer.held, shown()[-1]) == ("too much", 1)
    observer.collected(seen)
    assert observer.held is None


async def test_what_a_compactor_process_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its collectors ask whose bucket it is, its retention has the brokers' settings, its clock is judged."""
    made: list[tuple[CompactedStores, object]] = []

    class Recorded:
        def __init__(
            self, *given: object, expiry: object, requests: object, share: Callable[[], object]
        ) -> None:
            stores = given[0]
            assert isinstance(requests, CompactionRequests)
            assert isinstance(share(), TopicShare)
            assert isinstance(stores, CompactedStores)
            assert isinstance(expiry, ClockGuard)
            made.append((stores, next(each for each in given if isinstance(each, LogSettings))))

        async def run(self, _stop: asyncio.Event) -> None:
            return

    async def no_writer(*_: object) -> None:
        return

    runtime = SystemRuntime()
    opened = Stores(MemoryStore(runtime), MemoryObjects(runtime))

    async def open_these(*_: object, **_named: object) -> Stores:
        return opened

    monkeypatch.setattr(compacting, "Compactor", Recorded)
    monkeypatch.setattr(compacting, "_open_writer", no_writer)
    monkeypatch.setattr(compacting, "open_stores", open_these)
    environment = {
        "DRAY_DATA_DIR": str(tmp_path),
        "DRAY_ICEBERG__ENABLED": "false",
        "DRAY_LOG__ORPHAN_TTL": "7m",
        "DRAY_CLUSTER__TALLY_INTERVAL": "100ms",
    }
    settings = load(environment=environment).settings
    await open_cluster(opened.metadata, runtime, 2)
    await compacting._work(settings, runtime, once=False)
    [(stores, log)] = made
    assert isinstance(stores.may_delete, TallyKeeper)
    assert (await stores.may_delete.owner(), log) == (None, log_settings(settings))
    assert log_settings(settings).orphan_ttl == 420.0
    await MemoryObjects.delete(opened.objects, OWNER)  # type: ignore[arg-type]
    assert await stores.may_delete() is not None
    runtime.close()
