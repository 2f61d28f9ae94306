"""The metrics of brokers and compactors, from the events of their rooms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.compaction.summary import Backlog, Cause, CompactionObserver, CycleSummary, Phase
from dray.daemon.by_key_metrics import ByKeyMetrics
from dray.groups.coordinator import GROUP_STATES, Groups, GroupsObserver
from dray.log import Collection, LogObserver
from dray.protocol import SCHEMAS, ApiKey
from dray.security.audit import AuditLog
from dray.telemetry import ApiMetrics, Metrics, ProcessMetrics
from dray.telemetry.instruments import Family, Gauge

SECONDS: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
"""From an idle cycle to hours on a backlog."""

# --- a broker


class MeasuredLog(LogObserver):
    """The events of the log, in the broker's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
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


class MeasuredRequests:
    """The requests that the dispatcher reports, in the broker's metrics. An API has series from its first
    request on."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._by_key: dict[int, ApiMetrics] = {}

    def __call__(self, api_key: int, seconds: float, ended_well: bool) -> None:
        api = self._by_key.get(api_key)
        if api is None:
            api = self._by_key[api_key] = self._metrics.api(SCHEMAS[api_key].name)
        api.finished(seconds, failed=not ended_well)
        if api_key == ApiKey.PRODUCE:
            self._metrics.produce_seconds.observe(seconds)


# --- a compactor


class CompactorMetrics(CompactionObserver):
    """`topics`: how many topics, those furthest behind, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, wall_ms: Callable[[], int], topics: int) -> None:
        self._wall_ms = wall_ms
        self._topics = topics
        self._deleted = metrics.deleted
        self._held = metrics.deletions_held
        make = metrics.instruments
        self._cycles = make.counters("dray_compaction_cycles", "Cycles, by how they ended", "outcome")
        self._cycle_seconds = make.histogram("dray_compaction_cycle_seconds", "Length of a cycle", SECONDS)
        self._phase_seconds = make.histograms(
            "dray_compaction_phase_seconds", "Length of a phase of a round or cycle", "phase", bounds=SECONDS
        )
        self._last_cycle = make.gauge(
            "dray_compaction_last_cycle_timestamp_seconds", "When the last whole cycle ended, as Unix time"
        )
        self._last_clean_cycle = make.gauge(
            "dray_compaction_last_clean_cycle_timestamp_seconds",
            "When the last cycle ended in which nothing stood still, as Unix time",
        )
        self._streams = make.gauge("dray_compaction_streams", "Partitions of all topics")
        self._looked = make.counter("dray_compaction_streams_read", "Looks at the index of a partition")
        self._units = make.counter("dray_compaction_units", "Units of work given to Spark")
        self._in_flight = make.gauge("dray_compaction_units_in_flight", "Units that Spark has not answered")
        self._files = make.counter("dray_compaction_files", "Parquet files written")
        self._records = make.counter("dray_compaction_records", "Records written to files")
        self._input = make.counter("dray_compaction_input_bytes", "Bytes of WAL objects and files compacted")
        self._output = make.counter("dray_compaction_output_bytes", "Bytes of files written")
        self._jobs = make.counters("dray_compaction_jobs", "Jobs, by what became of them", "outcome")
        self._troubles = make.counters(
            "dray_compaction_troubles", "Partitions and tables that stood still in a cycle", "cause"
        )
        self._commits = make.counters("dray_compaction_table_commits", "Commits of tables", "outcome")
        self._commit_seconds = make.histogram(
            "dray_compaction_table_commit_seconds", "Length of a commit of a table", SECONDS
        )
        self._raised = make.counter("dray_compaction_starts_raised", "Partitions from which records expired")
        self._removed = make.counters("dray_compaction_removed", "What collectors removed", "kind")
        self._pending = make.gauge(
            "dray_compaction_files_pending", "Files that nobody needs, in their grace time"
        )
        self._backlog = _BacklogGauges(metrics, "dray_compaction_backlog", "Over all topics")
        self._topic_backlog = _BacklogGauges(
            metrics, "dray_compaction_topic_backlog", "Of the topics furthest behind", "topic"
        )
        self._by_key = ByKeyMetrics(metrics, topics)
        for phase in Phase:
            self._phase_seconds.labels(phase.value)
        for cause in Cause:
            self._troubles.labels(cause.value)  # so that a first one is seen as an increase

    def progress(self, phase: Phase, done: int, total: int) -> None:
        if phase is Phase.WRITE:
            self._in_flight.value = total - done

    def took(self, phase: Phase, seconds: float) -> None:
        self._phase_seconds.labels(phase.value).observe(seconds)

    def committed(self, seconds: float, outcome: str) -> None:
        self._commits.labels(outcome).value += 1
        self._commit_seconds.observe(seconds)

    def interrupted(self) -> None:
        self._cycles.labels("interrupted").value += 1
        self._in_flight.value = 0

    def records_deleted(self, why: str, records: int) -> None:
        self._deleted.labels(f"records_{why}").value += records

    def finished(self, summary: CycleSummary) -> None:
        now = self._wall_ms()
        self._cycles.labels("troubled" if summary.troubles else "done").value += 1
        self._cycle_seconds.observe(summary.seconds)
        self._last_cycle.value = now / 1000
        if not summary.troubles:
            self._last_clean_cycle.value = now / 1000
        self._streams.value = summary.streams
        self._looked.value += summary.looked
        self._units.value += summary.units
        self._in_flight.value = 0
        self._files.value += summary.files
        self._records.value += summary.records
        self._input.value += summary.input_bytes
        self._output.value += summary.output_bytes
        self._raised.value += summary.raised
        self._pending.value = summary.files_pending
        for trouble in summary.troubles:
            self._troubles.labels(trouble.cause.value).value += 1
        for outcome, jobs in (
            ("finished", summary.finished),
            ("abandoned", summary.abandoned),
            ("waiting", summary.waiting),
            ("left_to_others", summary.left_to_others),
        ):
            self._jobs.labels(outcome).value += jobs
        for kind, removed in (
            ("files", summary.files_deleted),
            ("table_metadata", summary.metadata_deleted),
            ("table_files", summary.table_files_removed),
            ("snapshots", summary.snapshots_expired),
            ("tables", summary.tables_dropped),
            ("index_entries", summary.swept),
        ):
            self._removed.labels(kind).value += removed
        for kind, deleted in (
            ("parquet", summary.files_deleted),
            ("table_metadata", summary.metadata_deleted),
            ("table", summary.tables_dropped),
        ):
            self._deleted.labels(kind).value += deleted
        for reason, held in (("owner", summary.held), ("brake", summary.braked)):
            self._held.labels(reason).value += held is not None
        self._show_backlog(summary.backlog, now)
        self._by_key.show(summary)

    def _show_backlog(self, by_topic: dict[str, Backlog], now_ms: int) -> None:
        self._backlog.show(sum(by_topic.values(), Backlog()), now_ms)
        worst = sorted(by_topic, key=lambda topic: (-by_topic[topic].size, topic))[: self._topics]
        self._topic_backlog.keep_only(worst)
        for topic in worst:
            self._topic_backlog.show(by_topic[topic], now_ms, topic)


class _BacklogGauges:
    def __init__(self, metrics: ProcessMetrics, name: str, whose: str, *labels: str) -> None:
        def gauges(part: str, what: str) -> Family[Gauge]:
            return metrics.instruments.gauges(f"{name}_{part}", f"{whose}: {what}", *labels)

        self._records = gauges("records", "records that are in no file yet")
        self._bytes = gauges("bytes", "bytes of WAL objects that are in no file yet")
        self._entries = gauges("entries", "index entries of WAL objects")
        self._seconds = gauges("seconds", "age of the oldest record that is in no file yet")

    def show(self, backlog: Backlog, now_ms: int, *labels: str) -> None:
        age = 0 if backlog.oldest_ms is None else max(0, now_ms - backlog.oldest_ms)
        self._records.labels(*labels).value = backlog.records
        self._bytes.labels(*labels).value = backlog.size
        self._entries.labels(*labels).value = backlog.entries
        self._seconds.labels(*labels).value = age / 1000

    def keep_only(self, topics: list[str]) -> None:
        for family in (self._records, self._bytes, self._entries, self._seconds):
            family.keep_only((topic,) for topic in topics)
