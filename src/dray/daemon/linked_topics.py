"""Topics that another cluster owns or owned, for brokers: from the records of migrations and the log to the
rooms that serve clients and the one that knows the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.config import Settings
from dray.daemon.forwarding_metrics import ForwardingMetrics
from dray.daemon.upstream_clusters import UpstreamClusters
from dray.log import Log
from dray.log.types import LogError, StreamClosed
from dray.metadata.contract import MetadataError, MetadataStore
from dray.migration.found import MigrationRefused
from dray.migration.live import request_switch
from dray.migration.record import MigrationRecord, Migrations, MigrationState
from dray.runtime import Runtime
from dray.telemetry import ProcessMetrics
from dray.topics import InvalidConfig, TopicsUnavailable
from dray.upstream.forwarding import Link, ProduceForwarder
from dray.upstream.forwarding_limits import ForwardingLimits
from dray.upstream.shared_looks import NotAnswered
from dray.upstream.upstream_brokers import UpstreamBrokers

CLIENT_ID: Final = "drayd-forwarder"
BY_HAND: Final = "stopped"


class StoredLinks:
    """What the stores say of linked topics: whose they are now."""

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
    upstream = settings.upstream
    return ForwardingLimits(
        most_bytes=upstream.forward_bytes,
        connections=upstream.forward_connections,
        attempt_seconds=upstream.forward_timeout,
        longest_seconds=upstream.forward_wait,
        idle_seconds=upstream.forward_idle,
    )


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
        name: UpstreamBrokers(upstream.bootstrap(name), upstream.dialer(name, CLIENT_ID), runtime, limits)
        for name in upstream.names
    }
    measured = ForwardingMetrics(metrics, upstream.names)
    made = ProduceForwarder(clusters, links, runtime, limits, measured)
    measured.follow(made, clusters, limits.most_bytes)
    return made
