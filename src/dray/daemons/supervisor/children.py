"""The processes that `drayd up` runs beside its brokers, as far as this machine can run them: a compactor, a
migrator where the config names a cluster to move from, and a console. The brokers' cores are for clients, so
each is a process of its own.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import structlog

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import Settings
from dray.daemons.console.address import why_not_there
from dray.daemons.supervisor.processes import Child, Supervisor
from dray.kafka.client.properties import PropertiesRefused, read_security
from dray.tables.compaction.packages import missing_packages

_log = structlog.get_logger(__name__)


class _Kind(NamedTuple):
    """One row of the table below: a command of `drayd`, and when it runs."""

    command: str
    is_wanted: Callable[[Settings], bool]
    why_not: Callable[[Settings], str | None]
    """Why it cannot run here."""
    without: str
    """The log line that gives that reason."""
    arguments: Callable[[Settings, Sequence[str]], list[str]] = lambda _settings, _brokers: []
    """Those of its own; it is told where the brokers are."""

    def child(self, settings: Settings, config: Path | None, brokers: Sequence[str] = ()) -> Child | None:
        """None where it is not wanted, and where it cannot run: then a line says why, and the brokers go on
        without."""
        if not self.is_wanted(settings):
            return None
        reason = self.why_not(settings)
        if reason is not None:
            _log.warning(self.without, reason=reason)
            return None
        arguments = [self.command, "--data-dir", settings.data_dir]
        if config is not None:
            arguments += ["--config", str(config)]
        return Child(f"the {self.command}", [*arguments, *self.arguments(settings, brokers)])


def children_beside(settings: Settings, config: Path | None) -> list[Child]:
    """All but the console, on which no broker may depend."""
    found = [kind.child(settings, config) for kind in (COMPACTOR, MIGRATOR)]
    return [child for child in found if child is not None]


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

    def hang_up(self) -> None:
        self._supervisor.hang_up()

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
    child = CONSOLE.child(settings, config, brokers)
    return None if child is None else ConsoleBeside(child, runtime)


# --- why one cannot run


def _why_unshared(settings: Settings) -> str | None:
    if settings.metadata.engine == "memory" or settings.objects_url.startswith("memory:"):
        return "a store in memory cannot be shared with another process"
    return None


def _why_no_compactor(settings: Settings) -> str | None:
    return _why_unshared(settings) or missing_packages() or _why_no_java(settings)


def _why_no_java(settings: Settings) -> str | None:
    if settings.spark.master.startswith("sc://"):
        return None
    from dray.tables.compaction.packages import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        return str(error)
    return None


def _why_no_console(settings: Settings) -> str | None:
    return (
        why_not_there(settings.console)
        or _why_unconnected(settings)
        or _why_open(settings)
        or _why_not_bound(settings.console.listen)
    )


def _why_unconnected(settings: Settings) -> str | None:
    if settings.broker.listen is not None or settings.console.listener is not None:
        return None
    return (
        "every listener asks clients who they are: say with console.command_config (--command-config) how "
        "the console connects"
    )


def _why_open(settings: Settings) -> str | None:
    """If brokers ask who may do what, a login must not be lent to every account of this machine: what it may
    read is as much theirs as what it may change."""
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


def _why_not_bound(address: Address) -> str | None:
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


# --- what a console is told


def _console_arguments(settings: Settings, brokers: Sequence[str]) -> list[str]:
    console = settings.console
    if console.listener is not None:
        brokers = _addresses_at(settings, console.listener, len(brokers))
    arguments = ["--listen", str(console.listen), "--bootstrap", ",".join(brokers), "--writable"]
    if console.command_config is not None:
        arguments += ["--command-config", console.command_config]
    if settings.metadata.engine != "memory":  # else it uses only Kafka's protocol
        arguments.append("--stores")
    if console.runs is not None:
        arguments += ["--runs", console.runs]
    return arguments


def _addresses_at(settings: Settings, listener: str, count: int) -> list[str]:
    """Of so many brokers, whose ports count up. Certificates have names: the advertised one comes first."""
    broker = settings.broker
    place: Address = broker.advertised_listeners.get(listener) or broker.listeners[listener]
    return [str(Address(place.host, place.port + number)) for number in range(count)]


COMPACTOR = _Kind(
    "compactor",
    lambda settings: settings.compaction.enabled,
    _why_no_compactor,
    "topics are not compacted into tables here",
)
MIGRATOR = _Kind(
    "migrator",
    lambda settings: bool(settings.upstream.clusters),
    _why_unshared,
    "topics are not moved here",
)
CONSOLE = _Kind(
    "console",
    lambda settings: settings.console.enabled,
    _why_no_console,
    "there is no console here",
    _console_arguments,
)
