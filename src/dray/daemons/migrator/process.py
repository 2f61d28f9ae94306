"""A migrator, from its settings to a signal: it does what the records of live migrations ask for.

Any number of them may run. Each looks at the records, takes the leases it can get, and works on those topics
(`migration/live/migration.py`). A topic that fails is begun again, and does not hold up the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

import structlog
import uvloop

from dray.base.runtime import KeptTask, Runtime, SystemRuntime, keep_running
from dray.base.telemetry import ProcessMetrics, configure_logging
from dray.broker.server.tls.listener import CertificateUnusable
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.health import HealthServer
from dray.daemons.assembly.http_security import HttpSecurity, TokensUnusable
from dray.daemons.assembly.instrumented_stores import MeasuredStores
from dray.daemons.assembly.log_format import log_format
from dray.daemons.assembly.notify import tell_manager
from dray.daemons.assembly.process import StopSignals, raise_file_limit, settle_garbage_collector, tune_memory
from dray.daemons.assembly.reread import Rereading
from dray.daemons.assembly.stores import NoCluster
from dray.daemons.config import Settings
from dray.daemons.migrator import migration
from dray.daemons.migrator.metrics import MigratorMetrics, WorkedTopic
from dray.daemons.migrator.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.metadata.values import UnreadableValue
from dray.migration.live.migration import WORKED, LiveMigration
from dray.migration.live.mirror_lag import LagClock
from dray.migration.live.moving_topic import MovingTopic, SourceCluster
from dray.migration.record import MigrationLeases, MigrationRecord, decode_migration
from dray.migration.source.mirror import WaitingFetches

_log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 1.0
LOOK_FOR_A_CLUSTER_SECONDS: Final = 2.0


def migrate(settings: Settings, again: Callable[[], Settings]) -> None:
    if not settings.upstream.clusters:
        raise Failure(
            "there is no cluster to move topics from: add one to upstream.clusters, such as "
            "{old: {bootstrap: 'kafka:9092', command_config: FILE}}",
            USAGE,
        )
    tune_memory()
    raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, again))


async def _run(settings: Settings, again: Callable[[], Settings]) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime, fields={"process": "migrator"})
    signals = StopSignals(asyncio.get_running_loop(), Rereading(runtime, again).ask)
    working = asyncio.ensure_future(_work(settings, runtime))
    stopping = asyncio.ensure_future(signals.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    finally:
        stopping.cancel()
        runtime.close()


async def _work(settings: Settings, runtime: SystemRuntime) -> None:
    metrics = ProcessMetrics()
    clusters = UpstreamClusters(settings, runtime)
    async with AsyncExitStack() as stack:
        rooms = await _find_cluster(settings, runtime, stack, metrics)
        shown = MigratorMetrics(metrics)
        migrator = Migrator(settings, rooms, clusters, runtime, shown)
        assert isinstance(rooms.stores, MeasuredStores)
        http = HealthServer("migrator", "upstream.http", rooms.stores, runtime, metrics, migrator.fault)
        stack.push_async_callback(http.stop)
        if settings.upstream.http is not None:
            try:
                security = HttpSecurity(settings, runtime)
            except (TokensUnusable, CertificateUnusable) as error:
                raise Failure(str(error)) from error
            await http.start(settings.upstream.http, security)
        stack.push_async_callback(migrator.stop)
        tell_manager(READY="1", STATUS="the migrator works")
        _log.info("migrator is working", upstreams=clusters.names)
        migrator.start()
        settle_garbage_collector()
        await asyncio.Event().wait()


async def _find_cluster(
    settings: Settings, runtime: Runtime, stack: AsyncExitStack, metrics: ProcessMetrics
) -> migration.Rooms:
    """A migrator may be started before the first broker was."""
    said = False
    while True:
        try:
            return await stack.enter_async_context(migration.opened(settings, runtime, metrics))
        except NoCluster:
            if not said:
                tell_manager(READY="1", STATUS="waiting for the first broker of the cluster")
                _log.info("waiting for the first broker of the cluster")
                said = True
        await runtime.sleep(LOOK_FOR_A_CLUSTER_SECONDS)


@dataclass(frozen=True, slots=True)
class _Worker:
    record: MigrationRecord
    live: MovingTopic
    migration: LiveMigration
    task: KeptTask
    clock: LagClock = field(default_factory=LagClock)

    def shown(self, now: float) -> WorkedTopic:
        seen = self.migration.seen
        lag = self.clock.look(now, self.live.progress)
        return WorkedTopic(lag, self.live.read_bytes, len(seen.stopped), seen, self.live.unfollowed_seconds)

    async def stop(self) -> None:
        await self.task.stop()
        await self.migration.stop()
        await self.live.close()


class Migrator:
    """The topics that this process works on."""

    def __init__(
        self,
        settings: Settings,
        rooms: migration.Rooms,
        clusters: UpstreamClusters,
        runtime: Runtime,
        metrics: MigratorMetrics,
    ) -> None:
        self._settings = settings
        self._rooms = rooms
        self._memory = migration.mirror_memory(settings)
        self._clusters = clusters
        self._runtime = runtime
        self._metrics = metrics
        self._leases = MigrationLeases(rooms.stores.metadata, runtime)
        self._workers: dict[str, _Worker] = {}
        self._sources: dict[str, SourceCluster] = {}
        self._unknown: set[str] = set()
        self._looked: float | None = None
        self._looking: KeptTask | None = None

    @property
    def topics(self) -> list[str]:
        """Those that this process works on."""
        return sorted(self._workers)

    def start(self) -> None:
        self._looking = keep_running(self._runtime, "look for migrations", self._look_on)

    async def stop(self) -> None:
        if self._looking is not None:
            await self._looking.stop()
        for worker in self._workers.values():
            await worker.stop()
        self._workers = {}
        for source in self._sources.values():
            await source.close()
        with suppress(MetadataError):  # it ends by itself
            await self._leases.close()

    def fault(self) -> str | None:
        """For `/readyz`: why nothing is done."""
        now = self._runtime.monotonic()
        if self._looked is None:
            return "the records of migrations were not read yet"
        if now - self._looked > 60 * LOOK_SECONDS:
            return f"the records of migrations could not be read for {now - self._looked:.0f} s"
        return None

    async def _look_on(self) -> None:
        while True:
            await self.look()
            await self._runtime.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Begin what is to be done and not done by another process; end what is over, or is another's by now:
        a lease goes with its session."""
        records = await self._read()
        for topic in [topic for topic in self._workers if not self._is_same(topic, records.get(topic))]:
            await self._workers.pop(topic).stop()
        for topic, record in records.items():
            if not self._is_known(topic, record):
                continue
            is_ours = await self._leases.hold(topic)
            if is_ours and topic not in self._workers:
                self._begin(topic, record)
            elif not is_ours and topic in self._workers:
                _log.info("a topic is left to another migrator: the lease has ended", topic=topic)
                await self._workers.pop(topic).stop()
        now = self._looked = self._runtime.monotonic()
        self._metrics.show(
            {topic: record.state.value for topic, record in records.items()},
            {topic: worker.shown(now) for topic, worker in self._workers.items()},
            now,
        )

    def _is_same(self, topic: str, record: MigrationRecord | None) -> bool:
        return record is not None and record.migration_id == self._workers[topic].record.migration_id

    async def _read(self) -> dict[str, MigrationRecord]:
        """One that cannot be read is left to a build that can, and does not hold up the others."""
        end = keys.prefix_end(keys.MIGRATIONS)
        found: dict[str, MigrationRecord] = {}
        for each in await self._rooms.stores.metadata.scan(keys.CLUSTER_DOMAIN, keys.MIGRATIONS, end):
            topic = keys.topic_of_migration(each.key)
            if topic is None:
                continue
            try:
                record = decode_migration(topic, each.value)
            except UnreadableValue as error:
                _log.error("a migration is left alone", topic=topic, reason=str(error))
                continue
            if record.is_live and record.state in WORKED:
                found[topic] = record
        return found

    def _is_known(self, topic: str, record: MigrationRecord) -> bool:
        """The lease of a topic whose source this process does not know is left to one that does."""
        try:
            self._clusters.bootstrap(record.upstream or "")
        except UnknownUpstream as error:
            if topic not in self._unknown:
                _log.error("a topic cannot be moved", topic=topic, reason=str(error))
            self._unknown.add(topic)
            return False
        return True

    def _begin(self, topic: str, record: MigrationRecord) -> None:
        source = self._source(record.upstream or "")
        live = MovingTopic(topic, record, self._rooms.here, source, self._runtime, memory=self._memory)
        timing = migration.live_settings(self._settings)
        made = LiveMigration(topic, self._rooms.attacher.migrations, live, self._runtime, timing)
        _log.info("a topic is worked on", topic=topic, state=record.state.value, upstream=record.upstream)
        task = keep_running(self._runtime, "move a topic", made.run)
        self._workers[topic] = _Worker(record, live, made, task)

    def _source(self, name: str) -> SourceCluster:
        if name not in self._sources:
            clusters, interval = self._clusters, self._settings.upstream.group_interval
            self._sources[name] = SourceCluster(
                clusters.open(name),
                clusters.open(name),
                WaitingFetches(clusters.open(name), self._runtime),
                self._rooms.group_rounds(name, clusters.open(name), self._runtime, interval),
                clusters.open_as_brokers(name),
            )
        return self._sources[name]
