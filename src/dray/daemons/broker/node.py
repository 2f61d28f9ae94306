"""One broker, put together from its rooms, and its life: start, serve, stop.

A node is given its stores, its clock and its settings; it opens nothing by itself but its sockets. So
the same class is the broker of `drayd`, of the tests, and of a simulation with many of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import structlog

from dray.base.build import build_name
from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.base.telemetry import Metrics
from dray.broker.cluster import AUTOMATIC, ClockGuard, Membership, TallyKeeper
from dray.broker.server import Health, HttpServer, Server
from dray.broker.server.http.health import OPEN_PATHS
from dray.daemons.assembly.http_security import HttpSecurity
from dray.daemons.assembly.metrics import measure_audit, measure_certificates
from dray.daemons.assembly.parts import clock_doubt, store_checks
from dray.daemons.assembly.process import MachineIdentity
from dray.daemons.assembly.settings import server_settings
from dray.daemons.broker.broker_parts import BrokerParts, make_dispatcher
from dray.daemons.broker.entrance import Entrance
from dray.daemons.broker.security import BrokerSecurity, warn_of_open_listeners, warn_of_weak_logins
from dray.daemons.config import Settings
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.kafka.records import uninitialised
from dray.log import Log
from dray.metadata.contract import MetadataStore
from dray.migration.entries.segments import ForeignStore
from dray.objects import ObjectStore

_log = structlog.get_logger(__name__)

LEAST_STOP_SECONDS = 5.0
"""The time that a stop has for all that comes after the answers, out of its grace or beyond a short one."""
_LEAST_STEP_SECONDS = 0.5
_ANSWERS_SHARE = 0.75


class CannotListen(Exception):
    """An address that this machine does not have, or may not use."""

    def __init__(self, address: Address | None, reason: OSError) -> None:
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
        self._settings = settings
        self._runtime = runtime
        self.metrics = metrics or Metrics()
        self.parts = BrokerParts(
            settings,
            runtime,
            metadata_store,
            object_store,
            machine or MachineIdentity(),
            self.metrics,
            foreign or {},
            upstream,
        )
        self.health = self._make_health()
        self._serving = False
        self._entrance = Entrance()
        self._http_security = self.parts.add(HttpSecurity(settings, runtime))
        self._http: HttpServer | None = None
        if settings.broker.http is not None:
            seen = self._http_security.settings_at(settings.broker.http)
            self._http = self.parts.add(HttpServer(self.health.routes(), runtime, seen, OPEN_PATHS))
        security = self.parts.add(BrokerSecurity(settings, runtime, self.parts.metadata))
        measure_certificates(self.metrics, {**security.certificates, "http": self._http_security.certificate})
        if security.authorization is not None:
            measure_audit(self.metrics, security.authorization.audit)
        self._server = Server(
            self._entrance.dispatch,
            runtime,
            server_settings(settings, security.certificates, security.identifications),
            self.metrics,
            allocate=uninitialised,
            newcomer_wait=security.newcomer_wait,
        )

    def _make_health(self) -> Health:
        parts = self.parts

        def lost() -> str | None:
            log = parts.of(Log)
            return None if log is None else log.lost.note()

        def disk() -> str | None:
            log = parts.of(Log)
            return None if log is None else log.held

        def tally() -> str | None:
            keeper = parts.of(TallyKeeper)
            return None if keeper is None else keeper.held()

        self.metrics.appends_held.follow(lambda: float(disk() is not None))
        return Health(
            {"serving": self._check_serving, **store_checks(parts.metadata, parts.objects, self._runtime)},
            self.metrics,
            self._runtime,
            notes={
                "collection": lambda: parts.observed.held,
                "clock": lambda: clock_doubt(parts.of(ClockGuard)),
                "tally": tally,
                "lost": lost,
                "disk": disk,
                "unreadable": parts.errors.unreadable.note,
            },
            excuses={"objects": parts.goes_on_without_objects},
        )

    async def _check_serving(self) -> None:
        if not self._serving:
            raise RuntimeError("the broker is still starting")

    @property
    def is_carrying(self) -> bool:
        return self.parts.is_carrying

    @property
    def address(self) -> tuple[str, int]:
        """The address to which Kafka clients connect, with the real port where 0 was asked for."""
        return self._server.address

    @property
    def http_address(self) -> tuple[str, int] | None:
        return self._http.address if self._http is not None else None

    @property
    def broker_id(self) -> int:
        membership = self.parts.of(Membership)
        return AUTOMATIC if membership is None else membership.me.broker_id

    async def start(self) -> None:
        """Serving, registered and ready when this returns. Raises if something is taken (an address, a broker
        id, the bucket of another cluster) or out of reach; `stop` then clears up."""
        await self._entrance.close()
        await self._listen()
        warn_of_open_listeners(self._settings)
        warn_of_weak_logins(self._settings)
        await self.parts.start()
        dispatcher = make_dispatcher(self.parts)
        self._serving = True
        self._entrance.open(dispatcher)
        _log.info(
            "broker is serving",
            broker=self.broker_id,
            cluster=self.parts.cluster.cluster_id,
            host=self.address[0],
            port=self.address[1],
            version=build_name(),
        )

    async def _listen(self) -> None:
        """Listen. This is the first step, so that a second broker on the same port fails at once and has
        changed nothing."""
        http = self._settings.broker.http
        try:
            await self._server.start()
            if self._http is not None:
                await self._http.start()
                self._http_security.start()
        except OSError as error:
            wanted = self._settings.broker.all_listeners
            failed = (place for name, place in wanted.items() if name not in self._server.addresses)
            raise CannotListen(next(failed, http), error) from error
        self.parts.addresses, self.parts.http_address = self._server.addresses, self.http_address

    def hold_appends(self, why: str | None) -> None:
        """Until None is said."""
        log = self.parts.of(Log)
        if log is not None:
            log.held = why

    async def stop(self) -> None:
        """All of it takes no longer than the grace, though a store hangs. Not ready any more; no new
        connections; answers for what is in flight; then the parts, and the stores. A step that fails or
        hangs is logged, and does not keep the later ones from their work; the first failure is raised at the
        end."""
        self.health.draining = True
        grace = self._settings.broker.shutdown_grace
        began = self._runtime.monotonic()
        answers = max(grace - LEAST_STOP_SECONDS, grace * _ANSWERS_SHARE)
        failures: list[Exception] = []
        await self._stop_part("server", lambda: self._server.stop(answers), grace, failures)
        ends_at = max(began + grace, self._runtime.monotonic() + LEAST_STOP_SECONDS)
        for name, step in self.parts.stops():
            await self._stop_part(name, step, ends_at - self._runtime.monotonic(), failures)
        if failures:
            raise failures[0]
        if self._serving:
            _log.info("broker has stopped", broker=self.broker_id)

    async def _stop_part(
        self,
        name: str,
        step: Callable[[], Coroutine[Any, Any, None]],
        seconds: float,
        failures: list[Exception],
    ) -> None:
        try:
            await asyncio.wait_for(step(), max(seconds, _LEAST_STEP_SECONDS))
        except TimeoutError:
            # A store that hangs, mostly: nothing that was acknowledged is left undone by it.
            _log.error("stopping took too long: what is not acknowledged, clients send again", part=name)
            failures.append(TimeoutError(f"there was no time left for: {name}"))
        except Exception as error:
            _log.exception("stopping failed", part=name)
            failures.append(error)

    def note_held_up(self, seconds: float, frames: list[str]) -> None:
        """The event loop was held up by one turn of it, in which these frames were seen."""
        self.metrics.slow_turns.value += 1
        self.metrics.longest_turn.value = max(self.metrics.longest_turn.value, seconds)
        _log.warning("the event loop was held up", seconds=round(seconds, 3), frames=frames)
