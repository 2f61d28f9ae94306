"""The console that `drayd up` runs beside its brokers: a process of its own, since their cores are for
clients."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from dray.client.properties import PropertiesRefused, read_security
from dray.config import Settings
from dray.config.kinds import Address
from dray.daemon.console_address import why_not_there
from dray.daemon.failures import Failure
from dray.daemon.supervisor import Child, Supervisor
from dray.runtime import Runtime

_log = structlog.get_logger(__name__)


class ConsoleBeside:
    """A console and its supervisor. Brokers do not depend on it: they neither wait for it nor fail with
    it."""

    def __init__(self, child: Child, runtime: Runtime) -> None:
        self._supervisor = Supervisor([child], runtime)
        self._starting = runtime.spawn(self._start(), "start the console")

    async def _start(self) -> bool:
        try:
            await self._supervisor.start()
        except Failure as error:
            _log.warning("the console did not start", reason=str(error))
            return False
        return True

    async def stop(self) -> None:
        if not self._starting.done():
            self._starting.cancel()  # the cancelled start stops the process itself
        await asyncio.wait({self._starting})
        if not self._starting.cancelled() and self._starting.result():
            with suppress(Failure):  # a failure here must not stop the brokers
                await self._supervisor.stop()


def start_console(
    settings: Settings, config: Path | None, brokers: Sequence[str], runtime: Runtime
) -> ConsoleBeside | None:
    child = console_child(settings, config, brokers)
    return None if child is None else ConsoleBeside(child, runtime)


def console_child(settings: Settings, config: Path | None, brokers: Sequence[str]) -> Child | None:
    """None where it is off, and where it cannot run: then a line says why, and the brokers go on without."""
    if not settings.console.enabled:
        return None
    reason = why_not_there(settings.console) or _why_open(settings) or _why_not(settings.console.listen)
    if reason is not None:
        _log.warning("there is no console here", reason=reason)
        return None
    arguments = ["console", "--data-dir", settings.data_dir, "--listen", str(settings.console.listen)]
    if settings.console.listener is not None:
        brokers = _addresses_at(settings, settings.console.listener, len(brokers))
    arguments += ["--bootstrap", ",".join(brokers), "--writable"]
    if settings.console.command_config is not None:
        arguments += ["--command-config", settings.console.command_config]
    if _is_shared(settings):
        arguments.append("--stores")
    if config is not None:
        arguments += ["--config", str(config)]
    if settings.console.runs is not None:
        arguments += ["--runs", settings.console.runs]
    return Child("the console", arguments)


def _addresses_at(settings: Settings, listener: str, count: int) -> list[str]:
    """Of so many brokers, whose ports count up. Certificates have names: the advertised one comes first."""
    broker = settings.broker
    place: Address = broker.advertised_listeners.get(listener) or broker.listeners[listener]
    return [str(Address(place.host, place.port + number)) for number in range(count)]


def _is_shared(settings: Settings) -> bool:
    """Can another process read the stores? Not if they are in memory: then the console uses only Kafka's
    protocol."""
    return settings.metadata.engine != "memory"


def _why_open(settings: Settings) -> str | None:
    """Where brokers ask who may do what, a login must not be lent to every account of this machine: what it
    may read is as much theirs as what it may change."""
    console = settings.console
    if settings.security.authorization == "none" or console.auth != "none" or console.command_config is None:
        return None
    try:
        if not read_security(Path(console.command_config)).logs_in:
            return None
    except PropertiesRefused as error:
        return f"console.command_config = {console.command_config}: {error}"
    return (
        "every account of this machine could act in it with the login of console.command_config: set "
        "console.auth to sasl or oidc, so that people log in themselves"
    )


def _why_not(address: Address) -> str | None:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return f"{address} is in use: choose another with --console"
            return f"cannot listen on {address}: {error.strerror or error}"
    return None
