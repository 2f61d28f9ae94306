"""The HTTP server of a process that is no broker: is it alive, does it work, and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dray.base.build import build_name
from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.base.telemetry import ProcessMetrics
from dray.broker.server import AddressInUse, Health, HttpServer
from dray.broker.server.http.health import OPEN_PATHS, Check, Note
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.http_security import HttpSecurity, http_settings
from dray.daemons.assembly.instrumented_stores import MeasuredStores
from dray.daemons.assembly.metrics import measure_certificates
from dray.daemons.assembly.parts import store_checks


class HealthServer:
    """`fault`: why the process does not do its work; None if it does. `setting`: the name of the address in
    the config, for what is said when it cannot be used."""

    def __init__(
        self,
        role: str,
        setting: str,
        stores: MeasuredStores,
        runtime: Runtime,
        metrics: ProcessMetrics,
        fault: Callable[[], str | None],
        notes: Mapping[str, Note] | None = None,
        dead: Note = lambda: None,
    ) -> None:
        metrics.follow(runtime.background)
        metrics.built(build_name(), role)

        async def check_working() -> None:
            reason = fault()
            if reason is not None:
                raise RuntimeError(reason)

        checks: dict[str, Check] = {
            "working": check_working,
            **store_checks(stores.metadata, stores.objects, runtime),
        }
        self._metrics = metrics
        self._health = Health(checks, metrics, runtime, notes=notes, dead=dead)
        self._runtime = runtime
        self._setting = setting
        self._server: HttpServer | None = None
        self._security: HttpSecurity | None = None

    @property
    def is_started(self) -> bool:
        return self._server is not None

    @property
    def address(self) -> tuple[str, int]:
        if self._server is None:
            raise RuntimeError("it has not been started")
        return self._server.address

    async def start(self, address: Address, security: HttpSecurity | None = None) -> None:
        """Without `security`, all may read everything."""
        settings = http_settings(address) if security is None else security.settings_at(address)
        server = HttpServer(self._health.routes(), self._runtime, settings, OPEN_PATHS)
        try:
            await server.start()
        except AddressInUse as error:
            raise Failure(f"{error}: stop what listens there, or choose another {self._setting}") from error
        except OSError as error:
            raise Failure(
                f"{self._setting}: cannot listen on {address}: {error.strerror or error}"
            ) from error
        self._server = server
        self._security = security
        if security is not None:
            measure_certificates(self._metrics, {"http": security.certificate})
            security.start()

    async def stop(self) -> None:
        if self._security is not None:
            await self._security.stop()
        if self._server is not None:
            await self._server.stop()
