"""For each alert, what makes it fire and what leaves it silent: series as promtool's tests have them, one
value a minute for eight hours. No two cases have the same series, so that all can be tried together."""

from __future__ import annotations

from typing import NamedTuple

Series = dict[str, str]


class AlertCase(NamedTuple):
    fires: Series
    silent: Series


def steady(series: str, value: float) -> Series:
    return {series: f"{value}x480"}


def growing(series: str, step: float, start: float = 0) -> Series:
    return {series: f"{start}{step:+}x480"}


def buckets(histogram: str, labels: str, by_bound: dict[str, float]) -> Series:
    """So many observations a minute at or below each bound."""
    more = f", {labels}" if labels else ""
    return {
        f'{histogram}_bucket{{instance="a", le="{bound}"{more}}}': f"0+{step}x480"
        for bound, step in by_bound.items()
    }


FAST, SLOW = {"0.1": 600.0, "5.0": 600.0, "+Inf": 600.0}, {"0.1": 300.0, "5.0": 600.0, "+Inf": 600.0}

CASES: dict[str, AlertCase] = {
    "DrayProcessDown": AlertCase(
        steady('up{job="dray-brokers", instance="a"}', 0),
        steady('up{job="dray-brokers", instance="a"}', 1) | steady('up{job="node", instance="a"}', 0),
    ),
    "DrayNoBroker": AlertCase(
        steady('dray_build_info{role="compactor"}', 1), steady('dray_build_info{role="broker"}', 1)
    ),
    "DrayTaskEnded": AlertCase(
        steady('dray_background_tasks_ended{instance="a"}', 1),
        steady('dray_background_tasks_ended{instance="a"}', 0),
    ),
    "DrayBackgroundFailing": AlertCase(
        growing('dray_background_failures_total{instance="a", task="x"}', 1),
        steady('dray_background_failures_total{instance="a", task="x"}', 7),
    ),
    "DrayClockDoubted": AlertCase(
        steady('dray_clock_doubted{instance="a"}', 1), steady('dray_clock_doubted{instance="a"}', 0)
    ),
    "DrayMetadataHeld": AlertCase(
        steady('dray_metadata_held{instance="a"}', 1), steady('dray_metadata_held{instance="a"}', 0)
    ),
    "DrayObjectsLost": AlertCase(
        steady('dray_lost_objects{instance="a"}', 1), steady('dray_lost_objects{instance="a"}', 0)
    ),
    "DrayForeignSegmentsMissing": AlertCase(
        steady('dray_foreign_segments_missing{instance="a"}', 2),
        steady('dray_foreign_segments_missing{instance="a"}', 0),
    ),
    "DrayPartitionsFailing": AlertCase(
        growing('dray_errors_total{instance="f", api="Fetch", error="CORRUPT_MESSAGE"}', 60)
        | growing('dray_partitions_asked_total{instance="f", api="Fetch"}', 6000),
        # What a client sends damaged, or asks for where nothing is, is its own.
        growing('dray_errors_total{instance="f", api="Produce", error="CORRUPT_MESSAGE"}', 60)
        | growing('dray_partitions_asked_total{instance="f", api="Produce"}', 6000)
        | growing('dray_partitions_acknowledged_total{instance="f"}', 5940)
        | growing('dray_errors_total{instance="f", api="Fetch", error="OFFSET_OUT_OF_RANGE"}', 60)
        | growing('dray_partitions_asked_total{instance="f", api="Fetch"}', 6000),
    ),
    "DrayNothingAcknowledged": AlertCase(
        growing('dray_partitions_asked_total{instance="n", api="Produce"}', 6)
        | steady('dray_partitions_acknowledged_total{instance="n"}', 1000),
        growing('dray_partitions_asked_total{instance="n", api="Produce"}', 6)
        | growing('dray_partitions_acknowledged_total{instance="n"}', 1)
        | steady('dray_partitions_asked_total{instance="idle", api="Produce"}', 6),
    ),
    "DrayDiskFull": AlertCase(
        steady('dray_appends_held{instance="a"}', 1), steady('dray_appends_held{instance="a"}', 0)
    ),
    "DrayOffsetsFailing": AlertCase(
        growing('dray_errors_total{instance="o", api="OffsetCommit", error="COORDINATOR_NOT_AVAILABLE"}', 6),
        # A group that rebalances, or has another coordinator by now.
        growing('dray_errors_total{instance="o", api="OffsetCommit", error="REBALANCE_IN_PROGRESS"}', 6)
        | growing('dray_errors_total{instance="o", api="OffsetFetch", error="NOT_COORDINATOR"}', 6)
        | growing(
            'dray_errors_total{instance="o", api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE"}', 6
        ),
    ),
    "DrayUnreadableValues": AlertCase(
        steady('dray_unreadable_values{instance="a", kind="high watermark"}', 2),
        steady('dray_unreadable_values{instance="a", kind="topic"}', 0),
    ),
    "DrayCertificateExpires": AlertCase(
        steady('dray_certificate_expires_timestamp_seconds{instance="a", listener="clients"}', 13 * 86400),
        steady('dray_certificate_expires_timestamp_seconds{instance="a", listener="clients"}', 15 * 86400),
    ),
    "DrayMetadataStoreFailing": AlertCase(
        growing('dray_metadata_failures_total{instance="a", operation="get", error="Unavailable"}', 60),
        growing('dray_metadata_failures_total{instance="a", operation="get", error="Unavailable"}', 1),
    ),
    "DrayMetadataStoreSlow": AlertCase(
        buckets("dray_metadata_seconds", 'operation="get"', SLOW),
        buckets("dray_metadata_seconds", 'operation="get"', FAST),
    ),
    "DrayObjectStoreFailing": AlertCase(
        growing('dray_object_store_failures_total{instance="a", operation="put", error="Timeout"}', 60),
        # A broker's readiness asks for an object that is never there.
        growing(
            'dray_object_store_failures_total{instance="a", operation="head", error="ObjectMissing"}', 60
        ),
    ),
    "DrayObjectStoreSlow": AlertCase(
        buckets("dray_object_store_seconds", 'operation="put"', SLOW),
        buckets("dray_object_store_seconds", 'operation="get"', SLOW)
        | buckets("dray_object_store_seconds", 'operation="put"', FAST),
    ),
    "DrayProduceSlow": AlertCase(
        buckets("dray_produce_seconds", "", SLOW), buckets("dray_produce_seconds", "", FAST)
    ),
    "DrayRequestMemoryFull": AlertCase(
        steady('dray_frame_memory_waiting_connections{instance="a"}', 3),
        {'dray_frame_memory_waiting_connections{instance="a"}': "0 3 0 3x2 0x470"},
    ),
    "DrayAnswerMemoryFull": AlertCase(
        steady('dray_answer_memory_waiting_requests{instance="a"}', 3),
        steady('dray_answer_memory_waiting_requests{instance="a"}', 0),
    ),
    "DrayConnectionsRefused": AlertCase(
        growing('dray_connections_refused_total{instance="a"}', 1),
        steady('dray_connections_refused_total{instance="a"}', 5),
    ),
    "DrayEventLoopHeldUp": AlertCase(
        growing('dray_loop_slow_turns_total{instance="a"}', 1),
        steady('dray_loop_slow_turns_total{instance="a"}', 2),
    ),
    "DrayCommitsContended": AlertCase(
        growing('dray_commit_retries_total{instance="a"}', 300)
        | growing('dray_wal_flush_seconds_count{instance="a"}', 100),
        growing('dray_commit_retries_total{instance="a"}', 30)
        | growing('dray_wal_flush_seconds_count{instance="a"}', 100),
    ),
    "DrayGroupsLost": AlertCase(
        growing('dray_groups_lost_total{instance="a"}', 1), steady('dray_groups_lost_total{instance="a"}', 9)
    ),
    "DrayGroupLagGrowing": AlertCase(
        steady('dray_group_lag_seconds{instance="a", group="g", topic="t"}', 900)
        | growing('dray_group_lag_records{instance="a", group="g", topic="t"}', 10),
        # One is old and shrinks, the other grows and is young.
        steady('dray_group_lag_seconds{instance="a", group="old", topic="t"}', 900)
        | growing('dray_group_lag_records{instance="a", group="old", topic="t"}', -10, 9000)
        | steady('dray_group_lag_seconds{instance="a", group="young", topic="t"}', 5)
        | growing('dray_group_lag_records{instance="a", group="young", topic="t"}', 10),
    ),
    "DrayOrphansGrowing": AlertCase(
        growing('dray_collection_orphan_objects{instance="a"}', 10),
        steady('dray_collection_orphan_objects{instance="a"}', 5000),
    ),
    "DrayDeletionsHeld": AlertCase(
        growing('dray_deletions_held_total{instance="a", reason="brake"}', 1),
        steady('dray_deletions_held_total{instance="a", reason="brake"}', 1),
    ),
    "DrayCompactionNotClean": AlertCase(
        steady('dray_compaction_last_clean_cycle_timestamp_seconds{instance="a", job="dray"}', 60)
        | steady('process_start_time_seconds{instance="a", job="dray"}', 0),
        # The first is clean all the time, the second has only just been started.
        growing('dray_compaction_last_clean_cycle_timestamp_seconds{instance="a", job="dray"}', 60)
        | steady('process_start_time_seconds{instance="a", job="dray"}', 0)
        | steady('dray_compaction_last_clean_cycle_timestamp_seconds{instance="b", job="dray"}', 0)
        | growing('process_start_time_seconds{instance="b", job="dray"}', 60),
    ),
    "DrayTablesBehind": AlertCase(
        steady('dray_compaction_backlog_seconds{instance="a"}', 300)
        | steady('dray_compaction_left_tables{instance="a"}', 2),
        steady('dray_compaction_backlog_seconds{instance="a"}', 300)
        | steady('dray_compaction_left_tables{instance="a"}', 0),
    ),
    "DrayPutsExpensive": AlertCase(
        growing('dray_object_store_seconds_count{instance="a", operation="put"}', 60_000)
        | growing('dray_received_bytes_total{instance="a"}', 120_000_000),
        # An idle cluster has few bytes to share its puts.
        growing('dray_object_store_seconds_count{instance="a", operation="put"}', 60)
        | growing('dray_received_bytes_total{instance="a"}', 60_000),
    ),
    "DrayMigrationNotWorkedOn": AlertCase(
        # Both migrators see three topics, and have one each.
        steady('dray_migration_topics{instance="a", state="mirroring"}', 2)
        | steady('dray_migration_topics{instance="a", state="pending"}', 1)
        | steady('dray_migration_topics{instance="b", state="mirroring"}', 2)
        | steady('dray_migration_topics{instance="b", state="pending"}', 1)
        | steady('dray_migration_worked_topics{instance="a"}', 1)
        | steady('dray_migration_worked_topics{instance="b"}', 1),
        steady('dray_migration_topics{instance="a", state="mirroring"}', 2)
        | steady('dray_migration_topics{instance="b", state="mirroring"}', 2)
        | steady('dray_migration_worked_topics{instance="a"}', 2)
        | steady('dray_migration_worked_topics{instance="b"}', 0),
    ),
    "DrayMirrorStopped": AlertCase(
        steady('dray_mirror_stopped_partitions{instance="a"}', 1),
        steady('dray_mirror_stopped_partitions{instance="a"}', 0),
    ),
    "DrayMirrorSilent": AlertCase(
        growing('dray_mirror_silent_seconds{instance="a"}', 60),
        steady('dray_mirror_silent_seconds{instance="a"}', 3),
    ),
    "DrayMirrorLagGrowing": AlertCase(
        steady('dray_mirror_lag_seconds{instance="a"}', 900)
        | growing('dray_mirror_lag_records{instance="a"}', 10),
        # One catches up, the other keeps up with a source that grows.
        steady('dray_mirror_lag_seconds{instance="old"}', 900)
        | growing('dray_mirror_lag_records{instance="old"}', -10, 9000)
        | steady('dray_mirror_lag_seconds{instance="young"}', 2)
        | growing('dray_mirror_lag_records{instance="young"}', 10),
    ),
    "DraySwitchStuck": AlertCase(
        growing('dray_migration_state_seconds{instance="a", state="pending"}', 60),
        steady('dray_migration_state_seconds{instance="a", state="pending"}', 200)
        | growing('dray_migration_state_seconds{instance="a", state="mirroring"}', 60),
    ),
    "DrayGroupsNotFollowed": AlertCase(
        growing('dray_migration_unfollowed_seconds{instance="a"}', 60),
        steady('dray_migration_unfollowed_seconds{instance="a"}', 4),
    ),
    "DrayStragglers": AlertCase(
        steady('dray_migration_straggler_offsets{instance="a"}', 4),
        steady('dray_migration_straggler_offsets{instance="a"}', 0),
    ),
    "DrayForwardingFailing": AlertCase(
        growing('dray_forwarded_batches_total{instance="a", outcome="failed"}', 60),
        # What the source refuses by itself is the client's matter.
        growing('dray_forwarded_batches_total{instance="a", outcome="refused"}', 60)
        | growing('dray_forwarded_batches_total{instance="a", outcome="source"}', 6000)
        | growing('dray_forwarded_batches_total{instance="a", outcome="failed"}', 1),
    ),
}
