"""What a compactor shows its operators over HTTP: is it alive, does it work, and its numbers."""

from __future__ import annotations

from importlib.metadata import version
from socket import gethostname

from dray.cluster import ClockGuard, ProcessDescription
from dray.compaction.summary import CompactionObserver, CycleSummary
from dray.config.kinds import Address
from dray.daemon.compactor_cycles import CycleHealth
from dray.daemon.health_server import HealthServer
from dray.daemon.instrumented_stores import measured
from dray.daemon.parts import clock_doubt, store_checks
from dray.daemon.stores import Stores
from dray.runtime import Runtime
from dray.server import Health
from dray.telemetry import ProcessMetrics


class _HealthObserver(CompactionObserver):
    """Why the collectors of the last cycle did not delete all that they would have."""

    held: str | None = None

    def finished(self, summary: CycleSummary) -> None:
        if summary.collected:
            self.held = summary.held or summary.braked


class CompactorHttp(HealthServer):
    """Serves from the very start, so that a compactor whose Spark is still starting is seen to be alive."""

    def __init__(self, stores: Stores, runtime: Runtime, metrics: ProcessMetrics) -> None:
        self.stores = measured(stores, metrics, runtime)
        """The stores, measured."""
        metrics.follow(runtime.background)
        metrics.built(version("dray"), "compactor")
        self.cycles: CycleHealth | None = None
        """How its cycles go; None until Spark is warm."""
        self.collection = _HealthObserver()
        """An observer that the compactor reports its cycles to."""
        self.clocks: ClockGuard | None = None
        health = Health(
            {"working": self._check_working, **store_checks(self.stores.metadata, self.stores.objects)},
            metrics,
            runtime,
            notes={"collection": lambda: self.collection.held, "clock": lambda: clock_doubt(self.clocks)},
        )
        metrics.clock_doubted.follow(lambda: float(clock_doubt(self.clocks) is not None))
        super().__init__(health, runtime, "compaction.http")

    def description(self) -> ProcessDescription:
        """The description of this process for others. If it listens on every address, the machine's name is
        given."""
        http = None
        if self.is_started:
            host, port = self.address
            http = str(Address(gethostname() if host in ("0.0.0.0", "::") else host, port))
        return ProcessDescription("compactor", version("dray"), http)

    async def _check_working(self) -> None:
        if self.cycles is None:
            raise RuntimeError("the compactor is still starting")
        fault = self.cycles.fault()
        if fault is not None:
            raise RuntimeError(fault)
