"""One broker, put together from its rooms, and its life: start, serve, stop.

A node is given its stores, its clock and its settings; it opens nothing by itself but its sockets. So
the same class is the broker of `drayd`, of the tests, and of a simulation with many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import structlog

from dray.api.context import ApiSettings, Feature, Services
from dray.api.dispatcher import Dispatcher
from dray.api.errors import RefuseConnection
from dray.cluster import (
    AUTOMATIC,
    AdvertisedListener,
    Broker,
    BucketGuard,
    ClockGuard,
    Membership,
    claim_bucket,
    open_cluster,
)
from dray.compaction.bucket_survey import survey_bucket
from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.groups.classic import ClassicGroupSettings
from dray.groups.consumer import ConsumerGroupSettings
from dray.groups.coordinator import GROUP_STATES, Groups, GroupsObserver, GroupsSettings, LeaseHolder
from dray.log import Collection, Log, LogObserver, LogSettings
from dray.log.deletions import Brake
from dray.log.retention import Retention
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.objects import ObjectMissing, ObjectStore
from dray.objects.clock import read_clock
from dray.protocol import SCHEMAS, ApiKey
from dray.records import uninitialised
from dray.runtime import Allowance, ExpiryClock, Runtime
from dray.server import (
    Answer,
    CloseConnection,
    Connection,
    Health,
    HttpServer,
    HttpSettings,
    Listener,
    Server,
    ServerSettings,
)
from dray.telemetry import ApiMetrics, Metrics
from dray.topics import Topics, TopicsOptions
from dray.topics.live import StoredTopics
from dray.topics.retention import RetentionLoop

_log = structlog.get_logger(__name__)

LISTENER = "PLAINTEXT"
LEAST_STOP_SECONDS = 5.0
GROUP_PROTOCOLS = Feature("group.version", 0, 1, 1)
"""Says that groups of KIP-848 are served: clients ask before they use them."""
PROBE = "dray-probe"  # an object that nobody writes: asking for it shows that the store answers


def _never_known(_process: int) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """Where this process runs, so that a restart here can tell that its predecessor is dead."""

    name: str = ""
    process: int = 0
    is_running: Callable[[int], bool] = _never_known

    def knows_dead(self, broker: Broker) -> bool:
        """Of a namesake: two of us cannot be one process."""
        return self._is_here(broker) and (
            broker.process == self.process or not self.is_running(broker.process)
        )

    def knows_gone(self, holder: LeaseHolder) -> bool:
        """Of whoever holds a lease: this process may run several brokers, and they are no namesakes."""
        return self._is_here(holder) and not self.is_running(holder.process)

    def _is_here(self, other: Broker | LeaseHolder) -> bool:
        return bool(self.name) and other.machine == self.name


class CannotListen(Exception):
    """An address that this machine does not have, or may not use."""

    def __init__(self, address: Address, reason: OSError) -> None:
        super().__init__(f"cannot listen on {address}: {reason.strerror or reason}")


class Node:
    """`start` once, then `stop` once. `stop` also clears up after a start that failed half-way."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        metadata_store: MetadataStore,
        object_store: ObjectStore,
        *,
        machine: MachineIdentity | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.metrics = metrics or Metrics()
        self._settings = settings
        self._runtime = runtime
        self._machine = machine or MachineIdentity()
        self._metadata = InstrumentedMetadataStore(metadata_store, self.metrics, runtime)
        self._objects = InstrumentedObjectStore(object_store, self.metrics, runtime)
        self.metrics.follow(runtime.background)
        self._serving = asyncio.Event()
        self._entrance: asyncio.Lock | None = asyncio.Lock()  # before which clients wait while we start
        self._at_the_entrance = 0
        self._dispatcher: Dispatcher | None = None
        self.health = Health(
            {
                "serving": self._check_serving,
                "metadata": self._check_metadata,
                "objects": self._check_objects,
            },
            self.metrics,
            runtime,
            notes={"collection": lambda: self._observed.held, "clock": self._clock_doubt},
        )
        self._observed = _MeasuredLog(self.metrics)
        self._http = self._make_http_server()
        self._server = Server(
            self._dispatch, runtime, server_settings(settings), self.metrics, allocate=uninitialised
        )
        self._clocks: ClockGuard | None = None
        self._log: Log | None = None
        self._topics: Topics | None = None
        self._retention: RetentionLoop | None = None
        self._membership: Membership | None = None
        self._groups: Groups | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where Kafka clients connect, with the real port where 0 was asked for."""
        return self._server.address

    @property
    def http_address(self) -> tuple[str, int] | None:
        return self._http.address if self._http is not None else None

    @property
    def broker_id(self) -> int:
        return AUTOMATIC if self._membership is None else self._membership.me.broker_id

    async def start(self) -> None:
        """Serving, registered and ready when this returns. What is taken (an address, a broker id, the
        bucket of another cluster) and what is out of reach raises, and leaves the rest to `stop`."""
        if self._entrance is not None:
            await self._entrance.acquire()
        await self._listen()
        cluster = await open_cluster(
            self._metadata,
            self._runtime,
            self._settings.domains,
            self._settings.cluster.domains is not None,
        )
        await claim_bucket(self._objects, cluster, lambda: self._look_around(cluster.domains))
        unfolding = Allowance(2 * self._settings.limits.decompressed_bytes)
        clocks = self._clocks = clock_guard(
            self._settings, self._metadata, self._objects, self._runtime, self._machine.name
        )
        self.metrics.clock_doubted.follow(lambda: float(clocks.doubt() is not None))
        clocks.start()
        self._log = Log(
            self._metadata,
            self._objects,
            self._runtime,
            cluster.domains,
            log_settings(self._settings),
            self._observed,
            unfolding,
            BucketGuard(self._objects, cluster.cluster_id),
            clocks,
        )
        await self._log.start()
        self._topics = Topics(self._metadata, self._runtime, self._log, topics_options(self._settings))
        await self._topics.start()
        self._retention = retention_loop(
            self._settings, self._metadata, self._runtime, cluster.domains, self._log, self._observed, clocks
        )
        self._retention.start()
        self._membership = Membership(
            self._metadata,
            self._runtime,
            self._describe_myself(),
            session_ttl=self._settings.broker.session_ttl,
            is_dead=self._machine.knows_dead,
        )
        await self._membership.start()
        self._groups = Groups(
            self._metadata,
            self._runtime,
            self._topics,
            self._membership,
            cluster.domains,
            groups_settings(self._settings),
            is_dead=self._machine.knows_gone,
            observer=_MeasuredGroups(self.metrics),
            expiry=clocks,
        )
        _measure_groups(self.metrics, self._groups)
        await self._groups.start()
        self._dispatcher = Dispatcher(
            Services(
                log=self._log,
                topics=self._topics,
                membership=self._membership,
                cluster=cluster,
                runtime=self._runtime,
                settings=api_settings(self._settings),
                groups=self._groups,
                unfolding=unfolding,
            ),
            observer=_MeasuredRequests(self.metrics),
        )
        self._serving.set()
        if self._entrance is not None:
            self._entrance.release()
        _log.info(
            "broker is serving",
            broker=self.broker_id,
            cluster=cluster.cluster_id,
            host=self.address[0],
            port=self.address[1],
            version=version("dray"),
        )

    async def _look_around(self, domains: int) -> str | None:
        survey = await survey_bucket(self._metadata, domains, self._objects, self._runtime.random)
        return survey.doubt()

    async def _listen(self) -> None:
        """The first step: a second broker on the same port is told at once, and has done nothing."""
        address = self._settings.broker.listen
        try:
            await self._server.start()
            if self._http is not None and self._settings.broker.http is not None:
                address = self._settings.broker.http
                await self._http.start()
        except OSError as error:
            wanted = {LISTENER: address, **self._settings.broker.listeners}
            failed = next((wanted[name] for name in wanted if name not in self._server.addresses), address)
            raise CannotListen(failed, error) from error

    async def stop(self) -> None:
        """Not ready any more; no new connections; answers for what is in flight; the groups given up; flush
        and settle of the log; end of the registration; close of the stores. A step that fails or hangs (a
        store that no longer answers) is logged, and does not keep the later ones from their work; the first
        failure is raised at the end."""
        self.health.draining = True
        grace = self._settings.broker.shutdown_grace
        steps: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = [
            ("server", lambda: self._server.stop(grace)),
        ]
        if self._groups is not None:
            steps.append(("groups", self._groups.stop))
        if self._retention is not None:
            steps.append(("retention", self._retention.stop))
        if self._topics is not None:
            steps.append(("topics", self._topics.stop))
        if self._log is not None:
            steps.append(("log", self._log.stop))
        if self._membership is not None:
            steps.append(("membership", self._membership.stop))
        if self._clocks is not None:
            steps.append(("clocks", self._clocks.stop))
        if self._http is not None:
            steps.append(("http", self._http.stop))
        steps += [("object store", self._objects.close), ("metadata store", self._metadata.close)]
        failures: list[Exception] = []
        for name, step in steps:
            try:
                # The server keeps to the grace by itself, twice at most: once for answers, once for aborts.
                await asyncio.wait_for(step(), 2 * grace + LEAST_STOP_SECONDS)
            except Exception as error:
                _log.exception("stopping failed", part=name)
                failures.append(error)
        if failures:
            raise failures[0]
        if self._serving.is_set():
            _log.info("broker has stopped", broker=self.broker_id)

    def note_held_up(self, seconds: float, frames: list[str]) -> None:
        """The event loop was held up by one turn of it, in which these frames were seen."""
        self.metrics.slow_turns.value += 1
        self.metrics.longest_turn.value = max(self.metrics.longest_turn.value, seconds)
        _log.warning("the event loop was held up", seconds=round(seconds, 3), frames=frames)

    # --- what the sockets lead to

    async def _dispatch(self, frame: memoryview, connection: Connection) -> Answer:
        if self._entrance is not None:
            waited = await self._enter(self._entrance)
            if waited and connection.ending:
                # It has left, and asked again elsewhere perhaps: begun now, this would overtake that.
                raise CloseConnection("the client left while the broker was starting")
        assert self._dispatcher is not None
        try:
            return await self._dispatcher.dispatch(frame, connection)
        except RefuseConnection as error:
            raise CloseConnection(str(error)) from error

    async def _enter(self, entrance: asyncio.Lock) -> bool:
        """Clients that come while we start wait for the broker to know its own id. Then they come in one by
        one: a request that arrives at that very moment must not overtake those that wait, since the
        requests of a connection are begun in the order they came. True where one had to wait."""
        waits = entrance.locked() or self._at_the_entrance > 0
        self._at_the_entrance += 1
        try:
            async with entrance:
                return waits
        finally:
            self._at_the_entrance -= 1
            if not self._at_the_entrance and self._dispatcher is not None:
                self._entrance = None

    def _make_http_server(self) -> HttpServer | None:
        address = self._settings.broker.http
        if address is None:
            return None
        return HttpServer(self.health.routes(), self._runtime, HttpSettings(address.host, address.port))

    def _describe_myself(self) -> Broker:
        broker = self._settings.broker
        advertised = broker.advertised
        host = broker.listen.host if advertised is None else advertised.host
        port = self.address[1] if advertised is None else advertised.port
        return Broker(
            AUTOMATIC if broker.id is None else broker.id,
            (AdvertisedListener(LISTENER, host, port), *self._further_listeners()),
            zone=broker.zone,
            rack=broker.rack,
            build=version("dray"),
            machine=self._machine.name,
            process=self._machine.process,
        )

    def _further_listeners(self) -> list[AdvertisedListener]:
        broker = self._settings.broker
        found = []
        for name, listen in broker.listeners.items():
            told = broker.advertised_listeners.get(name)
            port = self._server.addresses[name][1]
            found.append(
                AdvertisedListener(name, listen.host, port)
                if told is None
                else AdvertisedListener(name, told.host, told.port)
            )
        return found

    # --- readiness

    async def _check_serving(self) -> None:
        if not self._serving.is_set():
            raise RuntimeError("the broker is still starting")

    def _clock_doubt(self) -> str | None:
        """It serves all the same: only what would expire does not."""
        doubt = None if self._clocks is None else self._clocks.doubt()
        return None if doubt is None else f"nothing expires, since this machine's clock is doubted: {doubt}"

    async def _check_metadata(self) -> None:
        await self._metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)

    async def _check_objects(self) -> None:
        try:
            await self._objects.head(PROBE)
        except ObjectMissing:
            return


class _MeasuredLog(LogObserver):
    """What the log tells, in the broker's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.held: str | None = None
        """Why the last round of collection deleted nothing, or not all."""

    def flushed(self, size: int, seconds: float) -> None:
        self._metrics.wal_flush_bytes.observe(size)
        self._metrics.wal_flush_seconds.observe(seconds)

    def commit_retried(self) -> None:
        self._metrics.commit_retries.value += 1

    def tail_cache(self, size: int) -> None:
        self._metrics.tail_cache_bytes.value = size

    def polling(self, count: int) -> None:
        self._metrics.open_long_polls.value = count

    def fetched(self, seconds: float) -> None:
        self._metrics.fetch_seconds.observe(seconds)

    def collected(self, seen: Collection) -> None:
        self.held = seen.held or seen.braked
        if self.held is not None:
            self._metrics.deletions_held.labels("owner" if seen.held else "brake").value += 1
        if seen.held is None:
            self._metrics.collection_orphans.value = seen.standing + seen.unknown
            self._metrics.collection_pending.value = seen.pending
        self._metrics.collection_resolved.value += seen.orphans
        self._metrics.deleted.labels("wal").value += seen.deleted

    def records_deleted(self, why: str, records: int) -> None:
        self._metrics.deleted.labels(f"records_{why}").value += records


class _MeasuredGroups(GroupsObserver):
    """What the groups tell, in the broker's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def rebalanced(self, kind: str) -> None:
        self._metrics.group_rebalances.labels(kind).value += 1

    def member_expired(self, kind: str) -> None:
        self._metrics.group_members_expired.labels(kind).value += 1

    def committed(self, offsets: int, seconds: float) -> None:
        self._metrics.group_offsets_committed.value += offsets
        self._metrics.group_commit_seconds.observe(seconds)

    def taken(self) -> None:
        self._metrics.groups_taken.value += 1

    def lost(self) -> None:
        self._metrics.groups_lost.value += 1


def _measure_groups(metrics: Metrics, groups: Groups) -> None:
    for kind, state in GROUP_STATES:
        metrics.groups.labels(kind, state).follow(
            lambda kind=kind, state=state: groups.census().get((kind, state), 0)  # type: ignore[misc]
        )


class _MeasuredRequests:
    """What the dispatcher tells of each request, in the broker's metrics. An API has series from its
    first request on."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_key: dict[int, ApiMetrics] = {}

    def __call__(self, api_key: int, seconds: float, ended_well: bool) -> None:
        api = self._by_key.get(api_key)
        if api is None:
            api = self._by_key[api_key] = self._metrics.api(SCHEMAS[api_key].name)
        api.finished(seconds, failed=not ended_well)
        if api_key == ApiKey.PRODUCE:
            self._metrics.produce_seconds.observe(seconds)


# --- from the one config to what each room takes


def server_settings(settings: Settings) -> ServerSettings:
    listen = settings.broker.listen
    return ServerSettings(
        listeners=(
            Listener(LISTENER, listen.host, listen.port),
            *(
                Listener(name, address.host, address.port)
                for name, address in settings.broker.listeners.items()
            ),
        ),
        max_connections=settings.limits.connections,
        max_connections_per_address=settings.limits.connections_per_address,
        max_frame_bytes=settings.limits.frame_bytes,
        memory_budget_bytes=settings.limits.buffer_bytes,
        bulk_kinds=frozenset({int(ApiKey.PRODUCE)}),
        answer_budget_bytes=settings.answer_bytes,
        max_in_flight=settings.limits.requests_in_flight,
        idle_seconds=settings.limits.idle_timeout,
    )


def api_settings(settings: Settings) -> ApiSettings:
    return ApiSettings(
        auto_create_topics=settings.topics.auto_create,
        max_decompressed_bytes=settings.limits.decompressed_bytes,
        max_request_decompressed_bytes=settings.limits.request_decompressed_bytes,
        fetch_max_bytes=settings.limits.fetch_bytes,
        enforce_owner=settings.routing.enforce_owner,
        log_dir=settings.objects_url,
        broker_configs=broker_configs(settings),
        features=(GROUP_PROTOCOLS,),
    )


def broker_configs(settings: Settings) -> dict[str, str]:
    """What a Kafka client sees when it describes the broker: our settings under Kafka's names. The broker's
    defaults for topics are shown with them, from the topics' own table."""
    limits, topics, groups = settings.limits, settings.topics, settings.groups
    consumer = groups_settings(settings).consumer
    shown = {
        "auto.create.topics.enable": str(topics.auto_create).lower(),
        "broker.session.timeout.ms": str(_ms(settings.broker.session_ttl)),
        "connections.max.idle.ms": str(_ms(limits.idle_timeout)),
        "delete.topic.enable": "true",
        "fetch.max.bytes": str(limits.fetch_bytes),
        "group.consumer.assignors": groups.consumer_assignors,
        "group.consumer.heartbeat.interval.ms": str(_ms(groups.consumer_heartbeat_interval)),
        "group.consumer.max.heartbeat.interval.ms": str(consumer.heartbeat_interval_maximum_ms),
        "group.consumer.max.session.timeout.ms": str(consumer.session_timeout_maximum_ms),
        "group.consumer.max.size": str(groups.max_size),
        "group.consumer.min.heartbeat.interval.ms": str(consumer.heartbeat_interval_minimum_ms),
        "group.consumer.min.session.timeout.ms": str(consumer.session_timeout_minimum_ms),
        "group.consumer.session.timeout.ms": str(_ms(groups.consumer_session_timeout)),
        "group.initial.rebalance.delay.ms": str(_ms(groups.initial_rebalance_delay)),
        "group.max.session.timeout.ms": str(_ms(groups.max_session_timeout)),
        "group.max.size": str(groups.max_size),
        "group.min.session.timeout.ms": str(_ms(groups.min_session_timeout)),
        "listeners": _listener_list(settings.broker.listen, settings.broker.listeners),
        "log.cleaner.enable": "false",
        "max.connections": str(limits.connections),
        "max.connections.per.ip": str(limits.connections_per_address or limits.connections),
        "num.partitions": str(topics.partitions),
        "offset.metadata.max.bytes": str(groups.offset_metadata_bytes),
        "offsets.retention.check.interval.ms": str(_ms(groups.offset_check_interval)),
        "offsets.retention.minutes": str(round(groups.offset_retention / 60)),
        "process.roles": "broker",
        "producer.id.expiration.ms": str(_ms(settings.log.producer_expiry)),
        "socket.request.max.bytes": str(limits.frame_bytes),
    }
    if settings.broker.rack is not None:
        shown["broker.rack"] = settings.broker.rack
    if settings.broker.advertised is not None:
        shown["advertised.listeners"] = _listener_list(
            settings.broker.advertised,
            {**settings.broker.listeners, **settings.broker.advertised_listeners},
        )
    return shown


def _listener_list(first: Address, further: Mapping[str, Address]) -> str:
    return ",".join([f"{LISTENER}://{first}", *(f"{name}://{address}" for name, address in further.items())])


def log_settings(settings: Settings) -> LogSettings:
    log = settings.log
    return LogSettings(
        zone=settings.broker.zone,
        linger_seconds=settings.flush_linger,
        max_object_bytes=log.object_bytes,
        uploads_in_flight=log.uploads_in_flight,
        tail_cache_bytes=settings.tail_cache_bytes,
        segment_cache_bytes=log.segment_cache_bytes,
        index_cache_entries=log.index_cache_entries,
        parquet_cache_bytes=log.compacted_cache_bytes,
        parquet_footer_cache_bytes=log.compacted_footer_bytes,
        parquet_groups_ahead=log.compacted_read_ahead,
        cache_idle_seconds=log.cache_idle,
        bounds_seconds=log.deleted_within,
        producer_expiry_ms=round(log.producer_expiry * 1000),
        orphan_seconds=log.orphan_ttl,
        grace_seconds=log.collect_grace,
        collect_seconds=log.collect_interval,
        audit_every_rounds=max(1, round(log.audit_interval / log.collect_interval)),
        brake=Brake(log.collect_percent / 100),
        job_seconds=log.job_ttl,
    )


def clock_guard(
    settings: Settings, store: MetadataStore, objects: ObjectStore, runtime: Runtime, machine: str
) -> ClockGuard:
    """Containers share the clock of their machine, whose boot id is the first part of the name. Local files,
    and memory, have its times too."""
    has_clock = not settings.objects_url.startswith(("file:", "memory:"))
    return ClockGuard(
        store,
        runtime,
        machine=machine.partition("/")[0],
        tolerance=settings.cluster.clock_tolerance,
        read_store_clock=(lambda: read_clock(objects, runtime)) if has_clock else None,
    )


def retention_loop(
    settings: Settings,
    store: MetadataStore,
    runtime: Runtime,
    domains: int,
    log: Log,
    observer: LogObserver,
    expiry: ExpiryClock,
) -> RetentionLoop:
    """In every broker: retention must not depend on a compactor. The log's caches let go of what it drops."""
    knobs = log_settings(settings)
    streams = StreamStore(store, domains, knobs.producer_expiry_ms)
    return RetentionLoop(
        Retention(
            streams, runtime, knobs, log.start_raised, on_deleted=observer.records_deleted, expiry=expiry
        ),
        StoredTopics(store, settings.topics.defaults),
        runtime,
        settings.log.retention_interval,
    )


def groups_settings(settings: Settings) -> GroupsSettings:
    groups = settings.groups
    session, heartbeat = _ms(groups.consumer_session_timeout), _ms(groups.consumer_heartbeat_interval)
    return GroupsSettings(
        classic=ClassicGroupSettings(
            session_timeout_minimum_ms=_ms(groups.min_session_timeout),
            session_timeout_maximum_ms=_ms(groups.max_session_timeout),
            initial_rebalance_delay_ms=_ms(groups.initial_rebalance_delay),
            largest_group=groups.max_size,
        ),
        consumer=ConsumerGroupSettings(
            session_timeout_ms=session,
            session_timeout_minimum_ms=min(session, 45_000),
            session_timeout_maximum_ms=max(session, 60_000),
            heartbeat_interval_ms=heartbeat,
            heartbeat_interval_minimum_ms=min(heartbeat, 5_000),
            heartbeat_interval_maximum_ms=max(heartbeat, 15_000),
            largest_group=groups.max_size,
            assignors=tuple(groups.consumer_assignors.split(",")),
        ),
        session_ttl=settings.broker.session_ttl,
        largest_metadata=groups.offset_metadata_bytes,
        offset_retention_ms=_ms(groups.offset_retention),
        sweep_interval=groups.offset_check_interval,
        memory_groups=groups.memory_groups,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def topics_options(settings: Settings) -> TopicsOptions:
    return TopicsOptions(
        default_partitions=settings.topics.partitions,
        max_partitions=settings.topics.max_partitions,
        defaults=dict(settings.topics.defaults),
    )
