"""The console as an ASGI application: what each address leads to, and how a failure looks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from dray.base.runtime import Runtime
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.console import group_pages, live, range_pages, run_pages, table_pages, topic_pages
from dray.console.forms import BadInput
from dray.console.login import GateParts, LoginGate, Sessions
from dray.console.range_pages import ExportsBusy
from dray.console.rendering import STATIC, Content, Pages, Templates, as_json
from dray.console.security import CONSOLE, Gate
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.inspection.cluster import cluster_view
from dray.inspection.groups.lag_history import LagHistory
from dray.inspection.groups.views import NoSuchGroup
from dray.inspection.records.matching import BadSearch
from dray.inspection.records.passport import NoRecord
from dray.inspection.records.producing import NoSuchReplay, ReplayRefused, Replays
from dray.inspection.records.reading import NoSuchPartition, NoSuchTopic, TopicReader
from dray.inspection.records.shown import Masking
from dray.inspection.sql.queries import QueriesBusy, SqlRefused
from dray.inspection.storage.costs import flow_of, stores_view
from dray.inspection.storage.scrape import ScrapeHistory
from dray.inspection.storage.simulated_runs import NoSuchRun
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.storage.tables import ClusterTables
from dray.inspection.topics.links import SourceLooks
from dray.kafka.client import ClientError, RequestFailed
from dray.metadata.contract import MetadataError

_log = structlog.get_logger(__name__)

_ABSENT: Final = (NoSuchTopic, NoSuchPartition, NoSuchGroup, NoRecord, NoSuchReplay, NoSuchRun)
_MISTAKEN: Final = (BadInput, BadSearch, SqlRefused)
_SILENT: Final = (BrokerUnreachable, ClientError, MetadataError, TimeoutError)
_FOREVER: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True)
class ConsoleSettings:
    hosts: frozenset[str]
    """The values that the `Host` of a request may have."""
    version: str
    scheme: str = "http"
    """The scheme that browsers use: https if the console, or a proxy before it, has a certificate."""
    behind_proxy: bool = False
    """Whether a proxy says, in X-Forwarded-For, whose a request is."""
    writable: bool = False
    """Whether anything can be changed: without, there is no address that changes something."""
    wal_max_age_ms: int | None = None
    """When compactors take up what is in WAL objects."""
    masked: Mapping[str, str] = field(default_factory=dict)
    """The parts of records that are hidden, by patterns of topics: the rules of `Masking`."""
    runs: Path | None = None
    """A directory of files that `drayd simulate --seed N --json` wrote."""


@dataclass(frozen=True)
class Console:
    """The parts that pages are made from."""

    settings: ConsoleSettings
    brokers: Brokers
    stored: StoredCluster | None
    """None where only Kafka's protocol is asked."""
    pages: Pages
    masking: Masking
    lags: LagHistory
    principal: str = CONSOLE
    """The principal that acts here, for the audit."""
    looks: SourceLooks | None = None
    """At the clusters that topics come from."""

    def reader(self, topic: str, brokers: Brokers | None = None) -> TopicReader:
        """The one way to a topic's records: what is hidden is hidden here."""
        return TopicReader(brokers or self.brokers, topic, self.masking.of(topic))


def make_app(
    settings: ConsoleSettings,
    brokers: Brokers,
    stored: StoredCluster | None,
    history: ScrapeHistory | None = None,
    tables: ClusterTables | None = None,
    lags: LagHistory | None = None,
    compactions: CompactionRequests | None = None,
    looks: SourceLooks | None = None,
) -> ASGIApp:
    """A console without a login: everything is asked with one identity."""
    pages = make_pages(settings, brokers, stored, history, tables, lags, compactions, looks)
    return Gate(pages, settings.hosts, settings.scheme)


def make_login_app(
    settings: ConsoleSettings,
    make_gate: Callable[[GateParts], LoginGate],
    runtime: Runtime,
    stored: StoredCluster | None,
    history: ScrapeHistory | None = None,
    tables: ClusterTables | None = None,
    compactions: CompactionRequests | None = None,
    looks: SourceLooks | None = None,
) -> tuple[ASGIApp, Sessions]:
    """A console with a login. Each session has its own pages, so nothing can be asked with the identity of
    another; and samples the lag of the groups that it looked at, as long as it lasts. `make_gate`: how people
    log in."""

    def pages_of(brokers: Brokers, user: str) -> tuple[ASGIApp, LagHistory]:
        time_of = None if stored is None else stored.time_of
        lags = LagHistory(brokers, runtime, time_of, only_seen=True)
        principal = f"User:{user}"
        pages = make_pages(settings, brokers, stored, history, tables, lags, compactions, looks, principal)
        return pages, lags

    nothing = dict.fromkeys(
        ("writable", "has_stores", "has_history", "has_tables", "has_runs", "can_compact"), False
    )
    templates = Templates({"version": settings.version, "principal": None, "bare": True, **nothing})
    secure = settings.scheme == "https"
    gate = make_gate(GateParts(pages_of, Pages(templates), _static(), runtime, secure, settings.behind_proxy))
    return Gate(gate, settings.hosts, settings.scheme), gate.sessions


def make_pages(
    settings: ConsoleSettings,
    brokers: Brokers,
    stored: StoredCluster | None,
    history: ScrapeHistory | None = None,
    tables: ClusterTables | None = None,
    lags: LagHistory | None = None,
    compactions: CompactionRequests | None = None,
    looks: SourceLooks | None = None,
    principal: str = CONSOLE,
) -> ASGIApp:
    """`history`: the numbers of the cluster's processes; without it there is no page of the stores. `tables`:
    without them there are no pages of tables. `lags`: sampled ones; without them, curves have the points that
    pages themselves see. `compactions`: where a topic can be asked to be compacted, if anything can be
    changed. `looks`: at the clusters that topics come from."""
    has_runs = history is not None or settings.runs is not None
    templates = Templates(
        {
            "writable": settings.writable,
            "version": settings.version,
            "has_stores": stored is not None,
            "has_history": history is not None,
            "has_tables": tables is not None,
            "has_runs": has_runs,
            "principal": None if principal == CONSOLE else principal,
            "bare": False,
            "can_compact": stored is not None and compactions is not None,
        }
    )
    lags = lags or LagHistory(brokers, brokers.runtime)
    console = Console(
        settings, brokers, stored, Pages(templates), Masking(settings.masked), lags, principal, looks
    )
    replays = Replays(brokers.runtime)

    async def cluster(_request: Request) -> Content:
        flow = None if history is None else flow_of(history)
        measured = None if history is None else stores_view(history)
        view = await cluster_view(brokers, stored, flow, measured, looks)
        return Content(view, {"now": brokers.runtime.wall_ms()})

    routes: list[BaseRoute] = [
        *console.pages.page("/", "cluster.html", cluster),
        *topic_pages.routes(console, history),
        *range_pages.record_routes(console),
        *range_pages.routes(console),
        *group_pages.routes(console),
        *live.routes(console),
        _static(),
    ]
    if tables is not None and stored is not None:
        routes += table_pages.routes(console, tables)
    if stored is not None:
        routes += topic_pages.link_routes(console, stored)
    if has_runs:
        routes += run_pages.routes(console, history, replays, settings.runs)
    if settings.writable:
        routes += [
            *topic_pages.changing_routes(console),
            *group_pages.changing_routes(console),
            *range_pages.changing_routes(console, replays),
        ]
    if history is not None:
        measured = history

        async def stores(_request: Request) -> Content:
            return Content(stores_view(measured))

        routes += console.pages.page("/stores", "stores.html", stores)
    if stored is not None and compactions is not None:
        routes += topic_pages.compaction_routes(console, stored, compactions)
    failures = _Failures(console.pages)
    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        HTTPException: failures.http,
        Exception: failures.unexpected,
    }
    handlers |= dict.fromkeys(_ABSENT, failures.absent)
    handlers |= dict.fromkeys(_MISTAKEN, failures.mistaken)
    handlers |= dict.fromkeys(_SILENT, failures.silent)
    handlers |= dict.fromkeys((QueriesBusy, ExportsBusy), failures.busy)
    handlers[ReplayRefused] = failures.refused
    handlers[RequestFailed] = failures.refused
    return Starlette(routes=routes, exception_handlers=handlers)


def _static() -> Mount:
    return Mount("/static", _Static(directory=str(STATIC)))


class _Static(StaticFiles):
    """Our own files. An address that names the version of its file may be kept by browsers."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        versioned = scope["query_string"].startswith(b"v=")
        response.headers["Cache-Control"] = _FOREVER if versioned else "no-cache"
        return response


class _Failures:
    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    async def http(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return self._show(request, 404, "There is nothing here", "No page has this address.")
        return self._show(request, error.status_code, error.detail, "")

    async def absent(self, request: Request, error: Exception) -> Response:
        return self._show(request, 404, "Not found", str(error))

    async def mistaken(self, request: Request, error: Exception) -> Response:
        return self._show(request, 400, "That cannot be done as written", str(error))

    async def silent(self, request: Request, error: Exception) -> Response:
        said = str(error) or "it took too long"
        return self._show(request, 503, "The cluster does not answer", said)

    async def refused(self, request: Request, error: Exception) -> Response:
        return self._show(request, 409, "The cluster refused", str(error))

    async def busy(self, request: Request, error: Exception) -> Response:
        return self._show(request, 429, "Too much at once", str(error))

    async def unexpected(self, request: Request, error: Exception) -> Response:
        _log.error("a page failed", path=request.scope["path"], exc_info=error)
        return self._show(request, 500, "This page failed", "The console's log says why.")

    def _show(self, request: Request, status: int, title: str, reason: str) -> Response:
        if request.scope["path"].startswith("/api/"):
            return as_json({"error": title, "reason": reason}, status)
        return self._pages.answer(
            request,
            "failure.html",
            Content({"status": status, "title": title, "reason": reason}, status=status),
        )
