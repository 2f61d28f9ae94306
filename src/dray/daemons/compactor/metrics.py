"""The metrics of compactors, from the events of their cycles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.base.telemetry import ProcessMetrics
from dray.base.telemetry.instruments import Family, Gauge, Instruments
from dray.log.jobs.clean_shares import CleanShares
from dray.tables.compaction.summary import Backlog, Cause, CompactionObserver, CycleSummary, Phase

SECONDS: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
"""From an idle cycle to hours on a backlog."""


class CompactorMetrics(CompactionObserver):
    """`topics`: how many topics, those furthest behind, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, wall_ms: Callable[[], int], topics: int = 50) -> None:
        self._wall_ms = wall_ms
        self._topics = topics
        self._lost = metrics.lost_objects
        self._deleted = metrics.deleted
        self._held = metrics.deletions_held
        self._define_cycles(metrics.instruments)
        self._define_results(metrics.instruments)
        self._backlog = _BacklogGauges(metrics, "dray_compaction_backlog", "Over all topics")
        self._topic_backlog = _BacklogGauges(
            metrics, "dray_compaction_topic_backlog", "Of the topics furthest behind", "topic"
        )
        self._by_key = _ByKeyMetrics(metrics, topics)
        for phase in Phase:
            self._phase_seconds.labels(phase.value)
        for cause in Cause:
            self._troubles.labels(cause.value)  # so that a first one is seen as an increase

    def _define_cycles(self, make: Instruments) -> None:
        self._cycles = make.counters(
            "dray_compaction_cycles",
            "Cycles: `done`, `troubled` (something stood still), `interrupted`",
            "outcome",
        )
        self._cycle_seconds = make.histogram("dray_compaction_cycle_seconds", "Length of a cycle", SECONDS)
        self._phase_seconds = make.histograms(
            "dray_compaction_phase_seconds",
            "Length of a phase: `plan`, `write`, `commit`, `swap`, `retain`, `collect`",
            "phase",
            bounds=SECONDS,
        )
        self._last_cycle = make.gauge(
            "dray_compaction_last_cycle_timestamp_seconds", "When the last whole cycle ended, as Unix time"
        )
        self._last_clean_cycle = make.gauge(
            "dray_compaction_last_clean_cycle_timestamp_seconds",
            "When the last cycle ended in which nothing stood still, as Unix time",
        )
        self._streams = make.gauge("dray_compaction_streams", "Partitions of all topics")
        self._looked = make.counter(
            "dray_compaction_streams_read", "Looks at the index of a partition; an idle cluster has few"
        )
        self._kept = make.counter(
            "dray_compaction_tables_kept",
            "Tables that were held against the log, since something had changed",
        )
        self._units = make.counter("dray_compaction_units", "Units of work given to Spark")
        self._in_flight = make.gauge("dray_compaction_units_in_flight", "Units that Spark has not answered")
        self._stands_still = make.gauge(
            "dray_compaction_spark_stands_still", "1 while Spark gets no further with what it was given"
        )
        self._overdue = make.counter(
            "dray_compaction_tasks_overdue", "Tasks of Spark that got no further and were ended"
        )

    def _define_results(self, make: Instruments) -> None:
        self._files = make.counter("dray_compaction_files", "Parquet files written")
        self._records = make.counter("dray_compaction_records", "Records written to files")
        self._input = make.counter("dray_compaction_input_bytes", "Bytes of WAL objects and files compacted")
        self._output = make.counter("dray_compaction_output_bytes", "Bytes of files written")
        self._jobs = make.counters(
            "dray_compaction_jobs",
            "Jobs: `finished`, `abandoned`, `waiting` (for a table, once per cycle), `left_to_others`, "
            "`without_table` (the log went on)",
            "outcome",
        )
        self._troubles = make.counters(
            "dray_compaction_troubles",
            "What stood still in a cycle: `unit` (a file was not written), `store`, `table`",
            "cause",
        )
        self._commits = make.counters(
            "dray_compaction_table_commits",
            "Commits of tables: `done`, `raced` (tried again), `refused`",
            "outcome",
        )
        self._commit_seconds = make.histogram(
            "dray_compaction_table_commit_seconds", "Length of a commit of a table", SECONDS
        )
        self._left = make.gauge(
            "dray_compaction_left_tables",
            "Partitions whose log went on without their table, which has not caught up yet",
        )
        self._raised = make.counter("dray_compaction_starts_raised", "Partitions from which records expired")
        self._removed = make.counters(
            "dray_compaction_removed",
            "What collectors removed: `files`, `table_metadata`, `table_files`, `snapshots`, `tables`, "
            "`index_entries`",
            "kind",
        )
        self._pending = make.gauge(
            "dray_compaction_files_pending", "Files that nobody needs, in their grace time"
        )

    def progress(self, phase: Phase, done: int, total: int) -> None:
        if phase is Phase.WRITE:
            self._in_flight.value = total - done

    def took(self, phase: Phase, seconds: float) -> None:
        self._phase_seconds.labels(phase.value).observe(seconds)

    def committed(self, seconds: float, outcome: str) -> None:
        self._commits.labels(outcome).value += 1
        self._commit_seconds.observe(seconds)

    def stands_still(self, reason: str | None) -> None:
        self._stands_still.value = float(reason is not None)

    def overdue(self, tasks: int) -> None:
        self._overdue.value += tasks

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
        self._kept.value += summary.tables_kept
        self._units.value += summary.units
        self._in_flight.value = 0
        self._files.value += summary.files
        self._records.value += summary.records
        self._input.value += summary.input_bytes
        self._output.value += summary.output_bytes
        self._raised.value += summary.raised
        self._pending.value = summary.files_pending
        self._left.value = summary.left_tables
        for trouble in summary.troubles:
            self._troubles.labels(trouble.cause.value).value += 1
        for outcome, jobs in (
            ("finished", summary.finished),
            ("abandoned", summary.abandoned),
            ("waiting", summary.waiting),
            ("left_to_others", summary.left_to_others),
            ("without_table", summary.without_table),
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
        if summary.collected:
            self._lost.value = len(summary.lost)
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


class _ByKeyMetrics:
    """Of compaction by key: what of compacted topics is clean, dirty and in no file yet. `topics`: how many
    topics, the dirtiest ones, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, topics: int) -> None:
        self._topics = topics
        make = metrics.instruments
        self._removed = make.counter(
            "dray_compaction_by_key_removed_records", "Records that compaction by key left out of files"
        )
        self._rounds = make.counter(
            "dray_compaction_by_key_rounds",
            "Cleaning rounds that began: partitions too large to be compacted by key in one piece",
        )
        self._records = make.gauges(
            "dray_compaction_by_key_records",
            "Records of compacted topics: `clean` (one of each key), `dirty` (in files above the clean "
            "point), `waiting` (in no file yet)",
            "part",
        )
        self._bytes = make.gauges(
            "dray_compaction_by_key_bytes", "Bytes of compacted topics, by what they are", "part"
        )
        self._last = make.gauge(
            "dray_compaction_by_key_last_timestamp_seconds",
            "When a partition last became clean, as Unix time; 0 if none has",
        )
        self._dirty = make.gauges(
            "dray_compaction_topic_dirty_bytes",
            "Of the dirtiest topics: bytes of files not compacted by key",
            "topic",
        )
        self._ratio = make.gauges(
            "dray_compaction_topic_dirty_ratio",
            "Of the same: their share of the bytes of files; compare `min.cleanable.dirty.ratio`",
            "topic",
        )
        self._show_parts(CleanShares())

    def show(self, summary: CycleSummary) -> None:
        self._removed.value += summary.removed_by_key
        self._rounds.value += summary.key_rounds
        by_topic = summary.clean_shares
        self._show_parts(sum(by_topic.values(), CleanShares()))
        worst = sorted(by_topic, key=lambda topic: (-by_topic[topic].dirty.size, topic))[: self._topics]
        for family in (self._dirty, self._ratio):
            family.keep_only((topic,) for topic in worst)
        for topic in worst:
            self._dirty.labels(topic).value = by_topic[topic].dirty.size
            self._ratio.labels(topic).value = by_topic[topic].dirty_ratio

    def _show_parts(self, shares: CleanShares) -> None:
        for part, share in (("clean", shares.clean), ("dirty", shares.dirty), ("waiting", shares.waiting)):
            self._records.labels(part).value = share.records
            self._bytes.labels(part).value = share.size
        self._last.value = (shares.cleaned_ms or 0) / 1000
