"""The numbers of a process, all in one registry of its own (never the global one: tests and the
simulation run several brokers in a process).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from platform import python_version
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from dray.base.runtime import BackgroundTasks
from dray.base.telemetry.answered import AnsweredErrors
from dray.base.telemetry.instruments import Counter, Family, Histogram, Instruments

SECONDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075,
    0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Fine enough that p50, p99 and p999 can be read off within about a third of their value."""

BYTES = tuple(float(1 << power) for power in range(10, 28))
"""1 KiB to 128 MiB in doublings."""

HELD_BY = ("owner", "brake")
"""The bucket is not known to be this cluster's; too much is unknown to the metadata."""


OK, ERROR, FAILED = OUTCOMES = ("ok", "error", "failed")
"""Answered, answered with an error in the answer, and not answered: the handler raised."""


class ApiMetrics:
    """One API's instruments, resolved once: what a request touches when it is done."""

    __slots__ = ("outcomes", "seconds")

    def __init__(self, outcomes: Mapping[str, Counter], seconds: Histogram) -> None:
        self.outcomes = outcomes
        self.seconds = seconds

    def finished(self, seconds: float, outcome: str) -> None:
        self.outcomes[outcome].value += 1
        self.seconds.observe(seconds)


class ProcessMetrics:
    """The numbers of every process of Dray: itself, and the stores it uses. `instruments` makes more."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, *, process: bool = True) -> None:
        """`process` adds what the operating system and the interpreter say about this process."""
        self.registry = CollectorRegistry(auto_describe=False)
        self.instruments = make = Instruments(self.registry)
        if process:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
            GCCollector(registry=self.registry)
        self._define_stores(make)
        self._define_background(make)

    def _define_stores(self, make: Instruments) -> None:
        self.metadata_seconds = make.histograms(
            "dray_metadata_seconds", "Metadata store latency, by operation", "operation", bounds=SECONDS
        )
        self.metadata_failures = make.counters(
            "dray_metadata_failures", "Metadata store failures", "operation", "error"
        )
        self.object_seconds = make.histograms(
            "dray_object_store_seconds", "Object store latency, by operation", "operation", bounds=SECONDS
        )
        self.object_failures = make.counters(
            "dray_object_store_failures",
            "Object store failures: `ObjectCorrupt` is what readers found damaged",
            "operation",
            "error",
        )
        self.object_bytes = make.counters(
            "dray_object_store_bytes", "Bytes written to and read from the object store", "operation"
        )

    def _define_background(self, make: Instruments) -> None:
        self.background_failures = make.counters(
            "dray_background_failures",
            "Unexpected failures of background tasks: each is logged and tried again; report it",
            "task",
        )
        self.background_ended = make.gauge(
            "dray_background_tasks_ended",
            "Tasks that should run in the background and do not: see `/healthz`",
        )
        self.deleted = make.counters(
            "dray_deleted",
            "What was deleted: objects (`wal`, `parquet`, `table_metadata`), `table`, and records "
            "(`records_retention`, `records_delete_records`)",
            "kind",
        )
        self.deletions_held = make.counters(
            "dray_deletions_held",
            "Rounds of collectors that deleted nothing (`owner`) or not all (`brake`)",
            "reason",
        )
        for reason in HELD_BY:
            self.deletions_held.labels(reason)  # so that a first one is seen as an increase
        self._build_info = make.gauges(
            "dray_build_info",
            "1, with the version of Dray and Python, and the role: `broker`, `compactor`, `migrator`",
            "version",
            "python",
            "role",
        )
        self.clock_doubted = make.gauge(
            "dray_clock_doubted", "1 while this machine's clock is doubted, and nothing expires"
        )
        self.certificate_ends = make.gauges(
            "dray_certificate_expires_timestamp_seconds",
            "When the certificate in use is over, by listener; http is that of health and metrics",
            "listener",
        )
        self.metadata_held = make.gauge(
            "dray_metadata_held",
            "1 while nothing is written, as the metadata store is a copy, or older than the bucket",
        )
        self.lost_objects = make.gauge(
            "dray_lost_objects",
            "Objects that the index names and that are proven to be gone: met by a broker's readers, or "
            "found by a compactor's last round",
        )
        self.foreign_missing = make.gauge(
            "dray_foreign_segments_missing",
            "Segments of attached topics that were not in their store at the last look, once a day",
        )

    def follow(self, background: BackgroundTasks) -> None:
        """Count what fails in the background of this process."""
        background.subscribe(lambda name, _: self.background_failures.labels(name).increment())
        self.background_ended.follow(lambda: len(background.ended()))

    def built(self, version: str, role: str) -> None:
        """Name the build that runs here: `role` is broker, compactor or migrator."""
        self._build_info.labels(version, python_version(), role).value = 1

    def exposition(self) -> bytes:
        """All of it in Prometheus' text format."""
        return generate_latest(self.registry)


class Metrics(ProcessMetrics):
    """The metrics of a broker (docs/appendix.md, §17.3)."""

    def __init__(self, *, process: bool = True) -> None:
        super().__init__(process=process)
        make = self.instruments
        self._define_connections(make)
        self._define_requests(make)
        self._define_log(make)
        self._define_groups(make)

    def _define_connections(self, make: Instruments) -> None:
        self.connections_active = make.gauge("dray_connections_active", "Open client connections")
        self.connections_accepted = make.counter("dray_connections_accepted", "Connections accepted")
        self.connections_refused = make.counter(
            "dray_connections_refused", "Connections refused because there were too many"
        )
        self.connections_closed = make.counters(
            "dray_connections_closed_by_server", "Connections the server ended, by its reason", "reason"
        )
        self.audited = make.counters(
            "dray_audited_acts",
            "Acts that the audit log is about: allowed, denied, logged in, login failed; left out: lines, "
            "for their rate",
            "outcome",
        )
        self.requests_in_flight = make.gauge("dray_requests_in_flight", "Requests read and not yet done with")
        self.received_bytes = make.counter("dray_received_bytes", "Bytes received from clients")
        self.sent_bytes = make.counter("dray_sent_bytes", "Bytes of answers handed to the network")
        self.memory_used = make.gauge("dray_frame_memory_bytes", "Bytes of request frames held in memory now")
        self.memory_peak = make.gauge("dray_frame_memory_peak_bytes", "The most they ever were")
        self.memory_limit = make.gauge("dray_frame_memory_limit_bytes", "Their bound, `limits.buffer_bytes`")
        self.memory_waiting = make.gauge(
            "dray_frame_memory_waiting_connections", "Connections that are not read until there is room"
        )
        self.answers_used = make.gauge(
            "dray_answer_memory_bytes", "Bytes of answers being made, or not yet taken by their clients"
        )
        self.answers_peak = make.gauge("dray_answer_memory_peak_bytes", "The most they ever were")
        self.answers_limit = make.gauge(
            "dray_answer_memory_limit_bytes", "Their bound, `limits.answer_bytes`"
        )
        self.answers_waiting = make.gauge(
            "dray_answer_memory_waiting_requests", "Fetches that wait until there is room for their answer"
        )

    def _define_requests(self, make: Instruments) -> None:
        self.slow_turns = make.counter(
            "dray_loop_slow_turns", "Turns of the event loop that took more than 100 ms of processor time"
        )
        self.longest_turn = make.gauge("dray_loop_longest_turn_seconds", "The longest of them")

        self.requests = make.counters(
            "dray_requests",
            "Requests, by API and outcome: ok, error (there is one in the answer), failed (no answer)",
            "api",
            "outcome",
        )
        self.request_seconds = make.histograms(
            "dray_request_seconds", "From frame to answer, by API", "api", bounds=SECONDS
        )
        self.throttle_seconds = make.histogram(
            "dray_throttle_seconds", "For how long clients above a quota are not read, per answer", SECONDS
        )
        self.produce_seconds = make.histogram(
            "dray_produce_seconds", "Produce latency: from frame to committed", SECONDS
        )
        self.fetch_seconds = make.histogram(
            "dray_fetch_seconds", "Fetch latency, without the time a long poll slept", SECONDS
        )
        self.open_long_polls = make.gauge("dray_open_long_polls", "Fetches waiting for records")
        self.tail_cache_bytes = make.gauge("dray_tail_cache_bytes", "Bytes held by the tail cache")

    def _define_log(self, make: Instruments) -> None:
        self.appends_held = make.gauge(
            "dray_appends_held", "1 while the disk is full, and nothing is appended"
        )
        self.wal_flush_bytes = make.histogram("dray_wal_flush_bytes", "Size of WAL objects written", BYTES)
        self.wal_flush_seconds = make.histogram(
            "dray_wal_flush_seconds", "From closing a WAL object to its upload being durable", SECONDS
        )
        self.carried_batches = make.counter(
            "dray_carried_batches", "Batches that rode in their commit, without an object"
        )
        self.carried_bytes = make.counter("dray_carried_bytes", "Bytes of them")
        self.carried_backlog_bytes = make.gauges(
            "dray_carried_backlog_bytes",
            "Carried and not yet packed or compacted, as far as this broker knows; after its start also "
            "by others",
            "domain",
        )
        self.carried_backlog_seconds = make.gauges(
            "dray_carried_backlog_age_seconds", "Age of the oldest of it, by metadata domain", "domain"
        )
        self.lane_switches = make.counters(
            "dray_lane_switches",
            "Small batches that were not carried: `large`, `full`, `rate`, `backlog`, `stream_backlog`, "
            "`races`",
            "reason",
        )
        self.packed_entries = make.counter("dray_packed_entries", "Carried entries packed into WAL objects")
        self.packed_bytes = make.counter("dray_packed_bytes", "Bytes of these WAL objects")
        self.packs = make.counter("dray_packs", "WAL objects made of carried entries")
        self.pack_conflicts = make.counter(
            "dray_pack_conflicts", "Packs that lost a compare-and-set on a job, or its reply"
        )
        self.commit_retries = make.counter(
            "dray_commit_retries", "Commits that lost their compare-and-set and aimed again"
        )
        self.collection_orphans = make.gauge(
            "dray_collection_orphan_objects",
            "Objects that wait: their writer did not finish them, or the metadata does not know them",
        )
        self.collection_resolved = make.counter(
            "dray_collection_orphans_resolved",
            "Objects left by their writer, judged by the log since",
        )
        self.collection_pending = make.gauge(
            "dray_collection_pending_deletes", "Objects condemned and not yet deleted"
        )

    def _define_groups(self, make: Instruments) -> None:
        self.groups = make.gauges(
            "dray_groups", "Groups that this broker looks after, by type and state", "type", "state"
        )
        self.group_rebalances = make.counters(
            "dray_group_rebalances", "Generations settled, or assignments computed, by type of group", "type"
        )
        self.group_members_expired = make.counters(
            "dray_group_members_expired", "Members that were silent or slow for too long", "type"
        )
        self.group_offsets_committed = make.counter("dray_group_offsets_committed", "Offsets committed")
        self.group_commit_seconds = make.histogram(
            "dray_group_commit_seconds", "From a commit of offsets being allowed to it being stored", SECONDS
        )
        self.groups_taken = make.counter("dray_groups_taken", "Groups that this broker began to look after")
        self.groups_lost = make.counter(
            "dray_groups_lost", "Groups that this broker had to give up, since its lease may have ended"
        )

        self.group_lag_records = make.gauges(
            "dray_group_lag_records",
            "Records that a group has not read, of the `metrics.groups` pairs of group and topic that lag "
            "most; every 15 seconds",
            "group",
            "topic",
        )
        self.group_lag_seconds = make.gauges(
            "dray_group_lag_seconds",
            "How old the first record is that a group has not read, by its own timestamp",
            "group",
            "topic",
        )
        self.group_lag_left_out = make.gauge(
            "dray_group_lag_left_out", "Pairs of group and topic without series of their own"
        )

    def topic_traffic(self, limit: int, monotonic: Callable[[], float]) -> TopicTraffic:
        """Counters by topic, for as many topics; to be asked for once."""
        return TopicTraffic(self.instruments, limit, monotonic)

    def api(self, name: str) -> ApiMetrics:
        return ApiMetrics(
            {outcome: self.requests.labels(name, outcome) for outcome in OUTCOMES},
            self.request_seconds.labels(name),
        )


# --- the traffic of each topic, produced and fetched, for a bounded number of topics
#
# A topic has series of its own from its first request on, as long as there is room; the rest is counted
# together, under a name that no topic can have. A topic without traffic gives its place up to one that has
# some: what it had counted goes to the rest, so that the sum over all series never falls.


OTHER: Final = "(other)"
"""Parentheses are in no topic's name."""

_LOOK_SECONDS: Final = 60.0
"""How often idle topics are looked for, at most; a place is given up after one to two of these."""


class TopicCounters:
    """The numbers of one topic, for a hot path: plain attributes."""

    __slots__ = (
        "fetch_bytes",
        "fetch_requests",
        "produce_bytes",
        "produce_records",
        "produce_requests",
        "seen",
    )

    def __init__(self) -> None:
        self.produce_bytes = 0
        self.produce_records = 0
        self.produce_requests = 0
        self.fetch_bytes = 0
        self.fetch_requests = 0
        self.seen = -1
        """The requests at the last look for idle topics."""

    @property
    def requests(self) -> int:
        return self.produce_requests + self.fetch_requests


_SHOWN: Final = (
    ("produce_bytes", "Bytes of record batches taken in, by topic"),
    ("produce_records", "Records taken in, by topic"),
    ("produce_requests", "Produce requests with batches that were taken in, by topic"),
    ("fetch_bytes", "Bytes of record batches sent to consumers, by topic"),
    ("fetch_requests", "Fetch requests, by topic"),
)
"""Records of fetches are not counted: their batches are sent unopened."""


class _ReadOfTopic(Counter):
    """A counter that is read from the numbers of a topic."""

    __slots__ = ("_name", "_source")

    def __init__(self, source: TopicCounters, name: str) -> None:
        super().__init__()
        self._source = source
        self._name = name

    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        family.add_metric(labels, getattr(self._source, self._name))


class TopicTraffic:
    """`find` is for the event loop's thread alone."""

    def __init__(self, make: Instruments, limit: int, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._looked = monotonic()
        self._families: dict[str, Family[Counter]] = {
            name: make.counters(f"dray_topic_{name}", text, "topic") for name, text in _SHOWN
        }
        self._others = make.counter(
            "dray_topic_requests_of_others",
            "Requests counted as `(other)`: if it grows, raise `metrics.topics`",
        )
        self._topics: dict[str, TopicCounters] = {}
        self.other = TopicCounters()
        self._show(OTHER, self.other)

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, topic: str) -> TopicCounters:
        found = self._topics.get(topic)
        return self._admit(topic) if found is None else found

    def _admit(self, topic: str) -> TopicCounters:
        if len(self._topics) >= self._limit:
            self._make_room()
        if len(self._topics) >= self._limit:
            self._others.value += 1
            return self.other
        counters = self._topics[topic] = TopicCounters()
        self._show(topic, counters)
        return counters

    def _make_room(self) -> None:
        now = self._monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for topic, counters in list(self._topics.items()):
            if counters.requests == counters.seen:
                self._drop(topic, counters)
            else:
                counters.seen = counters.requests

    def _drop(self, topic: str, counters: TopicCounters) -> None:
        del self._topics[topic]
        for name, family in self._families.items():
            setattr(self.other, name, getattr(self.other, name) + getattr(counters, name))
            family.drop(topic)

    def _show(self, topic: str, counters: TopicCounters) -> None:
        for name, family in self._families.items():
            family.put(_ReadOfTopic(counters, name), topic)


def uncounted_traffic() -> TopicTraffic:
    """For a process that shows no metrics: everything is one topic's."""
    return TopicTraffic(Instruments(CollectorRegistry()), 0, lambda: 0.0)


def uncounted_errors() -> AnsweredErrors:
    """For a process that shows no metrics."""
    return AnsweredErrors(Instruments(CollectorRegistry()), lambda: 0.0)
