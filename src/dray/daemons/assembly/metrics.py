"""The metrics of brokers, from the events of their rooms."""

from __future__ import annotations

from collections.abc import Mapping

from dray.base.telemetry import ApiMetrics, Metrics, ProcessMetrics
from dray.broker.groups.coordinator import GROUP_STATES, Groups, GroupsObserver
from dray.broker.security.audit import AuditLog
from dray.broker.server.tls.listener import ServerCertificate
from dray.daemons.assembly.instrumented_stores import InstrumentedObjectStore
from dray.kafka.protocol import SCHEMAS, ApiKey
from dray.log import Collection, LogObserver
from dray.log.types import ObjectCorrupt


class MeasuredLog(LogObserver):
    """The events of the log, in the broker's metrics. Its bad reads say how its store works."""

    def __init__(self, metrics: Metrics, objects: InstrumentedObjectStore | None = None) -> None:
        self._metrics = metrics
        self._objects = objects
        self.held: str | None = None
        """Why the last round of collection deleted nothing, or not all."""

    def flushed(self, size: int, seconds: float) -> None:
        self._metrics.wal_flush_bytes.observe(size)
        self._metrics.wal_flush_seconds.observe(seconds)

    def carried(self, batches: int, size: int) -> None:
        self._metrics.carried_batches.value += batches
        self._metrics.carried_bytes.value += size

    def lane_switched(self, why: str) -> None:
        self._metrics.lane_switches.labels(why).value += 1

    def backlog(self, domain: int, size: int, age: float) -> None:
        self._metrics.carried_backlog_bytes.labels(str(domain)).value = size
        self._metrics.carried_backlog_seconds.labels(str(domain)).value = age

    def packed(self, entries: int, size: int) -> None:
        self._metrics.packed_entries.value += entries
        self._metrics.packed_bytes.value += size
        self._metrics.packs.value += 1

    def pack_lost(self) -> None:
        self._metrics.pack_conflicts.value += 1

    def commit_retried(self) -> None:
        self._metrics.commit_retries.value += 1

    def tail_cache(self, size: int) -> None:
        self._metrics.tail_cache_bytes.value = size

    def polling(self, count: int) -> None:
        self._metrics.open_long_polls.value = count

    def fetched(self, seconds: float) -> None:
        self._metrics.fetch_seconds.observe(seconds)

    def read_badly(self, error: Exception) -> None:
        if self._objects is not None:
            self._objects.answered_badly(error)

    def read_damaged(self) -> None:
        self._metrics.object_failures.labels("get_ranges", ObjectCorrupt.__name__).value += 1

    def read_well(self) -> None:
        if self._objects is not None:
            self._objects.answered_well()

    def collected(self, seen: Collection) -> None:
        self.held = seen.held or seen.braked
        if self.held is not None:
            self._metrics.deletions_held.labels("owner" if seen.held else "brake").value += 1
        if seen.held is None:
            self._metrics.collection_orphans.value = seen.standing + seen.unknown
            self._metrics.collection_pending.value = seen.pending
        self._metrics.collection_resolved.value += seen.orphans
        self._metrics.deleted.labels("wal").value += seen.deleted

    def records_deleted(self, why: str, records: int) -> None:
        self._metrics.deleted.labels(f"records_{why}").value += records


class MeasuredGroups(GroupsObserver):
    """The events of groups, in the broker's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def rebalanced(self, kind: str) -> None:
        self._metrics.group_rebalances.labels(kind).value += 1

    def member_expired(self, kind: str) -> None:
        self._metrics.group_members_expired.labels(kind).value += 1

    def committed(self, offsets: int, seconds: float) -> None:
        self._metrics.group_offsets_committed.value += offsets
        self._metrics.group_commit_seconds.observe(seconds)

    def taken(self) -> None:
        self._metrics.groups_taken.value += 1

    def lost(self) -> None:
        self._metrics.groups_lost.value += 1


def measure_groups(metrics: Metrics, groups: Groups) -> None:
    for kind, state in GROUP_STATES:
        metrics.groups.labels(kind, state).follow(
            lambda kind=kind, state=state: groups.census().get((kind, state), 0)  # type: ignore[misc]
        )


def measure_audit(metrics: Metrics, audit: AuditLog) -> None:
    audit.count = lambda outcome: metrics.audited.labels(outcome).increment()


def measure_certificates(
    metrics: ProcessMetrics, by_listener: Mapping[str, ServerCertificate | None]
) -> None:
    for name, certificate in by_listener.items():
        if certificate is not None:
            ends = metrics.certificate_ends.labels(name)
            ends.follow(lambda held=certificate: held.ends_ms / 1000)  # type: ignore[misc]


class MeasuredRequests:
    """The requests that the dispatcher reports, in the broker's metrics. An API has series from its first
    request on."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_key: dict[int, ApiMetrics] = {}

    def __call__(self, api_key: int, seconds: float, outcome: str) -> None:
        api = self._by_key.get(api_key)
        if api is None:
            api = self._by_key[api_key] = self._metrics.api(SCHEMAS[api_key].name)
        api.finished(seconds, outcome)
        if api_key == ApiKey.PRODUCE:
            self._metrics.produce_seconds.observe(seconds)
