"""The cluster at a glance: its brokers, and how much there is of everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from dray.broker.cluster.clock_guard import COMPACTOR
from dray.broker.cluster.membership import Broker
from dray.inspection.brokers import Brokers
from dray.inspection.groups.views import listed_groups
from dray.inspection.health import (
    HealthCheck,
    State,
    broker_check,
    compactor_check,
    log_checks,
    partition_check,
    store_checks,
    worst,
)
from dray.inspection.storage.costs import Flow, StoresView
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.topics.links import LinksSummary, SourceLooks, links_check, links_summary
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.admin import describe_cluster


@dataclass(frozen=True)
class BrokerRow:
    broker_id: int
    host: str
    port: int
    rack: str | None
    leads: int
    """Partitions that clients are sent to it for."""
    zone: str | None = None
    build: str | None = None
    started_ms: int | None = None
    http: str | None = None
    """The address of its health and numbers."""


@dataclass(frozen=True)
class CompactorRow:
    build: str
    http: str | None
    seen_ms: int
    """When it last gave a sign of life, by its own clock."""


@dataclass(frozen=True)
class ClusterSummary:
    cluster_id: str
    controller: int
    brokers: Sequence[BrokerRow]
    topics: int
    partitions: int
    leaderless: int
    groups: dict[str, int]
    """By their state."""
    compactors: Sequence[CompactorRow]
    stores_known: bool
    trouble: Sequence[str]
    flow: Flow | None = None
    """The traffic of its brokers; None where it is not known."""
    health: Sequence[HealthCheck] = ()
    links: LinksSummary | None = None
    """Topics that are on their way here from another cluster; None where there are none."""

    @property
    def state(self) -> State:
        return worst(self.health)

    @property
    def mixed_builds(self) -> Sequence[str]:
        """The builds of its processes, where they are not all of one."""
        builds = sorted({row.build or "" for row in self.brokers} | {row.build for row in self.compactors})
        builds = [build for build in builds if build]
        return builds if len(builds) > 1 else ()


async def cluster_view(
    brokers: Brokers,
    stored: StoredCluster | None = None,
    flow: Flow | None = None,
    stores: StoresView | None = None,
    looks: SourceLooks | None = None,
) -> ClusterSummary:
    described = await describe_cluster(await brokers.first())
    metadata = await brokers.metadata()
    leads: Counter[int] = Counter()
    leaderless = partitions = 0
    for topic in metadata.topics:
        for partition in topic.partitions:
            partitions += 1
            leads[partition.leader_id] += 1
            leaderless += partition.leader_id < 0
    registered = {broker.broker_id: broker for broker in await _registered(stored)}
    groups, trouble = await _groups(brokers)
    compactors = await _compactors(stored)
    health = [
        broker_check(len(described.brokers), () if flow is None else flow.silent),
        partition_check(partitions, leaderless),
    ]
    if stores is not None:
        health += store_checks(stores) + log_checks(stores)
    links = None if stored is None else await links_summary(brokers, stored, looks, metadata)
    if links is not None:
        health.append(links_check(links))
    if stored is not None:
        health.append(compactor_check([row.seen_ms for row in compactors], brokers.runtime.wall_ms()))
    return ClusterSummary(
        described.cluster_id,
        described.controller_id,
        [
            _row(item.broker_id, item.host, item.port, item.rack, leads, registered.get(item.broker_id))
            for item in sorted(described.brokers, key=lambda item: item.broker_id)
        ],
        len(metadata.topics),
        partitions,
        leaderless,
        groups,
        compactors,
        stored is not None,
        trouble,
        flow,
        health,
        links,
    )


def _row(
    broker_id: int, host: str, port: int, rack: str | None, leads: Counter[int], known: Broker | None
) -> BrokerRow:
    if known is None:
        return BrokerRow(broker_id, host, port, rack, leads[broker_id])
    return BrokerRow(
        broker_id,
        host,
        port,
        rack,
        leads[broker_id],
        known.zone,
        known.build,
        known.started_ms,
        known.http,
    )


async def _registered(stored: StoredCluster | None) -> Sequence[Broker]:
    return [] if stored is None else await stored.registrations()


async def _compactors(stored: StoredCluster | None) -> list[CompactorRow]:
    beats = [] if stored is None else await stored.processes()
    return [
        CompactorRow(beat.process.build, beat.process.http, beat.wall_ms)
        for beat in beats
        if beat.process is not None and beat.process.role == COMPACTOR
    ]


async def _groups(brokers: Brokers) -> tuple[dict[str, int], list[str]]:
    try:
        listed = await listed_groups(brokers)
    except (ClientError, RequestFailed) as error:
        return {}, [str(error)]
    return dict(Counter(group.group_state for group in listed)), []
