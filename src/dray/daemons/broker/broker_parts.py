"""The parts of a broker: how each is made and started, one after the other, and in which order they stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import structlog

from dray.base.build import build_name
from dray.base.config.kinds import DAY, HOUR
from dray.base.runtime import Allowance, Runtime
from dray.base.telemetry import AnsweredErrors, Metrics
from dray.broker.api.dispatcher import Dispatcher
from dray.broker.api.shared import Services
from dray.broker.api.shared.sasl_gate import SaslGate
from dray.broker.cluster import (
    BucketGuard,
    ClockGuard,
    ClusterInfo,
    LevelKeeper,
    Membership,
    TallyKeeper,
    by_affinity,
    claim_bucket,
    has_cluster,
    open_cluster,
)
from dray.broker.cluster.clock_guard import COMPACTOR
from dray.broker.cluster.levels import CARRYING, NEWEST, ClusterLevel, check_level
from dray.broker.groups.coordinator import Groups
from dray.broker.server import HttpServer
from dray.broker.topics import Topics
from dray.broker.topics.retention import RetentionLoop
from dray.daemons.assembly.http_security import HttpSecurity
from dray.daemons.assembly.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemons.assembly.metrics import MeasuredGroups, MeasuredLog, MeasuredRequests, measure_groups
from dray.daemons.assembly.parts import (
    broker_registration,
    clock_guard,
    foreign_audit_loop,
    retention_loop,
    while_it_passes,
)
from dray.daemons.assembly.process import MachineIdentity
from dray.daemons.assembly.settings import api_settings, groups_settings, log_settings
from dray.daemons.assembly.stores import Stores
from dray.daemons.broker.group_lag import CoordinatedGroups, GroupLag
from dray.daemons.broker.linked_topics import StoredLinks, forwarder, forwarding_limits
from dray.daemons.broker.security import BrokerSecurity, known_resources
from dray.daemons.config import Settings
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.daemons.recovery.backups import BackupLoop
from dray.log import Log
from dray.log.life.deletions import MayDelete
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.ownership import ForeignAuditLoop
from dray.migration.entries.segments import ForeignStore
from dray.migration.groups.gate import GroupGate
from dray.migration.source.forwarding import ProduceForwarder
from dray.objects import ObjectStore
from dray.tables.compaction.upkeep.bucket_survey import survey_bucket

_log = structlog.get_logger(__name__)

UNMERGED_OBJECTS: Final = 1000
UNMERGED_SECONDS: Final = 6 * HOUR


class Part(Protocol):
    async def stop(self) -> None: ...


PartT = TypeVar("PartT", bound=Part)


class BrokerParts:
    """The stores are there from the beginning; the parts come one by one. Each is known before it starts, so
    that a stop also clears up after one that failed to start."""

    cluster: ClusterInfo
    may_delete: MayDelete
    addresses: Mapping[str, tuple[str, int]]
    """The addresses at which the broker listens, with the ports that it really has."""
    http_address: tuple[str, int] | None

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        metadata_store: MetadataStore,
        object_store: ObjectStore,
        machine: MachineIdentity,
        metrics: Metrics,
        foreign: Mapping[str, ForeignStore],
        upstream: UpstreamClusters | None,
    ) -> None:
        self.settings = settings
        self.runtime = runtime
        self.machine = machine
        self.metrics = metrics
        self.foreign = foreign
        self.upstream = upstream
        self.metadata = InstrumentedMetadataStore(metadata_store, metrics, runtime)
        self.objects = InstrumentedObjectStore(object_store, metrics, runtime)
        self.metadata.writes.meanwhile = _without_metadata
        self.objects.uploads.meanwhile = self._without_uploads
        self.objects.reads.meanwhile = self.objects.answers.meanwhile = _without_reads
        self.entries = ForeignEntries(self.objects, runtime, foreign, settings.foreign.cache_bytes)
        metrics.follow(runtime.background)
        metrics.built(build_name(), "broker")
        self.observed = MeasuredLog(metrics, self.objects)
        self.traffic = metrics.topic_traffic(settings.metrics.topics, runtime.monotonic)
        self.errors = AnsweredErrors(metrics.instruments, runtime.monotonic)
        self.errors.unreadable.follow("topic", self._unreadable_topics)
        self.unfolding = Allowance(2 * settings.limits.decompressed_bytes)
        self.reads = NEWEST  # the highest level of a cluster; less stands for an older build, in simulations
        self.keeps_level = self.keeps_tally = True  # the same
        self._known: dict[type, Part] = {}

    def add(self, part: PartT) -> PartT:
        self._known[type(part)] = part
        return part

    def of(self, kind: type[PartT]) -> PartT | None:
        """None until its turn has come."""
        found = self._known.get(kind)
        return found if isinstance(found, kind) else None

    def need(self, kind: type[PartT]) -> PartT:
        found = self.of(kind)
        if found is None:
            raise RuntimeError(f"{kind.__name__} comes later in the start")
        return found

    async def start(self) -> None:
        for start in STARTS:
            await start(self)

    def stops(self) -> list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """The parts to stop, in this order, by the names that the log has for them."""
        steps: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            (name, self._known[kind].stop) for name, kind in STOPS.items() if kind in self._known
        ]
        steps += [(f"foreign store {name}", store.objects.close) for name, store in self.foreign.items()]
        return [*steps, ("object store", self.objects.close), ("metadata store", self.metadata.close)]

    def looks_after(self, domain: int) -> bool:
        """Is this the broker that does in a domain what one need do: retention, and the collection of
        objects? None that is not registered; for a moment it may be two, or none."""
        membership = self.of(Membership)
        if membership is None or not membership.is_registered:
            return False
        brokers = tuple(broker.broker_id for broker in membership.brokers())
        return by_affinity(brokers, domain)[0] == membership.me.broker_id

    def _unreadable_topics(self) -> dict[str, str]:
        topics = self.of(Topics)
        return {} if topics is None else topics.unreadable()

    # --- small appends, and the stores while they are away

    @property
    def is_carrying(self) -> bool:
        """Do small appends ride in their commit now?"""
        log = self.of(Log)
        return log is not None and log.is_carrying

    def follow_level(self, level: ClusterLevel) -> None:
        """Small appends ride in their commit at a level that allows it."""
        log = self.of(Log)
        self.cluster = replace(self.cluster, level=level)
        may_carry = self.writes >= CARRYING
        if log is not None and log.is_carrying is not may_carry:
            log.carry(may_carry)

    @property
    def writes(self) -> int:
        """The highest level whose formats this broker writes now."""
        return min(self.cluster.level.writes, self.reads)

    def goes_on_without_objects(self) -> str | None:
        """Why this broker is ready though the object store is away: clients that begin have to reach it."""
        log = self.of(Log)
        if log is None or not log.bridges_object_store:
            return None
        return "it is away: small appends are carried meanwhile, as far as their backlog allows"

    def _without_uploads(self) -> str:
        if self.goes_on_without_objects() is None:
            return "appends are refused, and clients send them again"
        return (
            "small appends are carried, as far as their backlog allows; larger ones are refused, and clients "
            "send "
            "them again"
        )


def _without_metadata() -> str:
    return "appends, and all that changes topics and groups, are refused, and clients try again; reads go on"


def _without_reads() -> str:
    return "what is in memory is served; of other fetches clients hear that they may try again"


# --- the start, step by step


async def _open_cluster(broker: BrokerParts) -> None:
    """The cluster's record, and its bucket. Before anything is written it is known whether this metadata
    store is the cluster, or a copy of it: the tally says so."""
    is_new = broker.keeps_tally and not await has_cluster(broker.metadata, broker.runtime)
    cluster = broker.cluster = await open_cluster(
        broker.metadata,
        broker.runtime,
        broker.settings.domains,
        broker.settings.cluster.domains is not None,
        broker.reads,
    )
    check_level(cluster.level, broker.reads)

    async def look_around() -> str | None:
        survey = await survey_bucket(broker.metadata, cluster.domains, broker.objects, broker.runtime.random)
        return survey.doubt()

    await while_it_passes(lambda: claim_bucket(broker.objects, cluster, look_around), broker.runtime)
    broker.may_delete = BucketGuard(broker.objects, cluster.cluster_id)
    if broker.keeps_tally:
        broker.may_delete = await _keep_tally(broker, is_new=is_new)


async def _keep_tally(broker: BrokerParts, *, is_new: bool) -> TallyKeeper:
    knobs = broker.settings.cluster
    tally = broker.add(
        TallyKeeper(
            broker.metadata,
            broker.objects,
            broker.runtime,
            broker.cluster.cluster_id,
            broker.settings.tally_interval,
            is_new=is_new,
        )
    )
    broker.metadata.held = broker.objects.held = tally.held
    broker.metrics.metadata_held.follow(lambda: float(tally.held() is not None))
    await tally.look()
    tally.start()
    if knobs.backup_interval is not None:
        stores = Stores(broker.metadata, broker.objects)
        backups = BackupLoop(
            stores, broker.runtime, broker.cluster, tally, knobs.backup_interval, knobs.backups_kept
        )
        broker.add(backups).start()
    return tally


class UnmergedBulk:
    """Warns where bulk is written and no compactor runs. Nobody else merges it: each partition of each object
    stays an entry of the index and a read of its own."""

    def __init__(self, put: Callable[[], int]) -> None:
        self._put = put  # how many objects this broker has
        self._merged = put()
        self._told = 0.0  # seconds without a compactor when that was told last

    def look(self, unseen_seconds: float) -> None:
        if unseen_seconds < UNMERGED_SECONDS:
            self._merged, self._told = self._put(), 0.0
            return
        objects = self._put() - self._merged
        if objects >= UNMERGED_OBJECTS and (not self._told or unseen_seconds - self._told >= DAY):
            self._told = unseen_seconds
            _log.warning(
                "no compactor was seen, and nobody else merges bulk, so catching up reads each piece of it: "
                "start drayd compactor",
                hours=int(unseen_seconds / HOUR),
                objects=objects,
            )


async def _compare_clocks(broker: BrokerParts) -> None:
    bulk = UnmergedBulk(lambda: sum(broker.metrics.wal_flush_seconds.counts))

    def looked() -> None:
        broker.follow_level(broker.cluster.level)
        bulk.look(clocks.unseen_seconds(COMPACTOR))

    clocks = broker.add(
        clock_guard(
            broker.settings,
            broker.metadata,
            broker.objects,
            broker.runtime,
            broker.machine.name,
            reads=broker.reads,
            writes=lambda: broker.writes,
            on_looked=looked,
        )
    )
    broker.metrics.clock_doubted.follow(lambda: float(clocks.doubt() is not None))
    clocks.start()


async def _start_log(broker: BrokerParts) -> None:
    log = broker.add(
        Log(
            broker.metadata,
            broker.objects,
            broker.runtime,
            broker.cluster.domains,
            log_settings(broker.settings),
            broker.observed,
            broker.unfolding,
            broker.may_delete,
            broker.need(ClockGuard),
            broker.entries,
            broker.looks_after,
        )
    )
    broker.metrics.lost_objects.follow(lambda: float(log.lost.count))
    await log.start()


async def _start_topics(broker: BrokerParts) -> None:
    options = broker.settings.topics
    await broker.add(Topics(broker.metadata, broker.runtime, broker.need(Log), options)).start()


async def _start_retention(broker: BrokerParts) -> None:
    retention = retention_loop(
        broker.settings,
        broker.metadata,
        broker.runtime,
        broker.cluster.domains,
        broker.need(Log),
        broker.observed,
        broker.need(ClockGuard),
        broker.looks_after,
    )
    broker.add(retention).start()


async def _start_foreign_audit(broker: BrokerParts) -> None:
    audit = foreign_audit_loop(broker.settings, broker.metadata, broker.runtime, broker.entries)
    broker.metrics.foreign_missing.follow(lambda: float(audit.missing))
    broker.add(audit).start()


async def _register(broker: BrokerParts) -> None:
    membership = Membership(
        broker.metadata,
        broker.runtime,
        broker_registration(
            broker.settings, broker.machine, broker.addresses, broker.http_address, broker.reads
        ),
        session_ttl=broker.settings.broker.session_ttl,
        is_dead=broker.machine.knows_dead,
    )
    await broker.add(membership).start()


async def _keep_level(broker: BrokerParts) -> None:
    """Registered, so that nobody raises the level above what this broker reads: now it is asked once more."""
    if not broker.keeps_level:
        return
    clocks = broker.need(ClockGuard)
    keeper = broker.add(
        LevelKeeper(
            broker.metadata,
            broker.runtime,
            reads=broker.reads,
            look_seconds=clocks.beat_seconds,
            wait_seconds=broker.settings.cluster.level_wait,
            may_raise=lambda: broker.looks_after(keys.CLUSTER_DOMAIN),
            now_ms=clocks.now_ms,
            followed=broker.follow_level,
        )
    )
    await keeper.look()
    keeper.start()


async def _start_groups(broker: BrokerParts) -> None:
    groups = broker.add(
        Groups(
            broker.metadata,
            broker.runtime,
            broker.need(Topics),
            broker.need(Membership),
            broker.cluster.domains,
            groups_settings(broker.settings),
            is_dead=broker.machine.knows_gone,
            observer=MeasuredGroups(broker.metrics),
            expiry=broker.need(ClockGuard),
            admission=GroupGate(broker.metadata, broker.runtime, broker.cluster.domains),
        )
    )
    measure_groups(broker.metrics, groups)
    await groups.start()


async def _start_group_lag(broker: BrokerParts) -> None:
    expiry_ms = log_settings(broker.settings).producer_expiry_ms
    lag = GroupLag(
        CoordinatedGroups(broker.need(Groups), broker.need(Topics)),
        StreamStore(broker.metadata, broker.cluster.domains, expiry_ms),
        broker.runtime,
        broker.metrics,
        broker.settings.metrics.groups,
        broker.settings.metrics.lag_interval,
    )
    broker.add(lag).start()


async def _start_security(broker: BrokerParts) -> None:
    is_there = known_resources(broker.need(Topics), broker.need(Groups))
    await broker.need(BrokerSecurity).start(is_there)


STARTS: Final[tuple[Callable[[BrokerParts], Awaitable[None]], ...]] = (
    _open_cluster,
    _compare_clocks,
    _start_log,
    _start_topics,
    _start_retention,
    _start_foreign_audit,
    _register,
    _keep_level,
    _start_groups,
    _start_group_lag,
    _start_security,
)
"""In this order, once the broker listens. Clients are served after the last."""


def make_dispatcher(broker: BrokerParts) -> Dispatcher | SaslGate:
    """The dispatcher that answers clients, of parts that have all started."""
    log, security = broker.need(Log), broker.need(BrokerSecurity)
    links = StoredLinks(broker.metadata, broker.runtime, log)
    passes_on: ProduceForwarder | None = None
    if broker.upstream is not None:
        limits = forwarding_limits(broker.settings)
        passes_on = forwarder(broker.upstream, links, broker.runtime, limits, broker.metrics)
        if passes_on is not None:
            broker.add(passes_on)
    services = Services(
        log=log,
        topics=broker.need(Topics),
        membership=broker.need(Membership),
        cluster=broker.cluster,
        runtime=broker.runtime,
        settings=api_settings(broker.settings),
        groups=broker.need(Groups),
        users=security.users,
        authorization=security.authorization,
        quotas=security.quotas,
        throttle=security.throttle,
        throttled=broker.metrics.throttle_seconds.observe,
        unfolding=broker.unfolding,
        traffic=broker.traffic,
        errors=broker.errors,
        other_owner=passes_on,
        linked=links,
    )
    return security.guarded(Dispatcher(services, observer=MeasuredRequests(broker.metrics)))


STOPS: Final[Mapping[str, type[Part]]] = {
    "forwarding": ProduceForwarder,
    "lag of groups": GroupLag,
    "groups": Groups,
    "security": BrokerSecurity,
    "retention": RetentionLoop,
    "audit of foreign segments": ForeignAuditLoop,
    "topics": Topics,
    "log": Log,
    "membership": Membership,
    "level": LevelKeeper,
    "backups": BackupLoop,
    "tally": TallyKeeper,
    "clocks": ClockGuard,
    "http": HttpServer,
    "http's files": HttpSecurity,
}
"""Not quite the start backwards: a broker stays registered until its log has flushed, and says over HTTP that
it is draining until all else has stopped. The server stops before them; the stores are closed after them."""
