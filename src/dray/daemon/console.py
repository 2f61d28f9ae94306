"""A console's process: its socket, what it reads, and its server, from the start to a signal."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

import structlog
import uvicorn
import uvloop

from dray.client.properties import ClientSecurity
from dray.config import Settings
from dray.config.kinds import Address
from dray.console import ConsoleSettings, make_app
from dray.console.security import hosts_of
from dray.daemon.failures import USAGE, Failure
from dray.daemon.http_security import TokensUnusable, refresh_files
from dray.daemon.log_format import log_format
from dray.daemon.notify import tell_manager
from dray.daemon.process import StopSignals
from dray.daemon.scrape_security import scrape_access
from dray.daemon.stores import Stores, open_stores, read_cluster
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers
from dray.inspection.scrape import ScrapeHistory
from dray.inspection.stored import StoredCluster
from dray.runtime import KeptTask, Runtime, SystemRuntime, keep_running
from dray.server.tls import CertificateUnusable
from dray.telemetry import configure_logging
from dray.topics.compaction_requests import CompactionRequests

_log = structlog.get_logger(__name__)

_CONNECTIONS: Final = 256
_STOP_SECONDS: Final = 2
_NICENESS: Final = 10
"""A search decodes records as fast as it gets the processor. Brokers on the same machine come first."""


def serve_console(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    *,
    stores: bool,
    writable: bool,
) -> None:
    """`security`: how brokers are connected to. `stores`: read the cluster's own stores too, as the settings
    name them."""
    os.nice(_NICENESS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, bootstrap, security, stores=stores, writable=writable))


async def _run(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    *,
    stores: bool,
    writable: bool,
) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime, fields={"process": "console"})
    logging.getLogger("uvicorn.error").setLevel(
        logging.CRITICAL
    )  # a page that fails is logged by the console
    signals = StopSignals(asyncio.get_running_loop())
    listening = _listen(settings.console.listen)
    host, port = listening.getsockname()[:2]
    opened = await open_stores(settings, runtime) if stores else None
    brokers = Brokers(bootstrap, runtime, dial=security.dialer(CLIENT_ID, runtime, LARGEST_FRAME))
    history: ScrapeHistory | None = None
    refreshing: KeptTask | None = None
    try:
        stored = None if opened is None else await _stored(settings, opened)
        if stored is not None:
            try:
                access, files = scrape_access(settings)
            except (TokensUnusable, CertificateUnusable) as error:
                raise Failure(str(error), USAGE) from error
            if files:
                refreshing = keep_running(runtime, "re-read the token", lambda: refresh_files(files, runtime))
            history = ScrapeHistory(stored, runtime, access)
            history.start()
        app = make_app(
            ConsoleSettings(
                hosts=hosts_of(settings.console.listen.host, port),
                version=version("dray"),
                writable=writable,
                wal_max_age_ms=round(settings.compaction.wal_max_age * 1000),
            ),
            brokers,
            stored,
            history,
            CompactionRequests(opened.metadata, runtime) if opened is not None and writable else None,
        )
        address = f"http://{Address(host, port)}/"
        _log.info("console is serving", address=address, writable=writable)
        tell_manager(READY="1", STATUS=f"the console serves at {address}", X_DRAY_CONSOLE=address)
        await _serve(app, listening, signals, runtime)
    finally:
        if refreshing is not None:
            await refreshing.stop()
        if history is not None:
            await history.stop()
        await brokers.close()
        if opened is not None:
            await opened.close()
        listening.close()
        runtime.close()


async def _stored(settings: Settings, opened: Stores) -> StoredCluster:
    cluster = await read_cluster(opened)
    expiry_ms = round(settings.log.producer_expiry * 1000)
    return StoredCluster(opened.metadata, cluster.domains, settings.topics.defaults, expiry_ms)


def _listen(address: Address) -> socket.socket:
    if not address.is_loopback:
        raise Failure(
            f"console.listen = {address}: there is no login yet, so it must be a loopback address; forward "
            "the port to reach it from elsewhere (ssh -L)",
            USAGE,
        )
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((address.host, address.port))
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise Failure(
                f"{address} is in use: stop what listens there, or choose another --listen"
            ) from error
        raise Failure(f"cannot listen on {address}: {error.strerror or error}") from error
    return listening


class _Server(uvicorn.Server):
    """Leaves signals to the process, which has its own way with them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(app: object, listening: socket.socket, signals: StopSignals, runtime: Runtime) -> None:
    server = _Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]  # Starlette's and uvicorn's names for the same shape
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
    serving = runtime.spawn(server.serve(sockets=[listening]), "serve the console")
    stopping = runtime.spawn(signals.wait(), "wait for a signal")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving
