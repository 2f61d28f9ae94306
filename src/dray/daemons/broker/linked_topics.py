"""Topics that another cluster owns or owned, for brokers: from the records of migrations and the log to the
rooms that serve clients and the one that knows the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from dray.base.runtime import Runtime
from dray.base.telemetry import ProcessMetrics
from dray.base.telemetry.metrics import SECONDS
from dray.broker.topics import InvalidConfig, TopicsUnavailable
from dray.daemons.config import Settings
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.log import Log
from dray.log.types import LogError, StreamClosed
from dray.metadata.contract import MetadataError, MetadataStore
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.steps import request_switch
from dray.migration.record import MigrationRecord, Migrations, MigrationState
from dray.migration.source.forwarding import Link, ProduceForwarder
from dray.migration.source.shared_looks import NotAnswered
from dray.migration.source.source_brokers import (
    ForwardingLimits,
    ForwardingObserver,
    ForwardOutcome,
    SourceBrokers,
)

CLIENT_ID: Final = "drayd-forwarder"
BY_HAND: Final = "stopped"


class StoredLinks:
    """The stores' record of linked topics: the present owner of each."""

    def __init__(self, store: MetadataStore, runtime: Runtime, log: Log) -> None:
        self._migrations = Migrations(store, runtime)
        self._checked = _CheckedMigrations(store, runtime)
        self._log = log

    # --- for the forwarder

    async def link(self, topic: str) -> Link | None:
        try:
            record = await self._migrations.read(topic)
        except MetadataError as error:
            raise NotAnswered(f"the metadata store did not answer: {error}") from error
        if record is None or record.upstream is None or not record.is_classic:
            return None
        # Until `undo` is gone the fence of a switch that went back may still be up.
        is_pending = record.is_pending or record.undo is not None
        return Link(record.upstream, is_pending, is_pending and record.fence == BY_HAND)

    async def boundary(self, stream: int) -> int | None:
        try:
            await self._log.bounds(stream)
        except StreamClosed:
            return 0  # its topic was deleted: the append says so
        except LogError as error:
            raise NotAnswered(str(error)) from error
        origin = self._log.origin(stream)
        if origin is None:
            return 0
        return None if origin.is_classic else origin.boundary

    # --- for the handlers

    async def is_diskless(self, topic: str) -> bool | None:
        record = await self._record(topic)
        if record is None or not record.is_live or record.state is MigrationState.ABORTING:
            return None
        return record.state in (MigrationState.PENDING, MigrationState.SWITCHED, MigrationState.MOVED)

    async def has_owner(self, topic: str) -> bool:
        record = await self._record(topic)
        ours = (MigrationState.SWITCHED, MigrationState.MOVED)
        return record is not None and record.is_live and record.state not in ours

    async def _record(self, topic: str) -> MigrationRecord | None:
        try:
            return await self._migrations.read(topic)
        except MetadataError as error:
            raise TopicsUnavailable(str(error)) from error

    async def switch(self, topic: str, *, validate_only: bool) -> None:
        try:
            await request_switch(self._checked if validate_only else self._migrations, topic)
        except MigrationRefused as refusal:
            raise InvalidConfig(str(refusal)) from refusal
        except MetadataError as error:
            raise TopicsUnavailable(str(error)) from error


class _CheckedMigrations(Migrations):
    """Says what a step would come to, and writes nothing."""

    async def step(
        self,
        topic: str,  # noqa: ARG002 - as it is written
        record: MigrationRecord,
        change: Callable[[MigrationRecord], MigrationRecord],
    ) -> MigrationRecord:
        return change(record)


def forwarding_limits(settings: Settings) -> ForwardingLimits:
    return ForwardingLimits(most_bytes=settings.upstream.forward_bytes)


def forwarder(
    upstream: UpstreamClusters,
    links: StoredLinks,
    runtime: Runtime,
    limits: ForwardingLimits,
    metrics: ProcessMetrics,
) -> ProduceForwarder | None:
    """None where the config names no source: then nothing is asked of any batch."""
    if not upstream.names:
        return None
    clusters = {
        name: SourceBrokers(upstream.bootstrap(name), upstream.dialer(name, CLIENT_ID), runtime, limits)
        for name in upstream.names
    }
    measured = ForwardingMetrics(metrics, upstream.names)
    made = ProduceForwarder(clusters, links, runtime, limits, measured)
    measured.follow(made, clusters, limits.most_bytes)
    return made


# --- the numbers of what clients produce to them and a broker passes on


_ANSWERED: Final = "answered"
_UNANSWERED: Final = "unanswered"


class ForwardingMetrics(ForwardingObserver):
    """Labels are the names of the config, so that there are as many as somebody wrote down."""

    def __init__(self, metrics: ProcessMetrics, upstreams: Iterable[str]) -> None:
        make = metrics.instruments
        requests = make.counters(
            "dray_forwarded_requests",
            "Produce requests to the sources of linked topics: `answered`, `unanswered`",
            "upstream",
            "outcome",
        )
        sent = make.counters("dray_forwarded_bytes", "Bytes of batches in them, by source", "upstream")
        seconds = make.histograms(
            "dray_forwarded_seconds",
            "From such a request to the source's answer, by source",
            "upstream",
            bounds=SECONDS,
        )
        batches = make.counters(
            "dray_forwarded_batches",
            "Batches that clients produced here to linked topics: stored at the `source`, or `here` after "
            "the switch; `refused` by the source, `failed` without an answer, `busy` beyond "
            "`upstream.forward_bytes`",
            "outcome",
        )
        self._connections = make.gauges(
            "dray_upstream_connections", "Open connections to the source's brokers, by source", "upstream"
        )
        self._held = make.gauge("dray_forwarding_memory_bytes", "Bytes of batches held for sources")
        self._limit = make.gauge(
            "dray_forwarding_memory_limit_bytes", "Their bound, `upstream.forward_bytes`"
        )
        self._requests = make.gauge(
            "dray_forwarding_requests_in_flight",
            "Produce requests that wait for a source, or for the end of a switch",
        )
        names = list(upstreams)
        self._answered = {name: requests.labels(name, _ANSWERED) for name in names}
        self._unanswered = {name: requests.labels(name, _UNANSWERED) for name in names}
        self._sent = {name: sent.labels(name) for name in names}
        self._seconds = {name: seconds.labels(name) for name in names}
        self._batches = {outcome: batches.labels(outcome.value) for outcome in ForwardOutcome}

    def follow(
        self, forwarder: ProduceForwarder, clusters: Mapping[str, SourceBrokers], most_bytes: int
    ) -> None:
        self._limit.value = most_bytes
        self._held.follow(lambda: forwarder.held_bytes)
        self._requests.follow(lambda: forwarder.held_requests)
        for name, cluster in clusters.items():
            self._connections.labels(name).follow(partial(getattr, cluster, "connections"))

    def sent(self, upstream: str, size: int) -> None:
        self._sent[upstream].value += size

    def answered(self, upstream: str, seconds: float) -> None:
        self._answered[upstream].value += 1
        self._seconds[upstream].observe(seconds)

    def unanswered(self, upstream: str) -> None:
        self._unanswered[upstream].value += 1

    def finished(self, outcome: ForwardOutcome) -> None:
        self._batches[outcome].value += 1
