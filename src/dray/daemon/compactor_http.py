"""What a compactor shows its operators over HTTP: is it alive, does it work, and its numbers."""

from __future__ import annotations

from importlib.metadata import version
from socket import gethostname

from dray.cluster import ClockGuard, ProcessDescription
from dray.compaction.summary import CompactionObserver, CycleSummary
from dray.config.kinds import Address
from dray.daemon.compactor_cycles import CycleHealth
from dray.daemon.failures import Failure
from dray.daemon.http_security import HttpSecurity
from dray.daemon.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemon.parts import clock_doubt, store_checks
from dray.daemon.store_settings import http_settings
from dray.daemon.stores import Stores
from dray.runtime import Runtime
from dray.server import AddressInUse, Health, HttpServer
from dray.server.health import OPEN_PATHS
from dray.telemetry import ProcessMetrics


class _HealthObserver(CompactionObserver):
    """Why the collectors of the last cycle did not delete all that they would have."""

    held: str | None = None

    def finished(self, summary: CycleSummary) -> None:
        if summary.collected:
            self.held = summary.held or summary.braked


class CompactorHttp:
    """Serves from the very start, so that a compactor whose Spark is still starting is seen to be alive."""

    def __init__(self, stores: Stores, runtime: Runtime, metrics: ProcessMetrics) -> None:
        self.stores = Stores(
            InstrumentedMetadataStore(stores.metadata, metrics, runtime),
            InstrumentedObjectStore(stores.objects, metrics, runtime),
        )
        """The stores, measured."""
        metrics.follow(runtime.background)
        metrics.built(version("dray"), "compactor")
        self.cycles: CycleHealth | None = None
        """How its cycles go; None until Spark is warm."""
        self.collection = _HealthObserver()
        """An observer that the compactor reports its cycles to."""
        self.clocks: ClockGuard | None = None
        self._runtime = runtime
        self._health = Health(
            {"working": self._check_working, **store_checks(self.stores.metadata, self.stores.objects)},
            metrics,
            runtime,
            notes={"collection": lambda: self.collection.held, "clock": lambda: clock_doubt(self.clocks)},
        )
        metrics.clock_doubted.follow(lambda: float(clock_doubt(self.clocks) is not None))
        self._server: HttpServer | None = None
        self._security: HttpSecurity | None = None

    @property
    def address(self) -> tuple[str, int]:
        if self._server is None:
            raise RuntimeError("it has not been started")
        return self._server.address

    def description(self) -> ProcessDescription:
        """The description of this process for others. If it listens on every address, the machine's name is
        given."""
        http = None
        if self._server is not None:
            host, port = self._server.address
            http = str(Address(gethostname() if host in ("0.0.0.0", "::") else host, port))
        return ProcessDescription("compactor", version("dray"), http)

    async def start(self, address: Address, security: HttpSecurity | None = None) -> None:
        """Without `security`, all may read everything."""
        settings = http_settings(address) if security is None else security.settings_at(address)
        server = HttpServer(self._health.routes(), self._runtime, settings, OPEN_PATHS)
        try:
            await server.start()
        except AddressInUse as error:
            raise Failure(f"{error}: stop what listens there, or choose another compaction.http") from error
        except OSError as error:
            raise Failure(
                f"compaction.http: cannot listen on {address}: {error.strerror or error}"
            ) from error
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
        if self.cycles is None:
            raise RuntimeError("the compactor is still starting")
        fault = self.cycles.fault()
        if fault is not None:
            raise RuntimeError(fault)
