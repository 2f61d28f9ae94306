"""The HTTP server of a process that is no broker: is it alive, does it work, and its numbers."""

from __future__ import annotations

from dray.config.kinds import Address
from dray.daemon.failures import Failure
from dray.daemon.http_security import HttpSecurity
from dray.daemon.store_settings import http_settings
from dray.runtime import Runtime
from dray.server import AddressInUse, Health, HttpServer
from dray.server.health import OPEN_PATHS


class HealthServer:
    """`setting`: the name of the address in the config, for what is said when it cannot be used."""

    def __init__(self, health: Health, runtime: Runtime, setting: str) -> None:
        self._health = health
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
            security.start()

    async def stop(self) -> None:
        if self._security is not None:
            await self._security.stop()
        if self._server is not None:
            await self._server.stop()
