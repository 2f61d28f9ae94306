"""Grafana's dashboards, in the chart: `python -m tools.dashboards` writes them.

A panel is a title, a unit and expressions; what it explains comes from the help texts of the metrics in them.
"""

# ruff: noqa: E501 - an expression is a line

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.metric_series import MetricDefinition, definitions, metrics_in

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "helm" / "dray" / "monitoring"
"""A chart reads files of its own folder alone; whoever has no chart takes them from there."""
"""A chart reads files of its own folder alone."""
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_OURS: Final = 'job=~"$job"'


@dataclass(frozen=True)
class Query:
    expression: str
    legend: str = "{{instance}}"


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str
    queries: Sequence[Query]
    kind: str = "timeseries"
    width: int = 12

    @property
    def explained(self) -> str:
        known = {each.name: each for query in self.queries for each in metrics_in(query.expression)}
        return "\n\n".join(f"`{each.name}`: {each.help}." for each in known.values())


@dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    panels: Sequence[Panel]


def _rate(series: str, by: str = "instance", legend: str | None = None) -> Query:
    return Query(f"sum by ({by}) (rate({series}[$__rate_interval]))", legend or f"{{{{{by}}}}}")


def _quantiles(histogram: str, by: str = "", selector: str = "") -> list[Query]:
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    return [
        Query(
            f"histogram_quantile({share}, sum by ({labels}) "
            f"(rate({histogram}_bucket{selector}[$__rate_interval])))",
            f"p{name}{legend}",
        )
        for share, name in ((0.5, "50"), (0.99, "99"), (0.999, "99.9"))
    ]


_PUTS: Final = 'operation=~"put|put_if_absent|put_stream|list"'
_GETS: Final = 'operation=~"get|get_ranges|head"'

CLUSTER: Final = Dashboard(
    "cluster",
    "Dray: cluster",
    [
        Panel("Processes", "short", [Query(f"count by (role, version) (dray_build_info{{{_OURS}}})", "{{role}} {{version}}")], "stat", 6),
        Panel("Connections", "short", [Query(f"sum(dray_connections_active{{{_OURS}}})", "open")], "stat", 6),
        Panel("Groups", "short", [Query(f"sum by (state) (dray_groups{{{_OURS}}})", "{{state}}")], "stat", 6),
        Panel("Clocks in doubt", "short", [Query(f"sum(dray_clock_doubted{{{_OURS}}})", "doubted")], "stat", 6),
        Panel("From clients", "Bps", [_rate(f"dray_received_bytes_total{{{_OURS}}}")]),
        Panel("To clients", "Bps", [_rate(f"dray_sent_bytes_total{{{_OURS}}}")]),
        Panel("Requests", "reqps", [_rate(f"dray_requests_total{{{_OURS}}}", "api")]),
        Panel("Requests that failed, or were answered with an error", "reqps", [Query(f'sum by (api, outcome) (rate(dray_requests_total{{{_OURS}, outcome!="ok"}}[$__rate_interval]))', "{{api}}: {{outcome}}")]),
        Panel("Errors that clients were answered with", "short", [Query(f"sum by (api, error) (rate(dray_errors_total{{{_OURS}}}[$__rate_interval]))", "{{api}}: {{error}}")]),
        Panel("Partitions asked for, and records taken", "short", [
            _rate(f"dray_partitions_asked_total{{{_OURS}}}", "api"),
            _rate(f"dray_partitions_acknowledged_total{{{_OURS}}}", "instance", "acknowledged {{instance}}"),
        ]),
        Panel("Time left of certificates", "s", [Query(f"min by (instance, listener) (dray_certificate_expires_timestamp_seconds{{{_OURS}}}) - time()", "{{listener}} {{instance}}")]),
        Panel("Values that cannot be read", "short", [Query(f"max by (instance, kind) (dray_unreadable_values{{{_OURS}}})", "{{kind}} {{instance}}")]),
        Panel("Topics: bytes in", "Bps", [Query(f"topk(10, sum by (topic) (rate(dray_topic_produce_bytes_total{{{_OURS}}}[$__rate_interval])))", "{{topic}}")]),
        Panel("Topics: bytes out", "Bps", [Query(f"topk(10, sum by (topic) (rate(dray_topic_fetch_bytes_total{{{_OURS}}}[$__rate_interval])))", "{{topic}}")]),
        Panel("Topics: records in", "short", [Query(f"topk(10, sum by (topic) (rate(dray_topic_produce_records_total{{{_OURS}}}[$__rate_interval])))", "{{topic}}")]),
        Panel("Topics: requests", "reqps", [
            Query(f"topk(10, sum by (topic) (rate(dray_topic_produce_requests_total{{{_OURS}}}[$__rate_interval])))", "produce {{topic}}"),
            Query(f"topk(10, sum by (topic) (rate(dray_topic_fetch_requests_total{{{_OURS}}}[$__rate_interval])))", "fetch {{topic}}"),
            _rate(f"dray_topic_requests_of_others_total{{{_OURS}}}", "instance", "of other topics, {{instance}}"),
        ]),
        Panel("Connections accepted, refused, ended", "short", [
            _rate(f"dray_connections_accepted_total{{{_OURS}}}", "instance", "accepted {{instance}}"),
            _rate(f"dray_connections_refused_total{{{_OURS}}}", "instance", "refused {{instance}}"),
            _rate(f"dray_connections_closed_by_server_total{{{_OURS}}}", "reason", "ended: {{reason}}"),
        ]),
        Panel("Background", "short", [
            Query(f"sum by (instance) (dray_background_tasks_ended{{{_OURS}}})", "ended, {{instance}}"),
            _rate(f"dray_background_failures_total{{{_OURS}}}", "task", "failures of {{task}}"),
        ]),
    ],
)  # fmt: skip

LATENCY: Final = Dashboard(
    "latency",
    "Dray: latency and memory of brokers",
    [
        Panel("Produce", "s", _quantiles("dray_produce_seconds", selector=f"{{{_OURS}}}")),
        Panel("Fetch, without waiting", "s", _quantiles("dray_fetch_seconds", selector=f"{{{_OURS}}}")),
        Panel("Requests: p99 by API", "s", [Query(f"histogram_quantile(0.99, sum by (le, api) (rate(dray_request_seconds_bucket{{{_OURS}}}[$__rate_interval])))", "{{api}}")]),
        Panel("In flight", "short", [
            Query(f"sum by (instance) (dray_requests_in_flight{{{_OURS}}})", "requests {{instance}}"),
            Query(f"sum by (instance) (dray_open_long_polls{{{_OURS}}})", "long polls {{instance}}"),
        ]),
        Panel("WAL objects: time to be durable", "s", _quantiles("dray_wal_flush_seconds", selector=f"{{{_OURS}}}")),
        Panel("WAL objects: size", "bytes", _quantiles("dray_wal_flush_bytes", selector=f"{{{_OURS}}}")),
        Panel("Commits that aimed again", "short", [_rate(f"dray_commit_retries_total{{{_OURS}}}")]),
        Panel("Event loop held up", "short", [
            Query(f"increase(dray_loop_slow_turns_total{{{_OURS}}}[$__rate_interval])", "turns {{instance}}"),
            Query(f"dray_loop_longest_turn_seconds{{{_OURS}}}", "longest {{instance}}"),
        ]),
        Panel("Memory of requests", "bytes", [
            Query(f"dray_frame_memory_bytes{{{_OURS}}}", "held {{instance}}"),
            Query(f"dray_frame_memory_peak_bytes{{{_OURS}}}", "peak {{instance}}"),
            Query(f"dray_frame_memory_limit_bytes{{{_OURS}}}", "limit {{instance}}"),
        ]),
        Panel("Memory of answers", "bytes", [
            Query(f"dray_answer_memory_bytes{{{_OURS}}}", "held {{instance}}"),
            Query(f"dray_answer_memory_peak_bytes{{{_OURS}}}", "peak {{instance}}"),
            Query(f"dray_answer_memory_limit_bytes{{{_OURS}}}", "limit {{instance}}"),
        ]),
        Panel("Waiting for memory", "short", [
            Query(f"dray_frame_memory_waiting_connections{{{_OURS}}}", "connections {{instance}}"),
            Query(f"dray_answer_memory_waiting_requests{{{_OURS}}}", "fetches {{instance}}"),
        ]),
        Panel("Tail cache", "bytes", [Query(f"dray_tail_cache_bytes{{{_OURS}}}")]),
    ],
)  # fmt: skip

STORES: Final = Dashboard(
    "stores",
    "Dray: metadata and object store",
    [
        Panel("Metadata store: p99 by operation", "s", [Query(f"histogram_quantile(0.99, sum by (le, operation) (rate(dray_metadata_seconds_bucket{{{_OURS}}}[$__rate_interval])))", "{{operation}}")]),
        Panel("Object store: p99 by operation", "s", [Query(f"histogram_quantile(0.99, sum by (le, operation) (rate(dray_object_store_seconds_bucket{{{_OURS}}}[$__rate_interval])))", "{{operation}}")]),
        Panel("Metadata store: requests", "reqps", [_rate(f"dray_metadata_seconds_count{{{_OURS}}}", "operation")]),
        Panel("Object store: requests", "reqps", [_rate(f"dray_object_store_seconds_count{{{_OURS}}}", "operation")]),
        Panel("Metadata store: failures", "reqps", [Query(f"sum by (operation, error) (rate(dray_metadata_failures_total{{{_OURS}}}[$__rate_interval]))", "{{operation}}: {{error}}")]),
        Panel("Object store: failures", "reqps", [Query(f"sum by (operation, error) (rate(dray_object_store_failures_total{{{_OURS}}}[$__rate_interval]))", "{{operation}}: {{error}}")]),
        Panel("Object store: bytes", "Bps", [_rate(f"dray_object_store_bytes_total{{{_OURS}}}", "operation")]),
        Panel("Objects that wait", "short", [
            Query(f"sum(dray_collection_orphan_objects{{{_OURS}}})", "orphans"),
            Query(f"sum(dray_collection_pending_deletes{{{_OURS}}})", "condemned"),
            _rate(f"dray_collection_orphans_resolved_total{{{_OURS}}}", "instance", "resolved {{instance}}"),
        ]),
        Panel("Deleted", "short", [_rate(f"dray_deleted_total{{{_OURS}}}", "kind")]),
        Panel("Deletions held", "short", [Query(f"sum by (reason) (increase(dray_deletions_held_total{{{_OURS}}}[1h]))", "{{reason}}")]),
        Panel("Foreign segments that are gone", "short", [Query(f"max(dray_foreign_segments_missing{{{_OURS}}})", "missing")]),
    ],
)  # fmt: skip

COMPACTION: Final = Dashboard(
    "compaction",
    "Dray: compaction and tables",
    [
        Panel("Oldest record in no table", "s", [Query(f"max(dray_compaction_backlog_seconds{{{_OURS}}})", "age")], "stat", 6),
        Panel("Records in no table", "short", [Query(f"sum(dray_compaction_backlog_records{{{_OURS}}})", "records")], "stat", 6),
        Panel("Bytes in no table", "bytes", [Query(f"sum(dray_compaction_backlog_bytes{{{_OURS}}})", "bytes")], "stat", 6),
        Panel("Index entries in no table", "short", [Query(f"sum(dray_compaction_backlog_entries{{{_OURS}}})", "entries")], "stat", 6),
        Panel("Since the last cycle", "s", [
            Query(f"time() - dray_compaction_last_clean_cycle_timestamp_seconds{{{_OURS}}}", "clean {{instance}}"),
            Query(f"time() - dray_compaction_last_cycle_timestamp_seconds{{{_OURS}}}", "any {{instance}}"),
        ]),
        Panel("Topics furthest behind", "s", [Query(f"topk(10, max by (topic) (dray_compaction_topic_backlog_seconds{{{_OURS}}}))", "{{topic}}")]),
        Panel("Topics: records in no table", "short", [Query(f"topk(10, max by (topic) (dray_compaction_topic_backlog_records{{{_OURS}}}))", "{{topic}}")]),
        Panel("Topics: bytes in no table", "bytes", [
            Query(f"topk(10, max by (topic) (dray_compaction_topic_backlog_bytes{{{_OURS}}}))", "{{topic}}"),
        ]),
        Panel("Topics: index entries in no table", "short", [Query(f"topk(10, max by (topic) (dray_compaction_topic_backlog_entries{{{_OURS}}}))", "{{topic}}")]),
        Panel("Cycles", "short", [_rate(f"dray_compaction_cycles_total{{{_OURS}}}", "outcome")]),
        Panel("Length of cycles", "s", _quantiles("dray_compaction_cycle_seconds", selector=f"{{{_OURS}}}")),
        Panel("Phases: p99", "s", [Query(f"histogram_quantile(0.99, sum by (le, phase) (rate(dray_compaction_phase_seconds_bucket{{{_OURS}}}[$__rate_interval])))", "{{phase}}")]),
        Panel("What stood still", "short", [Query(f"sum by (cause) (increase(dray_compaction_troubles_total{{{_OURS}}}[$__rate_interval]))", "{{cause}}")]),
        Panel("Jobs", "short", [_rate(f"dray_compaction_jobs_total{{{_OURS}}}", "outcome")]),
        Panel("Commits of tables", "short", [_rate(f"dray_compaction_table_commits_total{{{_OURS}}}", "outcome")]),
        Panel("Length of commits", "s", _quantiles("dray_compaction_table_commit_seconds", selector=f"{{{_OURS}}}")),
        Panel("Bytes compacted", "Bps", [
            _rate(f"dray_compaction_input_bytes_total{{{_OURS}}}", "instance", "in {{instance}}"),
            _rate(f"dray_compaction_output_bytes_total{{{_OURS}}}", "instance", "out {{instance}}"),
        ]),
        Panel("Records and files written", "short", [
            _rate(f"dray_compaction_records_total{{{_OURS}}}", "instance", "records {{instance}}"),
            _rate(f"dray_compaction_files_total{{{_OURS}}}", "instance", "files {{instance}}"),
        ]),
        Panel("Units", "short", [
            _rate(f"dray_compaction_units_total{{{_OURS}}}", "instance", "given {{instance}}"),
            Query(f"dray_compaction_units_in_flight{{{_OURS}}}", "in flight {{instance}}"),
            Query(f"dray_compaction_left_tables{{{_OURS}}}", "without their table {{instance}}"),
        ]),
        Panel("Partitions", "short", [
            Query(f"max(dray_compaction_streams{{{_OURS}}})", "all"),
            _rate(f"dray_compaction_streams_read_total{{{_OURS}}}", "instance", "read {{instance}}"),
            _rate(f"dray_compaction_starts_raised_total{{{_OURS}}}", "instance", "expired {{instance}}"),
        ]),
        Panel("Removed", "short", [
            _rate(f"dray_compaction_removed_total{{{_OURS}}}", "kind"),
            Query(f"max(dray_compaction_files_pending{{{_OURS}}})", "files in their grace time"),
        ]),
        Panel("Compacted by key: bytes", "bytes", [Query(f"max by (part) (dray_compaction_by_key_bytes{{{_OURS}}})", "{{part}}")]),
        Panel("Compacted by key: records", "short", [
            Query(f"max by (part) (dray_compaction_by_key_records{{{_OURS}}})", "{{part}}"),
            _rate(f"dray_compaction_by_key_removed_records_total{{{_OURS}}}", "instance", "removed {{instance}}"),
            _rate(f"dray_compaction_by_key_rounds_total{{{_OURS}}}", "instance", "rounds {{instance}}"),
        ]),
        Panel("Dirtiest topics: ratio", "percentunit", [Query(f"topk(10, max by (topic) (dray_compaction_topic_dirty_ratio{{{_OURS}}}))", "{{topic}}")]),
        Panel("Dirtiest topics: bytes", "bytes", [Query(f"topk(10, max by (topic) (dray_compaction_topic_dirty_bytes{{{_OURS}}}))", "{{topic}}")]),
        Panel("Since a partition last became clean", "s", [
            Query(f"time() - max(dray_compaction_by_key_last_timestamp_seconds{{{_OURS}}} > 0)", "by key"),
        ]),
    ],
)  # fmt: skip

GROUPS: Final = Dashboard(
    "groups",
    "Dray: consumer groups",
    [
        Panel("Lag in seconds", "s", [Query(f"topk(20, max by (group, topic) (dray_group_lag_seconds{{{_OURS}}}))", "{{group}} · {{topic}}")]),
        Panel("Lag in records", "short", [Query(f"topk(20, max by (group, topic) (dray_group_lag_records{{{_OURS}}}))", "{{group}} · {{topic}}")]),
        Panel("Without series of their own", "short", [Query(f"sum(dray_group_lag_left_out{{{_OURS}}})", "pairs of group and topic")]),
        Panel("Groups", "short", [Query(f"sum by (type, state) (dray_groups{{{_OURS}}})", "{{type}} {{state}}")]),
        Panel("Rebalances", "short", [_rate(f"dray_group_rebalances_total{{{_OURS}}}", "type")]),
        Panel("Members expired", "short", [_rate(f"dray_group_members_expired_total{{{_OURS}}}", "type")]),
        Panel("Offsets committed", "short", [_rate(f"dray_group_offsets_committed_total{{{_OURS}}}")]),
        Panel("Commits of offsets", "s", _quantiles("dray_group_commit_seconds", selector=f"{{{_OURS}}}")),
        Panel("Groups taken and lost", "short", [
            _rate(f"dray_groups_taken_total{{{_OURS}}}", "instance", "taken {{instance}}"),
            _rate(f"dray_groups_lost_total{{{_OURS}}}", "instance", "lost {{instance}}"),
        ]),
    ],
)  # fmt: skip

COST: Final = Dashboard(
    "cost",
    "Dray: cost of the object store",
    [
        Panel("Puts per gigabyte received", "short", [Query(
            f"sum(rate(dray_object_store_seconds_count{{{_OURS}, {_PUTS}}}[1h])) / (sum(rate(dray_received_bytes_total{{{_OURS}}}[1h])) / 1e9)", "puts")]),
        Panel("Gets per gigabyte sent", "short", [Query(
            f"sum(rate(dray_object_store_seconds_count{{{_OURS}, {_GETS}}}[1h])) / (sum(rate(dray_sent_bytes_total{{{_OURS}}}[1h])) / 1e9)", "gets")]),
        Panel("Dollars a day for requests, at $put and $get for a thousand", "currencyUSD", [
            Query(f"86400 * sum(rate(dray_object_store_seconds_count{{{_OURS}, {_PUTS}}}[1h])) * $put / 1000", "puts"),
            Query(f"86400 * sum(rate(dray_object_store_seconds_count{{{_OURS}, {_GETS}}}[1h])) * $get / 1000", "gets"),
        ]),
        Panel("Bytes written and read", "Bps", [_rate(f"dray_object_store_bytes_total{{{_OURS}}}", "operation")]),
        Panel("Share of topics in what is written", "percentunit", [Query(
            f"topk(10, sum by (topic) (rate(dray_topic_produce_bytes_total{{{_OURS}}}[1h])) / ignoring(topic) group_left sum(rate(dray_topic_produce_bytes_total{{{_OURS}}}[1h])))", "{{topic}}")]),
    ],
)  # fmt: skip

MIGRATION: Final = Dashboard(
    "migration",
    "Dray: topics that move here",
    [
        Panel("Linked topics", "short", [Query(f"max by (state) (dray_migration_topics{{{_OURS}}})", "{{state}}")], "stat", 6),
        Panel("Behind the source", "s", [Query(f"max(dray_mirror_lag_seconds{{{_OURS}}})", "lag")], "stat", 6),
        Panel("Mirrors that cannot go on", "short", [Query(f"sum(dray_mirror_stopped_partitions{{{_OURS}}})", "partitions")], "stat", 6),
        Panel("Records that reached a source too late", "short", [Query(f"max(dray_migration_straggler_offsets{{{_OURS}}})", "stragglers")], "stat", 6),
        Panel("Lag in records", "short", [Query(f"dray_mirror_lag_records{{{_OURS}}}")]),
        Panel("Lag, and silence of sources, in seconds", "s", [
            Query(f"dray_mirror_lag_seconds{{{_OURS}}}", "lag {{instance}}"),
            Query(f"dray_mirror_silent_seconds{{{_OURS}}}", "silent {{instance}}"),
        ]),
        Panel("Deleted at the source before it was mirrored", "short", [Query(f"sum(increase(dray_mirror_skipped_offsets_total{{{_OURS}}}[$__rate_interval]))", "offsets")]),
        Panel("Bytes mirrored", "Bps", [_rate(f"dray_mirror_bytes_total{{{_OURS}}}")]),
        Panel("Time in a state, the longest", "s", [Query(f"max by (state) (dray_migration_state_seconds{{{_OURS}}})", "{{state}}")]),
        Panel("Topics furthest behind: records", "short", [Query(f"topk(10, max by (topic) (dray_mirror_topic_lag_records{{{_OURS}}}))", "{{topic}}")]),
        Panel("Topics furthest behind: seconds", "s", [Query(f"topk(10, max by (topic) (dray_mirror_topic_lag_seconds{{{_OURS}}}))", "{{topic}}")]),
        Panel("The same topics: bytes mirrored", "Bps", [Query(f"topk(10, sum by (topic) (rate(dray_mirror_topic_bytes_total{{{_OURS}}}[$__rate_interval])))", "{{topic}}")]),
        Panel("The same topics: state", "short", [Query(f"max by (topic, state) (dray_migration_topic_state{{{_OURS}}})", "{{topic}} {{state}}")]),
        Panel("Which migrator works on topics", "short", [Query(f"dray_migration_worked_topics{{{_OURS}}}")]),
        Panel("Time since groups were followed", "s", [Query(f"max(dray_migration_unfollowed_seconds{{{_OURS}}})", "seconds")]),
        Panel("Groups that are still at the source", "short", [Query(f"max(dray_migration_waiting_groups{{{_OURS}}})", "groups")]),
        Panel("Passed on to sources: requests", "reqps", [Query(f"sum by (upstream, outcome) (rate(dray_forwarded_requests_total{{{_OURS}}}[$__rate_interval]))", "{{upstream}} {{outcome}}")]),
        Panel("Passed on to sources: bytes", "Bps", [_rate(f"dray_forwarded_bytes_total{{{_OURS}}}", "upstream")]),
        Panel("Answers of sources: p99", "s", [Query(f"histogram_quantile(0.99, sum by (le, upstream) (rate(dray_forwarded_seconds_bucket{{{_OURS}}}[$__rate_interval])))", "{{upstream}}")]),
        Panel("What became of batches", "short", [_rate(f"dray_forwarded_batches_total{{{_OURS}}}", "outcome")]),
        Panel("Connections to sources", "short", [Query(f"sum by (upstream, instance) (dray_upstream_connections{{{_OURS}}})", "{{upstream}} {{instance}}")]),
        Panel("Requests that wait for a source or a switch", "short", [Query(f"dray_forwarding_requests_in_flight{{{_OURS}}}")]),
        Panel("Memory of forwarding", "bytes", [
            Query(f"dray_forwarding_memory_bytes{{{_OURS}}}", "held {{instance}}"),
            Query(f"dray_forwarding_memory_limit_bytes{{{_OURS}}}", "limit {{instance}}"),
        ]),
    ],
)  # fmt: skip

_BY_HAND: Final = (CLUSTER, LATENCY, STORES, COMPACTION, GROUPS, COST, MIGRATION)


def _plain(metric: MetricDefinition) -> Panel:
    """A metric that no dashboard has a place for."""
    labels = ", ".join(sorted(metric.labels)) or "instance"
    legend = " ".join(f"{{{{{label}}}}}" for label in labels.split(", "))
    selected = f"{metric.name}{{{_OURS}}}"
    if metric.kind == "counter":
        query = f"sum by ({labels}) (rate({metric.name}_total{{{_OURS}}}[$__rate_interval]))"
    elif metric.kind == "gauge":
        query = f"sum by ({labels}) ({selected})"
    else:
        inner = f"rate({metric.name}_bucket{{{_OURS}}}[$__rate_interval])"
        query = f"histogram_quantile(0.99, sum by (le, {labels}) ({inner}))"
    return Panel(metric.help, "short", [Query(query, legend)])


def _rest() -> Dashboard:
    drawn = {each.name for board in _BY_HAND for _, text in expressions(board) for each in metrics_in(text)}
    left = [metric for name, metric in sorted(definitions().items()) if name not in drawn]
    return Dashboard("more", "Dray: more", [_plain(metric) for metric in left])


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """Every panel's title with each of its expressions."""
    return [(panel.title, query.expression) for panel in dashboard.panels for query in panel.queries]


DASHBOARDS: Final = (*_BY_HAND, _rest())
"""Every metric is drawn in one of them."""


def rendered(dashboard: Dashboard) -> str:
    """The JSON that Grafana imports."""
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, panel in enumerate(dashboard.panels, 1):
        if x + panel.width > _COLUMNS:
            x, y = 0, y + _HEIGHT
        panels.append(
            {
                "id": number,
                "type": panel.kind,
                "title": panel.title,
                "description": panel.explained,
                "datasource": _SOURCE,
                "gridPos": {"x": x, "y": y, "w": panel.width, "h": _HEIGHT},
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
                "options": {"legend": {"displayMode": "list", "placement": "bottom"}}
                if panel.kind == "timeseries"
                else {"reduceOptions": {"calcs": ["lastNotNull"]}},
                "targets": [
                    {
                        "refId": chr(ord("A") + place),
                        "datasource": _SOURCE,
                        "expr": query.expression,
                        "legendFormat": query.legend,
                    }
                    for place, query in enumerate(panel.queries)
                ],
            }
        )
        x += panel.width
    board = {
        "uid": f"dray-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["dray"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": _variables(dashboard)},
        "links": [
            {"title": "Dray", "type": "dashboards", "tags": ["dray"], "asDropdown": True, "keepTime": True}
        ],
        "panels": panels,
    }
    return json.dumps(board, indent=2, ensure_ascii=False) + "\n"


def _variables(dashboard: Dashboard) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "job",
            "label": "Job",
            "type": "query",
            "datasource": _SOURCE,
            "query": "label_values(dray_build_info, job)",
            "refresh": 2,
            "includeAll": True,
            "allValue": ".+",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    if dashboard is COST:
        for name, label, price in (("put", "1,000 puts", "0.005"), ("get", "1,000 gets", "0.0004")):
            found.append({"name": name, "label": f"Dollars for {label}", "type": "textbox", "query": price})
    return found


def main() -> None:
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(rendered(dashboard))


if __name__ == "__main__":
    main()
