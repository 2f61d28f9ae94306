"""Alert rules for Prometheus, in the chart: `python -m tools.alerts` writes them.

Each has a section of its own name in one of the `RUNBOOKS`: what it means, what to look at, what to do.
Bounds are where a cluster of any size is in trouble; adapt them to what yours does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from tools.metric_series import metrics_in

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "deploy" / "helm" / "dray" / "monitoring" / "dray-alerts.yaml"
"""A chart reads files of its own folder alone."""
RUNBOOKS: Final = (ROOT / "docs" / "runbooks.md", ROOT / "docs" / "runbooks-migration.md")
_HEAD: Final = (
    "# Written by `python -m tools.alerts`. Scrape jobs of brokers, compactors and migrators have names\n"
    "# such as dray.\n"
    "# Runbooks are in docs/: put the address at which you keep them before `runbook_url`.\n"
)
PAGE: Final = "page"
TICKET: Final = "ticket"


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    wait: str
    """How long it holds before somebody is called."""
    severity: str
    summary: str

    @property
    def anchor(self) -> str:
        return self.name.lower()


def _p99(histogram: str, selector: str = "") -> str:
    return f"histogram_quantile(0.99, sum by (le, instance) (rate({histogram}_bucket{selector}[5m])))"


_OURS: Final = "KAFKA_STORAGE_ERROR|UNKNOWN_SERVER_ERROR|REQUEST_TIMED_OUT|NOT_LEADER_OR_FOLLOWER"
"""Errors that are no client's fault. Nobody but a broker is to blame for what it reads damaged, either."""

ALERTS: Final = (
    Alert(
        "DrayProcessDown",
        'up{job=~"(.*/)?dray.*"} == 0',
        "2m",
        PAGE,
        "{{ $labels.instance }} does not answer Prometheus.",
    ),
    Alert(
        "DrayNoBroker",
        'absent(dray_build_info{role="broker"})',
        "1m",
        PAGE,
        "No broker of the cluster answers.",
    ),
    Alert(
        "DrayTaskEnded",
        "dray_background_tasks_ended > 0",
        "2m",
        PAGE,
        "A task that should run in the background of {{ $labels.instance }} has ended.",
    ),
    Alert(
        "DrayBackgroundFailing",
        "sum by (instance, task) (increase(dray_background_failures_total[15m])) > 0",
        "0m",
        TICKET,
        "The task {{ $labels.task }} of {{ $labels.instance }} failed in a way that is not foreseen.",
    ),
    Alert(
        "DrayClockDoubted",
        "dray_clock_doubted == 1",
        "10m",
        TICKET,
        "The clock of {{ $labels.instance }} disagrees with others: nothing expires there.",
    ),
    Alert(
        "DrayMetadataHeld",
        "max(dray_metadata_held) > 0",
        "0m",
        PAGE,
        "The metadata store is a copy of the cluster's, or older than the bucket: nothing is written.",
    ),
    Alert(
        "DrayObjectsLost",
        "max(dray_lost_objects) > 0",
        "0m",
        PAGE,
        "Objects that the log's index names are gone: what they held cannot be read.",
    ),
    Alert(
        "DrayForeignSegmentsMissing",
        "max(dray_foreign_segments_missing) > 0",
        "5m",
        PAGE,
        "Segments of attached topics are gone: what they held cannot be read. The brokers' log names them.",
    ),
    Alert(
        "DrayPartitionsFailing",
        "sum by (instance, api) ("
        f'rate(dray_errors_total{{api="Produce", error=~"{_OURS}"}}[2m]) '
        f'or rate(dray_errors_total{{api="Fetch", error=~"{_OURS}|CORRUPT_MESSAGE"}}[2m])) '
        "/ sum by (instance, api) (rate(dray_partitions_asked_total[2m])) > 0",
        "3m",
        PAGE,
        "{{ $labels.instance }} answers {{ $value | humanizePercentage }} of the partitions in "
        "{{ $labels.api }} with an error.",
    ),
    Alert(
        "DrayNothingAcknowledged",
        'sum by (instance) (increase(dray_partitions_asked_total{api="Produce"}[5m])) > 0 '
        "unless sum by (instance) (increase(dray_partitions_acknowledged_total[5m])) > 0",
        "3m",
        PAGE,
        "{{ $labels.instance }} takes no record of what producers send it.",
    ),
    Alert(
        "DrayDiskFull",
        "max by (instance) (dray_appends_held) > 0",
        "0m",
        PAGE,
        "The disk of {{ $labels.instance }} is full: nothing is appended.",
    ),
    Alert(
        "DrayOffsetsFailing",
        'sum by (instance, api) (rate(dray_errors_total{api=~"OffsetCommit|OffsetFetch", '
        f'error=~"{_OURS}|COORDINATOR_NOT_AVAILABLE"}}[2m])) > 0',
        "3m",
        PAGE,
        "{{ $labels.instance }} answers {{ $labels.api }} of groups with errors.",
    ),
    Alert(
        "DrayUnreadableValues",
        "sum by (instance, kind) (dray_unreadable_values) > 0",
        "1m",
        PAGE,
        "{{ $labels.instance }} cannot read {{ $value }} stored values ({{ $labels.kind }}): a newer build "
        "wrote them, or they are damaged.",
    ),
    Alert(
        "DrayCertificateExpires",
        "min by (instance, listener) (dray_certificate_expires_timestamp_seconds) - time() < 14 * 86400",
        "0m",
        TICKET,
        "The certificate of {{ $labels.listener }} at {{ $labels.instance }} is over in "
        "{{ $value | humanizeDuration }}.",
    ),
    Alert(
        "DrayMetadataStoreFailing",
        "sum by (instance) (rate(dray_metadata_failures_total[5m])) > 0.1",
        "5m",
        PAGE,
        "{{ $labels.instance }} does not reach the metadata store, or not always.",
    ),
    Alert(
        "DrayMetadataStoreSlow",
        f"{_p99('dray_metadata_seconds')} > 0.5",
        "10m",
        TICKET,
        "The metadata store answers {{ $labels.instance }} slowly.",
    ),
    Alert(
        "DrayObjectStoreFailing",
        'sum by (instance) (rate(dray_object_store_failures_total{error!="ObjectMissing"}[5m])) > 0.1',
        "5m",
        PAGE,
        "{{ $labels.instance }} does not reach the object store, or not always.",
    ),
    Alert(
        "DrayObjectStoreSlow",
        _p99("dray_object_store_seconds", '{operation="put"}') + " > 3",
        "10m",
        TICKET,
        "Puts of {{ $labels.instance }} to the object store are slow.",
    ),
    Alert(
        "DrayProduceSlow",
        f"{_p99('dray_produce_seconds')} > 2",
        "10m",
        PAGE,
        "One produce request in a hundred takes more than 2 s on {{ $labels.instance }}.",
    ),
    Alert(
        "DrayRequestMemoryFull",
        "dray_frame_memory_waiting_connections > 0",
        "5m",
        TICKET,
        "Connections of {{ $labels.instance }} wait for memory: the stores are slower than the producers.",
    ),
    Alert(
        "DrayAnswerMemoryFull",
        "dray_answer_memory_waiting_requests > 0",
        "5m",
        TICKET,
        "Fetches of {{ $labels.instance }} wait for memory: clients ask for more than they read.",
    ),
    Alert(
        "DrayConnectionsRefused",
        "increase(dray_connections_refused_total[5m]) > 0",
        "0m",
        TICKET,
        "{{ $labels.instance }} refuses connections: it has as many as it may.",
    ),
    Alert(
        "DrayEventLoopHeldUp",
        "increase(dray_loop_slow_turns_total[15m]) > 3",
        "0m",
        TICKET,
        "Single requests hold {{ $labels.instance }} up, and all others wait.",
    ),
    Alert(
        "DrayCommitsContended",
        "sum by (instance) (rate(dray_commit_retries_total[10m])) > "
        "sum by (instance) (rate(dray_wal_flush_seconds_count[10m]))",
        "15m",
        TICKET,
        "Commits of {{ $labels.instance }} lose more often than they win: too many write to one domain.",
    ),
    Alert(
        "DrayGroupsLost",
        "increase(dray_groups_lost_total[15m]) > 0",
        "0m",
        TICKET,
        "{{ $labels.instance }} could not keep its leases, and gave groups up.",
    ),
    Alert(
        "DrayGroupLagGrowing",
        "max by (group, topic) (dray_group_lag_seconds) > 600 "
        "and max by (group, topic) (deriv(dray_group_lag_records[15m])) > 0",
        "15m",
        TICKET,
        "{{ $labels.group }} falls behind in {{ $labels.topic }}: its next record is {{ $value }} s old.",
    ),
    Alert(
        "DrayOrphansGrowing",
        "sum(delta(dray_collection_orphan_objects[6h])) > 1000",
        "1h",
        TICKET,
        "Objects gather that no broker finishes or deletes.",
    ),
    Alert(
        "DrayDeletionsHeld",
        "sum by (instance, reason) (increase(dray_deletions_held_total[2h])) > 0",
        "0m",
        TICKET,
        "{{ $labels.instance }} deletes nothing, or not all ({{ $labels.reason }}).",
    ),
    Alert(
        "DrayCompactionNotClean",
        "time() - dray_compaction_last_clean_cycle_timestamp_seconds > 3600 "
        "and on (instance, job) time() - process_start_time_seconds > 3600",
        "0m",
        TICKET,
        "{{ $labels.instance }} has had no cycle for an hour in which nothing stood still.",
    ),
    Alert(
        "DrayTablesBehind",
        "max(dray_compaction_backlog_seconds) > 3600 or max(dray_compaction_left_tables) > 0",
        "15m",
        TICKET,
        "Records are in no table for an hour, or the log of a topic went on without its table.",
    ),
    Alert(
        "DrayPutsExpensive",
        'sum(rate(dray_object_store_seconds_count{operation="put"}[1h])) '
        "/ (sum(rate(dray_received_bytes_total[1h])) / 1e9) > 50000 "
        "and sum(rate(dray_received_bytes_total[1h])) > 1e6",
        "1h",
        TICKET,
        "{{ $value }} puts for a gigabyte: objects are small, and each put costs money.",
    ),
    Alert(
        "DrayMigrationNotWorkedOn",
        "max(sum by (instance) (dray_migration_topics)) > sum(dray_migration_worked_topics)",
        "5m",
        TICKET,
        "Linked topics are worked on by no migrator: they are neither mirrored nor switched.",
    ),
    Alert(
        "DrayMirrorStopped",
        "sum by (instance) (dray_mirror_stopped_partitions) > 0",
        "1m",
        TICKET,
        "The mirror of {{ $value }} partitions cannot go on: their topics cannot be switched.",
    ),
    Alert(
        "DrayMirrorSilent",
        "max by (instance) (dray_mirror_silent_seconds) > 60",
        "2m",
        TICKET,
        "A source has not answered the mirror of {{ $labels.instance }} for {{ $value }} s.",
    ),
    Alert(
        "DrayMirrorLagGrowing",
        "max by (instance) (dray_mirror_lag_seconds) > 300 "
        "and max by (instance) (deriv(dray_mirror_lag_records[15m])) > 0",
        "10m",
        TICKET,
        "The mirror of {{ $labels.instance }} is {{ $value }} s behind its source, and falls further behind.",
    ),
    Alert(
        "DraySwitchStuck",
        'max(dray_migration_state_seconds{state="pending"}) > 900',
        "0m",
        PAGE,
        "A switch has not come to its end for {{ $value }} s: the source's writers may be fenced off.",
    ),
    Alert(
        "DrayGroupsNotFollowed",
        "max by (instance) (dray_migration_unfollowed_seconds) > 600",
        "0m",
        TICKET,
        "Groups of linked topics were not followed for {{ $value }} s: those of switched topics wait.",
    ),
    Alert(
        "DrayStragglers",
        "max(dray_migration_straggler_offsets) > 0",
        "0m",
        PAGE,
        "Something writes to the source of a topic that is Dray's: {{ $value }} offsets are there alone.",
    ),
    Alert(
        "DrayForwardingFailing",
        'sum by (instance) (rate(dray_forwarded_batches_total{outcome=~"failed|busy"}[5m])) > 0.1',
        "5m",
        PAGE,
        "{{ $labels.instance }} cannot pass on to the source what clients produce to linked topics.",
    ),
)


def runbook_of(alert: Alert) -> Path:
    return next(page for page in RUNBOOKS if f"\n## {alert.name}\n" in page.read_text())


def rendered() -> str:
    rules: list[dict[str, Any]] = []
    for alert in ALERTS:
        metrics_in(alert.expression)
        rules.append(
            {
                "alert": alert.name,
                "expr": alert.expression,
                "for": alert.wait,
                "labels": {"severity": alert.severity},
                "annotations": {
                    "summary": alert.summary,
                    "runbook_url": f"docs/{runbook_of(alert).name}#{alert.anchor}",
                },
            }
        )
    groups = {"groups": [{"name": "dray", "rules": rules}]}
    return _HEAD + yaml.safe_dump(groups, sort_keys=False, width=120)


def main() -> None:
    FILE.write_text(rendered())


if __name__ == "__main__":
    main()
