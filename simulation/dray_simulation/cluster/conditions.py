"""The conditions of one run of a cluster: everything that a seed decides before it starts.

Kept apart from the run, so that a failing run can be tried again with less of everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from random import Random
from typing import Any, ClassVar, Final

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.daemons.assembly.settings import compaction_settings
from dray.daemons.config import Settings
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.metadata.contract import Limits
from dray.tables.compaction.settings import CompactionSettings
from dray_simulation.kernel.network import NetworkWeather
from dray_simulation.kernel.runtime import ProcessClock
from dray_simulation.kernel.weather import Weather

# --- topics

Place = tuple[str, int]
"""A partition, by the name of its topic."""

MAIN: Final = "main"
"""There from the start and never deleted: groups and idempotent producers rest on it."""

SPARE: Final = "spare"
"""Deleted and made anew, under everybody's feet."""

SPARE_PARTITIONS: Final = 2

COMPACTED: Final = "compacted"
"""Compacted by key, for most of the time: its policy is switched to and fro."""

COMPACTED_PLACE: Final[Place] = (COMPACTED, 0)
"""Its one partition."""

TOMBSTONES_STAY_MS: Final = 300
COMPACTED_CONFIG: Final = {
    "cleanup.policy": "compact",
    "delete.retention.ms": str(TOMBSTONES_STAY_MS),
    "min.cleanable.dirty.ratio": "0.1",
}


# --- what a seed decides


class Role(Enum):
    IDEMPOTENT_PRODUCER = "idempotent producer"
    PLAIN_PRODUCER = "plain producer"
    READER = "reader"
    ADMINISTRATOR = "administrator"
    CLASSIC_MEMBER = "classic member"
    CONSUMER_MEMBER = "consumer member"
    RETURNING_READER = "returning reader"
    COMPACTED_PRODUCER = "compacted producer"
    COMPACTED_READER = "compacted reader"
    POLICY_SWITCHER = "policy switcher"


class Disaster(Enum):
    CRASH = "broker crashed"
    STOP = "broker stopped"
    PAUSE = "broker stood still"
    SILENCE = "session silenced"
    CUT = "connection cut"
    COMPACTOR_CRASH = "compactor crashed"
    COMPACTOR_PAUSE = "compactor stood still"
    CLOCK_JUMP = "clock jumped"
    HOST_PAUSE = "host paused a broker"  # whose clocks stood still with it; then its wall clock is set right


_USUAL = (
    Disaster.CRASH,
    Disaster.STOP,
    Disaster.PAUSE,
    Disaster.SILENCE,
    Disaster.CUT,
    Disaster.COMPACTOR_CRASH,
    Disaster.COMPACTOR_PAUSE,
)
DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class PlannedDisaster:
    """A disaster, and when it comes."""

    at: float
    what: Disaster
    place: int  # of a broker
    seconds: float = 0.0


_EVERYBODY = (
    Role.IDEMPOTENT_PRODUCER,
    Role.PLAIN_PRODUCER,
    Role.READER,
    Role.ADMINISTRATOR,
    Role.CLASSIC_MEMBER,
    Role.CLASSIC_MEMBER,
    Role.CONSUMER_MEMBER,
    Role.CONSUMER_MEMBER,
    Role.RETURNING_READER,
    Role.COMPACTED_PRODUCER,
    Role.COMPACTED_READER,
    Role.POLICY_SWITCHER,
)


@dataclass(slots=True)
class ClusterConditions:
    seed: int
    brokers: int = 3
    compactors: int = 1
    roles: tuple[Role, ...] = _EVERYBODY
    absent: frozenset[int] = frozenset()  # clients, by their number, that do not play after all
    domains: int = 2
    partitions: int = 3
    seconds: float = 8.0
    weather: Weather = field(default_factory=lambda: Weather(Random(0)))
    network: NetworkWeather = field(default_factory=lambda: NetworkWeather(Random(0)))
    disasters: tuple[PlannedDisaster, ...] = ()
    pace: float = 0.1  # what a client thinks at most, between one request and the next
    window: int = 3  # batches that an idempotent producer has in flight, at most
    patience: float = 1.5  # what a client waits for an answer
    restless: float = 0.05  # chance that a member leaves or dies, at each of its turns
    session_timeout: float = 2.5  # of members of groups
    known_machine: bool = False  # whether brokers can see that another process has died
    orphan_seconds: float = 1.0
    snapshot_every: int = 256
    deleted_within: float = 0.4  # what was deleted is served for no longer
    clocks: tuple[tuple[float, float], ...] = ()  # by place: how far ahead, and how fast that grows
    clock_tolerance: float = 8.0  # eight beats: processes that are paused are not taken for gone
    deletes_topics: bool = True
    breadth: int = 2  # partitions that a plain producer writes to at once
    limits: Limits | None = None  # of the metadata store, where they are not those of the engine in memory
    silent_producers: int = 0  # in the snapshot of every stream when the clients come
    unexpected_errors: float = 0.0  # chance of one, at each call in the background
    retention_interval: float = 300.0
    poisons_a_stream: bool = False  # whether one stream does so all the time
    fills_up: bool = True  # whether the run goes on until it holds what every run should
    automatic_ids: bool = False  # whether brokers take the lowest id that is free
    # Two builds: see `builds`.
    older_brokers: frozenset[int] = frozenset()  # places
    older_compactors: frozenset[int] = frozenset()
    newer_formats: tuple[str, ...] = ()  # prefixes of keys whose values older processes cannot read
    older_beats: bool = True  # False: their brokers are from before beats, and registered all the same
    level_wait: float | None = None  # until the level is raised; None: nobody does
    rewritten_at: float = 0.0  # when a newer process stores all topics anew
    # Small appends: what one write carries (0: nothing), and how much is carried before it is packed.
    carry_bytes: int | None = None
    carry_backlog: int | None = None
    compaction_interval: float = 0.8
    # Compaction by key: what one merge may hold (None: all), and how many keys one cleaning round has.
    bottom_raw_bytes: int | None = None
    round_keys: int = 100

    script: ClassVar[Callable[[Any], Awaitable[None]] | None] = None
    """The script that is played in its `ClusterWorld`, if it is not the one of all clusters."""

    def clients(self) -> list[tuple[int, Role]]:
        """The players, each with the number that its chance comes from."""
        return [(number, role) for number, role in enumerate(self.roles) if number not in self.absent]

    @classmethod
    def choose(cls, seed: int) -> ClusterConditions:
        random = Random(seed)
        seconds = random.choice((3.0, 4.0, 6.0))
        conditions = cls(
            seed=seed,
            compactors=random.choice((1, 1, 2)),
            domains=random.choice((1, 2, 3)),
            partitions=random.choice((2, 3, 4)),
            seconds=seconds,
            weather=Weather(
                Random(random.getrandbits(64)),
                refused=random.choice((0.0, 0.02)),
                lost=random.choice((0.0, 0.02)),
                unanswered=random.choice((0.01, 0.05)),
                late=random.choice((0.01, 0.05)),
                twice=random.choice((0.01, 0.05, 0.2)),
                stale=random.choice((0.0, 0.02)),
                stalled=random.choice((0.0, 0.003)),
                unheard=random.choice((0.02, 0.3)),
                slowest=random.choice((0.01, 0.02)),
                slowest_upload=random.choice((0.02, 0.02, 0.2)),
                latest=random.choice((0.5, 3.0)),
                stalest=random.choice((0.2, 1.5)),
                reads_travel_both_ways=False,
            ),
            network=NetworkWeather(
                Random(random.getrandbits(64)),
                broken=random.choice((0.0, 0.002, 0.01)),
                silent=random.choice((0.0, 0.002)),
            ),
            disasters=_plan(random, seconds, brokers=3),
            pace=random.choice((0.02, 0.04, 0.08)),
            window=random.choice((1, 3, 5)),
            patience=random.choice((0.7, 1.5)),
            restless=random.choice((0.1, 0.4)),
            session_timeout=random.choice((1.5, 2.5)),
            known_machine=random.random() < 0.5,
            orphan_seconds=random.choice((0.2, 0.5, 1.5)),
            snapshot_every=random.choice((3, 20, 256)),
            deletes_topics=random.random() < 0.7,
            deleted_within=random.choice((0.2, 0.4, 0.8)),
        )
        conditions = conditions.with_clocks() if random.random() < 0.5 else conditions
        return conditions.with_lanes().with_rounds()

    def with_lanes(self) -> ClusterConditions:
        """The same with small bounds, so that appends change lanes often, and packs are many."""
        random = Random(self.seed ^ 0xCA2)
        return replace(
            self,
            carry_bytes=random.choice((None, None, None, 400, 1_000, 0)),
            carry_backlog=random.choice((None, 2_000, 6_000, 20_000)),
        )

    def with_rounds(self) -> ClusterConditions:
        """The same with bounds so small that most streams are too large for one merge by key."""
        random = Random(self.seed ^ 0x4E15)
        return replace(
            self, bottom_raw_bytes=random.choice((None, 0, 0)), round_keys=random.choice((1, 3, 100))
        )

    def with_clocks(self) -> ClusterConditions:
        """The same with one machine whose clock is wrong, or gets so: the others are more."""
        random = Random(self.seed ^ 0xC10C)
        bad = random.randrange(self.brokers)
        wrong = (random.choice((0.0, 8 * DAY, 40 * DAY)), random.choice((0.0, 0.05)))
        clocks = tuple(wrong if place == bad else (0.0, 0.0) for place in range(self.brokers))
        plan = [
            PlannedDisaster(
                random.uniform(0.5, self.seconds), Disaster.CLOCK_JUMP, bad, random.choice((8, 40)) * DAY
            ),
            PlannedDisaster(
                random.uniform(0.5, self.seconds),
                Disaster.HOST_PAUSE,
                random.randrange(self.brokers),
                random.choice((0.5, 2.5, 4.0)),
            ),
        ]
        disasters = tuple(sorted((*self.disasters, *plan), key=lambda planned: planned.at))
        return replace(self, clocks=clocks, disasters=disasters, known_machine=False, retention_interval=1.0)

    @property
    def gone_within(self) -> float:
        """After which nothing deleted is served, by the true time: a broker counts by its own clock."""
        stood = [each.seconds for each in self.disasters if each.what is Disaster.HOST_PAUSE]
        return self.deleted_within + sum(stood)

    def upstream(self, _runtime: Runtime) -> UpstreamClusters | None:
        """The clusters that brokers pass records on to, whose topics move here."""
        return None

    def clock(self, place: int) -> ProcessClock:
        return ProcessClock(*self.clocks[place]) if place < len(self.clocks) else ProcessClock()

    def compaction(self) -> CompactionSettings:
        """Early and often: of what clients write in a few seconds."""
        usual, most = compaction_settings(Settings()), self.bottom_raw_bytes
        return replace(
            usual,
            interval=self.compaction_interval,
            wal_max_age=self.compaction_interval / 2,
            wal_max_entries=4,
            parquet_max_files=2,
            takeover_seconds=1.0,
            failed_pause_seconds=0.5,
            collect_seconds=1.0,
            collect_grace=0.3,
            snapshot_keep_ms=500,
            bottom_raw_bytes=usual.bottom_raw_bytes if most is None else most,
            round_keys=self.round_keys,
        )

    def settings(self, place: int, host: str, port: int) -> Settings:
        """Of the broker at a place. Times are shorter than any configuration may ask for."""
        given = Settings()
        return replace(
            given,
            cluster=replace(
                given.cluster,
                domains=self.domains,
                clock_tolerance=self.clock_tolerance,
                level_wait=self.level_wait or given.cluster.level_wait,
            ),
            broker=replace(
                given.broker,
                id=None if self.automatic_ids else place,
                listen=Address(host, port),
                http=None,
                session_ttl=2.0,
                shutdown_grace=0.5,
            ),
            objects=replace(given.objects, url="memory:"),
            metrics=replace(given.metrics, groups=0),  # no oracle asks for lag
            log=replace(
                given.log,
                tail_cache_bytes=64 << 20,  # the same on every machine
                orphan_ttl=self.orphan_seconds,
                collect_seconds=1.0,
                collect_grace=0.3,
                audit_every_rounds=2,
                pack_look_seconds=1 / 6,
                bounds_seconds=self.deleted_within,
                retention_interval=self.retention_interval,
                carry_bytes=self.carry_bytes,
                carry_backlog=self.carry_backlog,
            ),
            topics=replace(given.topics, auto_create=False),
            groups=replace(
                given.groups,
                initial_rebalance_delay=0.1,
                min_session_timeout=0.1,
                consumer_session_timeout=self.session_timeout,
                consumer_heartbeat_interval=self.session_timeout / 5,
                sweep_interval=2.0,
            ),
        )


def _plan(random: Random, seconds: float, brokers: int) -> tuple[PlannedDisaster, ...]:
    """At least one of each that matters, at any time."""
    kinds = [Disaster.CRASH, Disaster.PAUSE, Disaster.CUT, Disaster.CUT]
    kinds += random.choices(_USUAL, weights=(2, 1, 3, 1, 3, 2, 2), k=random.randint(1, 6))
    plan = [
        PlannedDisaster(
            at=random.uniform(0.5, seconds - 0.5),
            what=kind,
            place=random.randrange(brokers),
            seconds=random.choice((0.1, 0.5, 1.0, 2.5, 4.0)),
        )
        for kind in kinds
    ]
    return tuple(sorted(plan, key=lambda planned: planned.at))
