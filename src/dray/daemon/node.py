"""One broker, put together from its rooms, and its life: start, serve, stop.

A node is given its stores, its clock and its settings; it opens nothing by itself but its sockets. So
the same class is the broker of `drayd`, of the tests, and of a simulation with many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from importlib.metadata import version
from typing import Any

import structlog

from dray.api.dispatcher import Dispatcher
from dray.api.shared import Services
from dray.api.shared.sasl_gate import SaslGate
from dray.cluster import (
    AUTOMATIC,
    BucketGuard,
    ClockGuard,
    Membership,
    claim_bucket,
    open_cluster,
)
from dray.compaction.bucket_survey import survey_bucket
from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.entrance import Entrance
from dray.daemon.group_lag import CoordinatedGroups, GroupLag
from dray.daemon.http_security import HttpSecurity
from dray.daemon.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemon.linked_topics import StoredLinks, forwarder, forwarding_limits
from dray.daemon.metrics import MeasuredGroups, MeasuredLog, MeasuredRequests, measure_audit, measure_groups
from dray.daemon.parts import (
    broker_registration,
    clock_doubt,
    clock_guard,
    foreign_audit_loop,
    retention_loop,
    store_checks,
)
from dray.daemon.process import MachineIdentity
from dray.daemon.security import BrokerSecurity, warn_of_open_listeners
from dray.daemon.settings import (
    LISTENER,
    api_settings,
    groups_settings,
    log_settings,
    server_settings,
    topics_options,
)
from dray.daemon.upstream_clusters import UpstreamClusters
from dray.groups.coordinator import Groups
from dray.log import Log
from dray.log.foreign_segments import ForeignStore
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataStore
from dray.objects import ObjectStore
from dray.records import uninitialised
from dray.runtime import Allowance, CloseConnection, Runtime
from dray.server import Answer, Connection, Health, HttpServer, Server
from dray.server.health import OPEN_PATHS
from dray.telemetry import Metrics
from dray.topics import Topics
from dray.topics.foreign_audit import ForeignAuditLoop
from dray.topics.retention import RetentionLoop
from dray.upstream.forwarding import ProduceForwarder

_log = structlog.get_logger(__name__)

LEAST_STOP_SECONDS = 5.0


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
        foreign: Mapping[str, ForeignStore] | None = None,
        upstream: UpstreamClusters | None = None,
    ) -> None:
        """`foreign`: stores of other systems, for topics that were attached. `upstream`: clusters that still
        own topics."""
        self._foreign = foreign or {}
        self._upstream = upstream
        self.metrics = metrics or Metrics()
        self._settings = settings
        self._runtime = runtime
        self._machine = machine or MachineIdentity()
        self._metadata = InstrumentedMetadataStore(metadata_store, self.metrics, runtime)
        self._objects = InstrumentedObjectStore(object_store, self.metrics, runtime)
        self.metrics.follow(runtime.background)
        self.metrics.built(version("dray"), "broker")
        self._serving = asyncio.Event()
        self._entrance: Entrance | None = Entrance()  # None once all that waited at it are in
        self._dispatcher: Dispatcher | SaslGate | None = None
        self.health = Health(
            {"serving": self._check_serving, **store_checks(self._metadata, self._objects)},
            self.metrics,
            runtime,
            notes={"collection": lambda: self._observed.held, "clock": lambda: clock_doubt(self._clocks)},
            excuses={"objects": self._goes_on_without_objects},
        )
        self._observed = MeasuredLog(self.metrics)
        self._http_security = HttpSecurity(settings, runtime)
        self._http = (
            None
            if settings.broker.http is None
            else HttpServer(
                self.health.routes(),
                runtime,
                self._http_security.settings_at(settings.broker.http),
                OPEN_PATHS,
            )
        )
        self._security = BrokerSecurity(settings, runtime, self._metadata)
        if self._security.authorization is not None:
            measure_audit(self.metrics, self._security.authorization.audit)
        self._server = Server(
            self._dispatch,
            runtime,
            server_settings(settings, self._security.certificates, self._security.identifications),
            self.metrics,
            allocate=uninitialised,
            newcomer_wait=self._security.newcomer_wait,
        )
        self.reads_carried = True  # False stands for an older build, in simulations
        self._clocks: ClockGuard | None = None
        self._log: Log | None = None
        self._topics: Topics | None = None
        self._retention: RetentionLoop | None = None
        self._foreign_audit: ForeignAuditLoop | None = None
        self._membership: Membership | None = None
        self._groups: Groups | None = None
        self._group_lag: GroupLag | None = None
        self._forwarder: ProduceForwarder | None = None
        self._traffic = self.metrics.topic_traffic(settings.metrics.topics, runtime.monotonic)

    @property
    def is_carrying(self) -> bool:
        """Do small appends ride in their commit now?"""
        return self._log is not None and self._log.is_carrying

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
        """Serving, registered and ready when this returns. Raises if something is taken (an address, a broker
        id, the bucket of another cluster) or out of reach; `stop` then clears up."""
        if self._entrance is not None:
            await self._entrance.close()
        await self._listen()
        warn_of_open_listeners(self._settings)
        cluster = await open_cluster(
            self._metadata,
            self._runtime,
            self._settings.domains,
            self._settings.cluster.domains is not None,
        )
        await claim_bucket(self._objects, cluster, lambda: self._look_around(cluster.domains))
        unfolding = Allowance(2 * self._settings.limits.decompressed_bytes)
        clocks = self._clocks = clock_guard(
            self._settings,
            self._metadata,
            self._objects,
            self._runtime,
            self._machine.name,
            carries=self.reads_carried,
            on_looked=self._carry,
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
            self._foreign,
        )
        await self._log.start()
        self._topics = Topics(self._metadata, self._runtime, self._log, topics_options(self._settings))
        await self._topics.start()
        self._retention = retention_loop(
            self._settings, self._metadata, self._runtime, cluster.domains, self._log, self._observed, clocks
        )
        self._retention.start()
        audit = foreign_audit_loop(self._settings, self._metadata, self._runtime, self._log)
        self.metrics.foreign_missing.follow(lambda: float(audit.missing))
        self._foreign_audit = audit
        audit.start()
        self._membership = Membership(
            self._metadata,
            self._runtime,
            broker_registration(self._settings, self._machine, self._server.addresses, self.http_address),
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
            observer=MeasuredGroups(self.metrics),
            expiry=clocks,
        )
        measure_groups(self.metrics, self._groups)
        await self._groups.start()
        self._group_lag = GroupLag(
            CoordinatedGroups(self._groups, self._topics),
            StreamStore(self._metadata, cluster.domains, log_settings(self._settings).producer_expiry_ms),
            self._runtime,
            self.metrics,
            self._settings.metrics.groups,
            self._settings.metrics.lag_interval,
        )
        self._group_lag.start()
        await self._security.start()
        links = StoredLinks(self._metadata, self._runtime, self._log)
        if self._upstream is not None:
            limits = forwarding_limits(self._settings)
            self._forwarder = forwarder(self._upstream, links, self._runtime, limits, self.metrics)
        dispatcher = Dispatcher(
            Services(
                log=self._log,
                topics=self._topics,
                membership=self._membership,
                cluster=cluster,
                runtime=self._runtime,
                settings=api_settings(self._settings),
                groups=self._groups,
                users=self._security.users,
                authorization=self._security.authorization,
                quotas=self._security.quotas,
                throttle=self._security.throttle,
                throttled=self.metrics.throttle_seconds.observe,
                unfolding=unfolding,
                traffic=self._traffic,
                forwarder=self._forwarder,
                linked=links,
            ),
            observer=MeasuredRequests(self.metrics),
        )
        self._dispatcher = self._security.guarded(dispatcher)
        self._serving.set()
        if self._entrance is not None:
            self._entrance.open()
        _log.info(
            "broker is serving",
            broker=self.broker_id,
            cluster=cluster.cluster_id,
            host=self.address[0],
            port=self.address[1],
            version=version("dray"),
        )

    def _carry(self, is_read_by_all: bool) -> None:
        """Small appends ride in their commit while every process of the cluster can read that."""
        if self._log is not None and self._log.is_carrying is not is_read_by_all:
            self._log.carry(is_read_by_all)

    def _goes_on_without_objects(self) -> str | None:
        """Why this broker is ready though the object store is away: clients that begin have to reach it."""
        if self._log is None or not self._log.bridges_object_store:
            return None
        return "it is away: small appends are carried meanwhile, up to log.carry_backlog"

    async def _look_around(self, domains: int) -> str | None:
        survey = await survey_bucket(self._metadata, domains, self._objects, self._runtime.random)
        return survey.doubt()

    async def _listen(self) -> None:
        """Listen. This is the first step, so that a second broker on the same port fails at once and has
        changed nothing."""
        address = self._settings.broker.listen
        try:
            await self._server.start()
            if self._http is not None and self._settings.broker.http is not None:
                address = self._settings.broker.http
                await self._http.start()
                self._http_security.start()
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
        parts = {
            "forwarding": self._forwarder,
            "lag of groups": self._group_lag,
            "groups": self._groups,
            "security": self._security,
            "retention": self._retention,
            "audit of foreign segments": self._foreign_audit,
            "topics": self._topics,
            "log": self._log,
            "membership": self._membership,
            "clocks": self._clocks,
            "http": self._http,
            "http's files": self._http_security,
        }
        steps += [(name, part.stop) for name, part in parts.items() if part is not None]
        steps += [(f"foreign store {name}", store.objects.close) for name, store in self._foreign.items()]
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

    def _dispatch(self, frame: memoryview, connection: Connection) -> Awaitable[Answer]:
        """Called for every request, so that it is no coroutine of its own once the broker has started."""
        dispatcher = self._dispatcher
        if self._entrance is not None or dispatcher is None:
            return self._enter(frame, connection)
        return dispatcher.dispatch(frame, connection)

    async def _enter(self, frame: memoryview, connection: Connection) -> Answer:
        entrance = self._entrance
        if entrance is not None:
            waited = await entrance.enter()
            if entrance.is_empty and self._dispatcher is not None:
                self._entrance = None
            if waited and connection.ending:
                # The client may have sent the request again elsewhere since. Begun now, this copy could
                # overtake that one.
                raise CloseConnection("the client left while the broker was starting")
        assert self._dispatcher is not None
        return await self._dispatcher.dispatch(frame, connection)

    async def _check_serving(self) -> None:
        if not self._serving.is_set():
            raise RuntimeError("the broker is still starting")
