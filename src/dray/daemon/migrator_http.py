"""What a migrator shows its operators over HTTP: is it alive, does it work, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from dray.config.kinds import Address
from dray.daemon.failures import Failure
from dray.daemon.http_security import HttpSecurity
from dray.daemon.parts import store_checks
from dray.daemon.store_settings import http_settings
from dray.daemon.stores import Stores
from dray.migration.live_migration import LiveSeen
from dray.migration.record import MigrationState
from dray.runtime import Runtime
from dray.server import AddressInUse, Health, HttpServer
from dray.server.health import OPEN_PATHS
from dray.telemetry import ProcessMetrics

STATES: Final = (MigrationState.MIRRORING, MigrationState.PENDING, MigrationState.SWITCHED)


@dataclass(frozen=True, slots=True)
class TopicLag:
    lag: int
    """Records that the source has and the mirror has not brought yet."""
    stopped: int
    seen: LiveSeen


class MigratorMetrics:
    """`topics`: how many topics, those furthest behind, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, topics: int) -> None:
        self._topics = topics
        make = metrics.instruments
        self._states = make.gauges("dray_migration_topics", "Linked topics, by their state", "state")
        self._lag = make.gauge("dray_mirror_lag_records", "Records of all topics that are not mirrored yet")
        self._stopped = make.gauge("dray_mirror_stopped_partitions", "Partitions whose mirror cannot go on")
        self._groups = make.gauge("dray_migration_waiting_groups", "Groups of switched topics at the source")
        self._stragglers = make.gauge(
            "dray_migration_straggler_offsets", "Offsets at sources behind the boundaries of their topics"
        )
        self._topic_lag = make.gauges(
            "dray_mirror_topic_lag_records", "The same, of the topics furthest behind", "topic"
        )
        self._topic_state = make.gauges(
            "dray_migration_topic_state",
            "1, of the topics furthest behind, with their state",
            "topic",
            "state",
        )

    def show(self, states: Mapping[str, str], worked: Mapping[str, TopicLag]) -> None:
        """`states`: of all topics that are linked; `worked`: of those that this process works on."""
        for state in STATES:
            self._states.labels(state.value).value = sum(each == state.value for each in states.values())
        self._lag.value = sum(each.lag for each in worked.values())
        self._stopped.value = sum(each.stopped for each in worked.values())
        self._stragglers.value = sum(each.seen.stragglers for each in worked.values())
        self._groups.value = sum(
            each.seen.groups for topic, each in worked.items() if states.get(topic) == "switched"
        )
        shown = [
            topic for topic in sorted(worked, key=lambda name: (-worked[name].lag, name)) if topic in states
        ]
        shown = shown[: self._topics]
        self._topic_lag.keep_only((topic,) for topic in shown)
        self._topic_state.keep_only((topic, states[topic]) for topic in shown)
        for topic in shown:
            self._topic_lag.labels(topic).value = worked[topic].lag
            self._topic_state.labels(topic, states[topic]).value = 1


class MigratorHttp:
    def __init__(
        self, stores: Stores, runtime: Runtime, metrics: ProcessMetrics, fault: Callable[[], str | None]
    ) -> None:
        metrics.follow(runtime.background)
        metrics.built(version("dray"), "migrator")
        self._runtime = runtime
        self._fault = fault
        self._health = Health(
            {"working": self._check_working, **store_checks(stores.metadata, stores.objects)},
            metrics,
            runtime,
        )
        self._server: HttpServer | None = None
        self._security: HttpSecurity | None = None

    async def start(self, address: Address, security: HttpSecurity | None = None) -> None:
        """Without `security`, all may read everything."""
        settings = http_settings(address) if security is None else security.settings_at(address)
        server = HttpServer(self._health.routes(), self._runtime, settings, OPEN_PATHS)
        try:
            await server.start()
        except AddressInUse as error:
            raise Failure(f"{error}: stop what listens there, or choose another upstream.http") from error
        except OSError as error:
            raise Failure(f"upstream.http: cannot listen on {address}: {error.strerror or error}") from error
        self._server = server
        self._security = security
        if security is not None:
            security.start()

    async def stop(self) -> None:
        if self._security is not None:
            await self._security.stop()
        if self._server is not None:
            await self._server.stop()

    async def _check_working(self) -> None:
        fault = self._fault()
        if fault is not None:
            raise RuntimeError(fault)
