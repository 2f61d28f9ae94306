"""A console's process: its socket, what it reads, and its server, from the start to a signal."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import structlog
import uvicorn
import uvloop

from dray.base.build import build_name
from dray.base.config.kinds import Address
from dray.base.runtime import KeptTask, Runtime, SystemRuntime, keep_running
from dray.base.telemetry import configure_logging
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.server.tls.listener import CertificateUnusable, ServerCertificate
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.console import ConsoleSettings, make_app, make_login_app
from dray.console.login import Sessions
from dray.console.security import hosts_of
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.http_security import TOKEN_FILE, HttpTokenFile, TokensUnusable
from dray.daemons.assembly.log_format import log_format
from dray.daemons.assembly.notify import tell_manager
from dray.daemons.assembly.process import StopSignals
from dray.daemons.assembly.reread import Rereading
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.assembly.watched_files import refresh_files
from dray.daemons.compactor.catalogs import tail_reader
from dray.daemons.config import Settings
from dray.daemons.config.console import ConsoleSection
from dray.daemons.console.address import scheme_of, why_not_there
from dray.daemons.console.parts import ConsoleSources, TablesWhenAsked, make_entrance, tables_for_console
from dray.daemons.console.server import ConsoleDoor
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers
from dray.inspection.groups.lag_history import LagHistory
from dray.inspection.records.shown import BadMask, Masking
from dray.inspection.storage.scrape import ScrapeAccess, ScrapeHistory
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.storage.tables import ClusterTables
from dray.inspection.topics.links import SourceLooks
from dray.kafka.client.properties import ClientSecurity

_log = structlog.get_logger(__name__)

_STOP_SECONDS: Final = 2
_NICENESS: Final = 10
_TAIL_BYTES: Final = 32 * 1024 * 1024
"""Of the records behind a table, for one query: the console serves others meanwhile."""
"""A search decodes records as fast as it gets the processor. Brokers on the same machine come first."""


def serve_console(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    *,
    stores: bool,
    writable: bool,
    again: Callable[[], Settings],
) -> None:
    """`security`: how brokers are connected to. `stores`: read the cluster's own stores too, as the settings
    name them. `again`: what the config says by now."""
    os.nice(_NICENESS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, bootstrap, security, stores=stores, writable=writable, again=again))


async def _run(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    *,
    stores: bool,
    writable: bool,
    again: Callable[[], Settings],
) -> None:
    runtime = SystemRuntime()
    configure_logging(log_format(settings), settings.logging.level, runtime, fields={"process": "console"})
    logging.getLogger("uvicorn.error").setLevel(
        logging.CRITICAL
    )  # a page that fails is logged by the console
    logging.getLogger("pyiceberg").setLevel(logging.WARNING)
    signals = StopSignals(asyncio.get_running_loop(), Rereading(runtime, again).ask)
    served = _console_settings(settings, writable=writable)
    listening = _listen(settings.console)
    host, port = listening.getsockname()[:2]
    opened = await open_stores(settings, runtime) if stores else None
    dial = security.dialer(CLIENT_ID, runtime, LARGEST_FRAME)
    brokers = Brokers(bootstrap, runtime, dial=dial)
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
            tails = tail_reader(settings, opened, cluster, runtime, _TAIL_BYTES)
            tables = tables_for_console(settings, stored, source, runtime, tails)
        served = replace(served, hosts=hosts_of(settings.console.listen.host, port, settings.console.hosts))
        requests = CompactionRequests(opened.metadata, runtime) if opened is not None and writable else None
        if settings.console.auth != "none":
            entrance = make_entrance(settings, bootstrap, security, runtime)
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
    expiry_ms = settings.log.producer_expiry_ms
    return StoredCluster(opened.metadata, cluster.domains, settings.topics.defaults, expiry_ms)


def _console_settings(settings: Settings, *, writable: bool) -> ConsoleSettings:
    """Its hosts are not known before it listens."""
    try:
        Masking(settings.console.masked)
    except BadMask as error:
        raise Failure(f"console.masked: {error}", USAGE) from error
    return ConsoleSettings(
        hosts=frozenset(),
        version=build_name(),
        scheme=scheme_of(settings.console),
        behind_proxy=settings.console.behind_proxy,
        writable=writable,
        wal_max_age_ms=settings.compaction.wal_max_age_ms,
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


def _certificate(console: ConsoleSection) -> ServerCertificate | None:
    if console.certificate_file is None or console.key_file is None:
        return None
    return ServerCertificate(Path(console.certificate_file), Path(console.key_file))


async def _serve(
    app: object,
    listening: socket.socket,
    signals: StopSignals,
    runtime: Runtime,
    console: ConsoleSection,
) -> None:
    try:
        certificate = _certificate(console)
    except CertificateUnusable as error:
        raise Failure(f"console.certificate_file, console.key_file: {error}") from error
    encryption = None if certificate is None else certificate.encryption
    door = ConsoleDoor(runtime, console.behind_proxy, encryption)
    server = _Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]  # Starlette's and uvicorn's names for the same shape
            http=cast(type[asyncio.Protocol], door),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
        )
    )
    refreshing: KeptTask | None = None
    if certificate is not None:
        files = {"console.certificate_file": certificate}
        refreshing = keep_running(
            runtime, "re-read the console's certificate", lambda: refresh_files(files, runtime)
        )
    serving = runtime.spawn(server.serve(sockets=[listening]), "serve the console")
    stopping = runtime.spawn(signals.wait(), "wait for a signal")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    door.stopping = True
    door.handshakes.end()
    stopping.cancel()
    if refreshing is not None:
        await refreshing.stop()
    await serving


def scrape_access(settings: Settings) -> tuple[ScrapeAccess, Mapping[str, HttpTokenFile]]:
    """How the numbers of brokers and compactors are asked for, and the file that has to be looked at again
    and again. Raises `TokensUnusable` and `CertificateUnusable`."""
    given = settings.http
    tls = None
    if given.ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=given.ca_file)
        except (OSError, ValueError) as error:
            raise CertificateUnusable(f"http.ca_file: {given.ca_file} {_why_unusable(error)}") from error
        if given.client_ca_file is not None and given.certificate_file is not None:
            try:
                tls.load_cert_chain(given.certificate_file, given.key_file, password=b"-")
            except (OSError, ValueError) as error:
                raise CertificateUnusable(
                    f"http.certificate_file: {given.certificate_file} {_why_unusable(error)}"
                ) from error
    if given.token_file is None:
        return ScrapeAccess(tls), {}
    tokens = HttpTokenFile(Path(given.token_file))
    return ScrapeAccess(tls, lambda: tokens.current[0].decode("ascii")), {TOKEN_FILE: tokens}


def _why_unusable(error: Exception) -> str:
    what = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return f"cannot be used: {what}"
