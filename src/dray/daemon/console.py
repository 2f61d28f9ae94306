"""A console's process: its socket, what it reads, and its server, from the start to a signal."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog
import uvicorn
import uvloop

from dray.client.properties import ClientSecurity
from dray.cluster.identity import ClusterInfo
from dray.config import Settings
from dray.config.console import ConsoleSection
from dray.config.kinds import Address
from dray.console import ConsoleSettings, make_app, make_login_app
from dray.console.login import Sessions
from dray.console.security import hosts_of
from dray.daemon.console_address import scheme_of, why_not_there
from dray.daemon.console_login import make_entrance
from dray.daemon.console_sources import ConsoleSources
from dray.daemon.console_tables import TablesWhenAsked, tables_for_console
from dray.daemon.failures import USAGE, Failure
from dray.daemon.http_security import TokensUnusable
from dray.daemon.log_format import log_format
from dray.daemon.notify import tell_manager
from dray.daemon.process import StopSignals
from dray.daemon.scrape_security import scrape_access
from dray.daemon.session_priority import SessionPriority, leads_session
from dray.daemon.spare_processor import SpareProcessor
from dray.daemon.stores import Stores, open_stores, read_cluster
from dray.daemon.watched_files import refresh_files
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers
from dray.inspection.lag_history import LagHistory
from dray.inspection.masking import BadMask, Masking
from dray.inspection.scrape import ScrapeHistory
from dray.inspection.source_looks import SourceLooks
from dray.inspection.stored import StoredCluster
from dray.inspection.tables import ClusterTables
from dray.runtime import KeptTask, Runtime, SystemRuntime, keep_running
from dray.server.tls import CertificateUnusable
from dray.telemetry import configure_logging
from dray.topics.compaction_requests import CompactionRequests

_log = structlog.get_logger(__name__)

_CONNECTIONS: Final = 256
_STOP_SECONDS: Final = 2
_NICENESS: Final = 10
"""A search decodes records as fast as it gets the processor. Brokers on the same machine come first: see
`SessionPriority`, too."""


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
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    signals = StopSignals(asyncio.get_running_loop())
    served = _console_settings(settings, writable=writable)
    listening = _listen(settings.console)
    host, port = listening.getsockname()[:2]
    opened = await open_stores(settings, runtime) if stores else None
    priority = SessionPriority(runtime, leads=leads_session())
    dial = security.dialer(CLIENT_ID, runtime, LARGEST_FRAME)
    spare = SpareProcessor(runtime)
    brokers = Brokers(bootstrap, runtime, dial=dial, at_work=priority.at_work, is_crowded=spare.is_crowded)
    sampling = brokers.apart()
    sources = ConsoleSources(settings, runtime)
    looks = SourceLooks(sources.ends, runtime)
    lags: LagHistory | None = None
    sessions: Sessions | None = None
    history: ScrapeHistory | None = None
    source: TablesWhenAsked | None = None
    tables: ClusterTables | None = None
    refreshing: KeptTask | None = None
    try:
        stored = None
        if opened is not None:
            cluster = await read_cluster(opened)
            stored = _stored(settings, opened, cluster)
            try:
                access, files = scrape_access(settings)
            except (TokensUnusable, CertificateUnusable) as error:
                raise Failure(str(error), USAGE) from error
            if files:
                refreshing = keep_running(runtime, "re-read the token", lambda: refresh_files(files, runtime))
            history = ScrapeHistory(stored, runtime, access)
            history.start()
            source = TablesWhenAsked(settings, cluster.cluster_id, runtime)
            tables = tables_for_console(settings, stored, source, runtime)
        served = replace(served, hosts=hosts_of(settings.console.listen.host, port, settings.console.hosts))
        requests = CompactionRequests(opened.metadata, runtime) if opened is not None and writable else None
        if settings.console.auth != "none":
            entrance = make_entrance(
                settings, bootstrap, security, runtime, priority.at_work, spare.is_crowded
            )
            app, sessions = make_login_app(
                served, entrance, runtime, stored, history, tables, requests, looks
            )
            sessions.start()
        else:
            lags = LagHistory(sampling, runtime, None if stored is None else stored.time_of)
            lags.start()
            app = make_app(served, brokers, stored, history, tables, lags, requests, looks)
        address = f"{served.scheme}://{Address(host, port)}/"
        _log.info("console is serving", address=address, writable=writable)
        tell_manager(READY="1", STATUS=f"the console serves at {address}", X_DRAY_CONSOLE=address)
        await _serve(app, listening, signals, runtime, settings.console)
    finally:
        if refreshing is not None:
            await refreshing.stop()
        if history is not None:
            await history.stop()
        if lags is not None:
            await lags.stop()
        if sessions is not None:
            await sessions.close()
        if source is not None:
            await source.close()
        looks.stop()
        await sources.close()
        await sampling.close()
        await brokers.close()
        if opened is not None:
            await opened.close()
        listening.close()
        runtime.close()


def _stored(settings: Settings, opened: Stores, cluster: ClusterInfo) -> StoredCluster:
    expiry_ms = round(settings.log.producer_expiry * 1000)
    return StoredCluster(opened.metadata, cluster.domains, settings.topics.defaults, expiry_ms)


def _console_settings(settings: Settings, *, writable: bool) -> ConsoleSettings:
    """Its hosts are not known before it listens."""
    try:
        Masking(settings.console.masked)
    except BadMask as error:
        raise Failure(f"console.masked: {error}", USAGE) from error
    return ConsoleSettings(
        hosts=frozenset(),
        version=version("dray"),
        scheme=scheme_of(settings.console),
        writable=writable,
        wal_max_age_ms=round(settings.compaction.wal_max_age * 1000),
        masked=settings.console.masked,
        runs=None if settings.console.runs is None else Path(settings.console.runs),
    )


def _listen(console: ConsoleSection) -> socket.socket:
    reason = why_not_there(console)
    if reason is not None:
        raise Failure(reason, USAGE)
    address = console.listen
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


async def _serve(
    app: object,
    listening: socket.socket,
    signals: StopSignals,
    runtime: Runtime,
    console: ConsoleSection,
) -> None:
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
            ssl_certfile=console.certificate_file,
            ssl_keyfile=console.key_file,
        )
    )
    try:
        server.config.load()
    except OSError as error:  # of TLS, too
        raise Failure(f"console.certificate_file, console.key_file: {error.strerror or error}") from error
    serving = runtime.spawn(server.serve(sockets=[listening]), "serve the console")
    stopping = runtime.spawn(signals.wait(), "wait for a signal")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    stopping.cancel()
    await serving
