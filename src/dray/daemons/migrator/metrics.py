"""The numbers of a migrator: linked topics, their mirrors, and what is left to do for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.base.telemetry import ProcessMetrics
from dray.base.telemetry.instruments import Instruments
from dray.migration.live.migration import LiveSeen
from dray.migration.live.mirror_lag import MirrorLag
from dray.migration.record import MigrationState

STATES: Final = (MigrationState.MIRRORING, MigrationState.PENDING, MigrationState.SWITCHED)


@dataclass(frozen=True, slots=True)
class WorkedTopic:
    """This process's knowledge of a topic that it works on."""

    lag: MirrorLag
    read_bytes: int
    stopped: int
    seen: LiveSeen
    unfollowed_seconds: float = 0.0


class MigratorMetrics:
    """`topics`: how many topics, those furthest behind, have numbers of their own."""

    def __init__(self, metrics: ProcessMetrics, topics: int = 50) -> None:
        self._topics = topics
        self._define_all(metrics.instruments)
        self._define_topics(metrics.instruments)
        self._since: dict[str, tuple[str, float]] = {}
        self._counted: dict[str, tuple[int, int]] = {}
        for state in STATES:
            self._states.labels(state.value)
            self._longest.labels(state.value)

    def _define_all(self, make: Instruments) -> None:
        self._states = make.gauges(
            "dray_migration_topics", "Linked topics: `mirroring`, `pending`, `switched`", "state"
        )
        self._longest = make.gauges(
            "dray_migration_state_seconds",
            "For how long a linked topic is in its state, the longest of each, as this migrator has seen it",
            "state",
        )
        self._worked = make.gauge(
            "dray_migration_worked_topics",
            "Linked topics of which this migrator has the lease: the sum over migrators is all of them, "
            "or some are not worked on",
        )
        self._lag = make.gauge(
            "dray_mirror_lag_records",
            "Records at the sources that are not here yet, of the topics that this migrator works on",
        )
        self._lag_seconds = make.gauge(
            "dray_mirror_lag_seconds", "For how long the oldest of them has been at its source, at least"
        )
        self._silent = make.gauge(
            "dray_mirror_silent_seconds",
            "Since the leader of a mirrored partition last answered, the longest: the lag is as old as that",
        )
        self._bytes = make.counter(
            "dray_mirror_bytes",
            "Bytes of batches that this migrator read to mirror them; what is read again counts again",
        )
        self._skipped = make.counter(
            "dray_mirror_skipped_offsets",
            "Offsets that sources deleted before they were mirrored: `drayd migrate status TOPIC` says which",
        )
        self._stopped = make.gauge(
            "dray_mirror_stopped_partitions",
            "Partitions whose mirror cannot go on: `drayd migrate status TOPIC` says why",
        )
        self._groups = make.gauge(
            "dray_migration_waiting_groups", "Groups of switched topics whose members are still at the source"
        )
        self._unfollowed = make.gauge(
            "dray_migration_unfollowed_seconds",
            "Since the groups of a source were last followed, the longest: groups of switched topics wait "
            "for as long",
        )
        self._stragglers = make.gauge(
            "dray_migration_straggler_offsets",
            "Offsets at sources behind the boundaries of their topics: alert on more than 0",
        )

    def _define_topics(self, make: Instruments) -> None:
        self._topic_lag = make.gauges(
            "dray_mirror_topic_lag_records", "The lag by topic, of the 50 topics furthest behind", "topic"
        )
        self._topic_seconds = make.gauges(
            "dray_mirror_topic_lag_seconds",
            "For how long the oldest record that is not mirrored has been at its source, of the same topics",
            "topic",
        )
        self._topic_bytes = make.counters(
            "dray_mirror_topic_bytes",
            "The same, of these topics",
            "topic",
        )
        self._topic_state = make.gauges(
            "dray_migration_topic_state",
            "1, of the topics furthest behind, with their state",
            "topic",
            "state",
        )

    def show(self, states: Mapping[str, str], worked: Mapping[str, WorkedTopic], now: float) -> None:
        """`states`: of all topics that are linked; `worked`: of those that this process works on."""
        self._show_states(states, now)
        self._worked.value = len(worked)
        self._lag.value = sum(each.lag.records for each in worked.values())
        self._lag_seconds.value = max((each.lag.seconds for each in worked.values()), default=0.0)
        self._silent.value = max((each.lag.silent_seconds for each in worked.values()), default=0.0)
        self._stopped.value = sum(each.stopped for each in worked.values())
        self._unfollowed.value = max((each.unfollowed_seconds for each in worked.values()), default=0.0)
        self._stragglers.value = sum(each.seen.stragglers for each in worked.values())
        self._groups.value = sum(
            each.seen.groups for topic, each in worked.items() if states.get(topic) == "switched"
        )
        for topic, each in worked.items():
            read, skipped = self._counted.get(topic, (0, 0))
            # A topic that is worked on anew begins at nothing.
            self._bytes.value += each.read_bytes - (read if read <= each.read_bytes else 0)
            self._skipped.value += each.lag.skipped - (skipped if skipped <= each.lag.skipped else 0)
        self._counted = {topic: (each.read_bytes, each.lag.skipped) for topic, each in worked.items()}
        self._show_topics(states, worked)

    def _show_states(self, states: Mapping[str, str], now: float) -> None:
        self._since = {
            topic: known if (known := self._since.get(topic)) and known[0] == state else (state, now)
            for topic, state in states.items()
        }
        for state in STATES:
            since = [began for known, began in self._since.values() if known == state.value]
            self._states.labels(state.value).value = len(since)
            self._longest.labels(state.value).value = now - min(since) if since else 0.0

    def _show_topics(self, states: Mapping[str, str], worked: Mapping[str, WorkedTopic]) -> None:
        furthest = sorted(worked, key=lambda name: (-worked[name].lag.records, name))
        shown = [topic for topic in furthest if topic in states][: self._topics]
        for family in (self._topic_lag, self._topic_seconds, self._topic_bytes):
            family.keep_only((topic,) for topic in shown)
        self._topic_state.keep_only((topic, states[topic]) for topic in shown)
        for topic in shown:
            each = worked[topic]
            self._topic_lag.labels(topic).value = each.lag.records
            self._topic_seconds.labels(topic).value = each.lag.seconds
            self._topic_bytes.labels(topic).value = each.read_bytes
            self._topic_state.labels(topic, states[topic]).value = 1
