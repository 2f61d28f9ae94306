"""What a migrator shows its operators over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from dray.daemon.health_server import HealthServer
from dray.daemon.parts import store_checks
from dray.daemon.stores import Stores
from dray.runtime import Runtime
from dray.server import Health
from dray.telemetry import ProcessMetrics


def migrator_http(
    stores: Stores, runtime: Runtime, metrics: ProcessMetrics, fault: Callable[[], str | None]
) -> HealthServer:
    metrics.follow(runtime.background)
    metrics.built(version("dray"), "migrator")

    async def check_working() -> None:
        reason = fault()
        if reason is not None:
            raise RuntimeError(reason)

    checks = {"working": check_working, **store_checks(stores.metadata, stores.objects)}
    return HealthServer(Health(checks, metrics, runtime), runtime, "upstream.http")
