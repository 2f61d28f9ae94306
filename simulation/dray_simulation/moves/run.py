"""One run of a topic that moves from a classic source to a cluster of Dray."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import ClassVar, Final, TypeVar

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.broker.topics import TopicError, Topics
from dray.daemons.assembly.settings import log_settings
from dray.daemons.config import Settings
from dray.daemons.config.upstream import UpstreamAddress
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.log import Log
from dray.log.origins import CLASSIC, epoch_above
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.migration.attach.found import MigrationRefused
from dray.migration.entries.lay_down import AttachedStream, lay_down
from dray.migration.live.migration import ABORTED
from dray.migration.live.steps import go_back, request_switch
from dray.migration.record import ALLOWED, NO_TIER, MigrationRecord, Migrations, MigrationState
from dray_simulation.checks.history import StartRaised
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import ClusterConditions, Disaster, PlannedDisaster
from dray_simulation.cluster.disasters import play_disasters
from dray_simulation.cluster.ending import first_trouble
from dray_simulation.cluster.world import ClusterWorld
from dray_simulation.kernel.network import NetworkWeather
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.kernel.weather import Weather
from dray_simulation.moves.classic_cluster import ACL_IS_LATE, ADDRESSES, ClassicCluster
from dray_simulation.moves.migrators import UPSTREAM, SimulatedMigrator
from dray_simulation.moves.readers import CommittedReader, MovingGroup, read_everything
from dray_simulation.moves.truth import MovedTruth
from dray_simulation.moves.writers import LateWriter, MovingProducer, SilentProducer, TransactionalWriter

T = TypeVar("T")

TOPIC: Final = "orders"
LEADER_EPOCH: Final = epoch_above(0)
_MIGRATORS: Final = 2
_STANDSTILL: Final = 2.0  # of a broker, at most
_SETTLED_SECONDS: Final = 40.0
_TAKEN_BACK: Final = 2  # switches, at most
_PRODUCERS: Final = 2


@dataclass(slots=True)
class MoveConditions(ClusterConditions):
    records_a_second: float = 20.0
    elections_a_second: float = 0.0
    is_unclean: bool = False
    has_transactions: bool = False
    groups: int = 0
    forwards: bool = False  # whether brokers pass on what is written to them
    expires: bool = False  # whether the source's retention takes its oldest batches
    overtakes: bool = False  # whether it takes also what was not mirrored yet
    acl_is_late: tuple[float, float] = ACL_IS_LATE  # seconds until a broker of the source knows one
    slow_fetches: tuple[float, float] = (0.0, 0.0)  # seconds until the mirror gets what comes with a fence
    give_up_seconds: float = 4.0
    trouble_every: tuple[float, float] = (0.3, 2.0)  # seconds until a migrator dies or stands still
    writes_late: bool = False  # whether a writer comes when a switch is about to decide
    lost_answers: float = 0.0  # the chance that the source does not say what it has stored
    lifts_late: bool = False  # whether a migrator stands still before it lifts a fence, until that is wrong
    slow_fences: tuple[float, float] = (0.0, 0.0)  # seconds until a call is carried out that puts one up
    silent: int = 0  # producers of each partition of which the source has no record any more
    forgets_consumers: bool = False  # whether groups leave a consumer behind at the source

    script: ClassVar[Callable[[ClusterWorld], Awaitable[None]] | None] = None

    def upstream(self, runtime: Runtime) -> UpstreamClusters | None:
        if not self.forwards:
            return None
        usual, address = Settings(), UpstreamAddress(tuple(Address(*each) for each in ADDRESSES))
        section = replace(usual.upstream, clusters={UPSTREAM: address})
        return UpstreamClusters(replace(usual, upstream=section), runtime)


class Move:
    """The state that players of a run share."""

    def __init__(self, world: ClusterWorld, conditions: MoveConditions) -> None:
        self.world = world
        self.conditions = conditions
        self.random = Random(conditions.seed ^ 0x30E)
        self.source = ClassicCluster(Random(conditions.seed ^ 0x50C), TOPIC, conditions.partitions)
        self.source.acl_is_late = conditions.acl_is_late
        self.source.lost_answers = conditions.lost_answers
        self.source.slow_fetches = conditions.slow_fetches
        self.source.slow_fences = conditions.slow_fences
        self.truth = MovedTruth(self.source, LEADER_EPOCH)
        self.truth.by_key = world.truth.cleaned
        world.truth.log = self.truth
        self.streams: list[int] = []
        self.record: MigrationRecord  # as it was when the topic was linked
        self.reached: Counter[str] = Counter()
        self.is_lifting_late = False
        self.migrators = [SimulatedMigrator(self, number) for number in range(_MIGRATORS)]

    def acknowledged(self, partition: int, offset: int, values: Sequence[bytes], *, by_source: bool) -> None:
        self.world.counts["acknowledged by the source" if by_source else "acknowledged by Dray"] += 1
        self.truth.ledger.acknowledged(partition, offset, values, by_source=by_source)

    @property
    def is_decided(self) -> bool:
        """Whether a partition is Dray's."""
        return any(each != CLASSIC for each in self.truth.boundaries.values())

    async def link(self) -> None:
        """The topic is laid down and seen, and its source owns it."""
        broker = self.world.brokers[0]
        assert broker.store is not None
        assert broker.objects is not None
        config = self.conditions.settings(0, broker.host, broker.port)
        settings, domains = log_settings(config), self.conditions.domains
        store = StreamStore(broker.store, domains, settings.producer_expiry_ms)
        log = Log(broker.store, broker.objects, broker.runtime, domains, settings)
        topics = Topics(broker.store, broker.runtime, log, config.topics)
        self.streams = await _insist(lambda: log.take_stream_ids(self.conditions.partitions))
        self.truth.lay_down(self.streams)
        starts = [found.start for found in self.source.partitions]
        for stream, start in zip(self.streams, starts, strict=True):
            if start:
                self.world.history.starts.append(StartRaised(stream, start, self.world.now()))
            attached = AttachedStream([], start, start, LEADER_EPOCH, (), CLASSIC)
            await _insist(partial(lay_down, store, stream, attached))
        kept = {"retention.ms": "-1"}
        await _insist(lambda: topics.attach(TOPIC, self.source.topic_id, self.streams, kept, LEADER_EPOCH))

        self.record = MigrationRecord(
            MigrationState.MIRRORING,
            broker.runtime.uuid(),
            self.source.topic_id,
            NO_TIER,
            "the classic source",
            "",
            "",
            LEADER_EPOCH,
            self.conditions.partitions,
            tuple(self.streams),
            tuple((start, start) for start in starts),
            kept,
            broker.runtime.wall_ms(),
            upstream=UPSTREAM,
            source_topic_id=self.source.topic_id,
            attempt=0,
        )
        await _insist(lambda: Migrations(broker.store, broker.runtime).begin(TOPIC, self.record))  # type: ignore[arg-type]

    async def play_operator(self) -> None:
        """Asks for the switch, again and again."""
        runtime = SimulatedRuntime(self.conditions.seed)
        migrations = Migrations(self.world.store_client(runtime, older=False), runtime)
        while True:
            await asyncio.sleep(self.random.uniform(0.2, 2.0))
            with suppress(MigrationRefused, MetadataError):
                # There are writers of transactions, as the operator knows: they end with the switch.
                record = await request_switch(migrations, TOPIC, allows=ALLOWED)
                if record.state is MigrationState.MOVED:
                    return
                if self.conditions.lifts_late and record.attempt == 1:
                    await asyncio.sleep(self.random.uniform(0, 0.5))
                    await go_back(migrations, TOPIC, record, ABORTED)
                if self.conditions.slow_fences[1] and (record.attempt or 0) <= _TAKEN_BACK:
                    await asyncio.sleep(self.random.uniform(0.3, 1.5))
                    await go_back(migrations, TOPIC, record, ABORTED)

    async def settle(self) -> None:
        """Nobody asks for a switch any more, and one migrator is at work: what is under way comes to its end,
        and the source is not left fenced for nothing."""
        runtime = SimulatedRuntime(self.conditions.seed)
        migrations = Migrations(self.world.store_client(runtime, older=False), runtime)
        self.migrators[0].start()
        quiet = 0.0  # since when all is as it should be
        until = self.world.now() + _SETTLED_SECONDS
        while quiet < self.conditions.slow_fences[1] + 2:
            await asyncio.sleep(0.2)
            record = await migrations.read(TOPIC)
            assert record is not None
            if not record.is_classic or (self.is_decided and self.conditions.is_unclean):
                break  # an unclean election may have left a partition that can never be switched
            is_over = record.state is MigrationState.MIRRORING and record.undo is None
            if self.world.now() > until:
                raise Violation(
                    "the source is fenced, and no switch is on" if is_over else "a switch does not end"
                )
            quiet = quiet + 0.2 if is_over and not self.source.is_fenced else 0.0
        self.migrators[0].kill()
        await asyncio.sleep(1.5)

    async def play_elections(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(self.conditions.elections_a_second))
            lost = self.random.choice((0, 1, 2)) if self.conditions.is_unclean else 0
            self.source.elect(self.random.randrange(len(self.source.partitions)), lost=lost)
            self.world.counts["! leader of the source changed"] += 1

    async def play_retention(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.2, 1.0))
            found = self.random.choice(self.source.partitions)
            held = self.truth.streams[self.truth.stream_of(found.number)]
            before = found.start
            if self.conditions.overtakes and self.random.random() < 0.7:
                if self.random.random() < 0.5:
                    found.expire(self.random.choice((1, 3, 1000)))
                else:
                    found.delete_before(self.random.randint(found.start, found.last_stable))
            elif found.start < len(held.records) - 20:
                found.expire(1)
            if found.start > before:
                raised = StartRaised(held.number, found.start, self.world.now())
                self.world.history.starts.append(raised)

    async def play_migrators(self) -> None:
        for migrator in self.migrators:
            migrator.start()
        while True:
            await asyncio.sleep(self.random.uniform(*self.conditions.trouble_every))
            migrator = self.random.choice(self.migrators)
            if self.random.random() < 0.5:
                self.world.counts["! migrator stood still"] += 1
                migrator.runtime.pause(self.random.choice((0.1, 0.5, 2.0)))
            else:
                self.world.counts["! migrator crashed"] += 1
                migrator.kill()
                await asyncio.sleep(self.random.uniform(0, 0.3))
                migrator.start()


async def _insist(act: Callable[[], Awaitable[T]]) -> T:
    while True:
        try:
            return await act()
        except (MetadataError, LogError, TopicError):
            await asyncio.sleep(0.1)


async def play_move(world: ClusterWorld) -> None:
    conditions = world.conditions
    assert isinstance(conditions, MoveConditions)
    move = Move(world, conditions)
    await move.source.listen()
    await world.start()
    seed = conditions.seed * 1000
    silent = [
        SilentProducer(move, 1000 + 10 * partition + number, partition, seed + 900 + 20 * partition + number)
        for partition in range(conditions.partitions)
        for number in range(conditions.silent)
    ]
    for producer in silent:
        producer.write_past()
    for found in move.source.partitions:
        found.expire_all()
    await move.link()
    makers: list[Callable[[], Awaitable[None]]] = [
        move.play_migrators,
        move.play_operator,
        *[producer.play for producer in silent],
    ]
    for partition in range(conditions.partitions):
        for number in range(_PRODUCERS):
            each = MovingProducer(
                move, 10 * partition + number, partition, seed + 20 * partition + 2 * number
            )
            makers.append(each.play)
        makers.append(CommittedReader(move, partition, seed + 600 + partition).play)
        if conditions.writes_late:
            makers.append(LateWriter(move, partition, seed + 800 + partition).play)
        if conditions.has_transactions:
            makers.append(TransactionalWriter(move, partition, seed + 500 + partition).play)
    for number in range(conditions.groups):
        makers.append(MovingGroup(move, f"group {number}", seed + 700 + number).play)
    if conditions.elections_a_second:
        makers.append(move.play_elections)
    if conditions.expires:
        makers.append(move.play_retention)
    disasters = asyncio.ensure_future(play_disasters(world))
    tasks = [asyncio.ensure_future(make()) for make in makers]
    try:
        await first_trouble(world, [*tasks, disasters], conditions.seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for migrator in move.migrators:
            migrator.kill()
        await asyncio.sleep(1.5)  # until the last of their tasks is gone
    if world.violation.done():
        world.violation.result()
    conditions.weather.calm()
    conditions.network.calm()
    await disasters
    await asyncio.sleep(_STANDSTILL)
    await move.settle()
    move.truth.ledger.check_all()
    await read_everything(move)
    if world.violation.done():
        world.violation.result()
    for broker in world.brokers:
        broker.check()
    switched = [each for each in move.truth.boundaries.values() if each != CLASSIC]
    world.counts["partitions switched"] += len(switched)
    world.counts["pieces mirrored"] += move.truth.mirrored
    world.counts["holes"] += move.truth.holes
    world.counts.update(move.reached)
    if switched and not move.source.is_fenced:
        raise Violation("the fence was lifted after a partition was decided")


MoveConditions.script = staticmethod(play_move)


def moving_topics(seed: int) -> MoveConditions:
    random = Random(seed)
    seconds = random.choice((6.0, 9.0))
    kinds = (Disaster.CRASH, Disaster.PAUSE, Disaster.CUT, Disaster.CUT)
    disasters = [
        PlannedDisaster(
            random.uniform(0.5, seconds), random.choice(kinds), random.randrange(2), random.choice((0.1, 1.0))
        )
        for _ in range(random.randint(0, 4))
    ]
    weather = ClusterConditions.choose(seed).weather
    return MoveConditions(
        seed=seed,
        brokers=2,
        compactors=0,
        partitions=random.choice((1, 2, 3)),
        seconds=seconds,
        weather=Weather(
            Random(seed ^ 0xEA7),
            refused=random.choice((0.0, 0.02)),
            lost=random.choice((0.0, 0.02)),
            unanswered=random.choice((0.01, 0.05)),
            late=random.choice((0.01, 0.05)),
            twice=random.choice((0.01, 0.05)),
            stale=random.choice((0.0, 0.02)),
            unheard=weather.unheard,
            slowest=random.choice((0.005, 0.02)),
            latest=random.choice((0.5, 2.0)),
        ),
        network=NetworkWeather(
            Random(seed ^ 0x4E7), broken=random.choice((0.0, 0.002)), silent=random.choice((0.0, 0.001))
        ),
        disasters=tuple(sorted(disasters, key=lambda planned: planned.at)),
        records_a_second=random.choice((4.0, 12.0, 30.0)),
        elections_a_second=random.choice((0.0, 0.3, 1.0)),
        is_unclean=random.random() < 0.25,
        has_transactions=random.random() < 0.6,
        groups=random.choice((0, 1, 2)),
        expires=random.random() < 0.4,
        forwards=random.random() < 0.6,
    )
