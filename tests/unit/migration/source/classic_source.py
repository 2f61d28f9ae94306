"""A classic source in virtual time, with writers that work on until they are refused; and a target.

Fences take effect late, at each leader on its own; requests that got through before are still on their way
into the log; leaders change; an election may be unclean. All by chance, from one seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple, TypeVar, cast

from dray.base.runtime import Runtime
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.live import switch
from dray.migration.live.switch import Destination, SwitchFailed, SwitchStuck, TopicSwitch
from dray.migration.source.source import Failure, Leadership, Probe, SourceEnd, SourceProducer, SourceTopic
from dray_simulation.kernel.runtime import SimulatedRuntime

T = TypeVar("T")

FENCE_IS_LATE = 0.4
ON_THE_WAY = 0.08
REPLICATION = 0.01
PAUSE_SECONDS = 0.002  # the rules must hold without it


class Write(NamedTuple):
    producer: int
    sequence: int


class Stored(NamedTuple):
    write: Write
    epoch: int


@dataclass(slots=True)
class ClassicPartition:
    leadership: Leadership
    log: list[Stored] = field(default_factory=list)
    high_watermark: int = 0

    def holds(self, write: Write) -> bool:
        return any(each.write == write for each in self.log)


class ClassicSource:
    def __init__(self, runtime: Runtime, random: Random, partitions: int) -> None:
        self.runtime = runtime
        self.random = random
        self.partitions = {each: ClassicPartition(Leadership(0, 0)) for each in range(partitions)}
        self.leaderships: dict[int, Leadership] = {}
        self.acknowledged: dict[int, list[Write]] = {each: [] for each in range(partitions)}
        self.lost: dict[int, set[Write]] = {each: set() for each in range(partitions)}
        self.gone: dict[int, frozenset[SourceProducer]] = {each: frozenset() for each in range(partitions)}
        """The producers whose records were all deleted, before anything of them was mirrored."""
        self._fenced_at: dict[int, float] = {}
        self.records_a_second = random.choice((60, 8, 3))
        self.is_up = False

    # What the switch asks.

    async def learn(self) -> None:
        await self._travel()
        self.leaderships = {number: each.leadership for number, each in self.partitions.items()}

    async def probe(self, partitions: Collection[int]) -> Mapping[int, tuple[Leadership, Probe] | Failure]:
        return await self._of_each(partitions, self._probe)

    async def measure(self, partitions: Collection[int]) -> Mapping[int, SourceEnd | Failure]:
        return await self._of_each(partitions, self.measure_one)

    async def ends_of_epochs(self, epochs: Mapping[int, int]) -> Mapping[int, int | Failure]:
        return await self._of_each(epochs, lambda each: self._end_of_epoch(each, epochs[each]))

    async def producers(
        self, partitions: Collection[int]
    ) -> Mapping[int, tuple[Leadership, frozenset[SourceProducer]] | Failure]:
        return await self._of_each(partitions, self._producers)

    async def _of_each(
        self, partitions: Iterable[int], ask: Callable[[int], Awaitable[T]]
    ) -> Mapping[int, T | Failure]:
        async def one(partition: int) -> T | Failure:
            try:
                return await ask(partition)
            except RequestFailed as failure:
                return failure

        asked = list(partitions)
        return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))

    async def _probe(self, partition: int) -> tuple[Leadership, Probe]:
        leadership = self.leaderships[partition]
        await self._travel()
        self._check(partition, leadership.leader)
        return leadership, Probe.FENCED if self.refuses(leadership.leader) else Probe.OPEN

    async def measure_one(self, partition: int) -> SourceEnd:
        leadership = self.leaderships[partition]
        await self._travel()
        found = self.partitions[partition]
        if found.leadership != leadership:
            raise RequestFailed("moved", ErrorCode.FENCED_LEADER_EPOCH)
        return SourceEnd(leadership, 0, found.high_watermark, found.high_watermark, len(found.log))

    async def _end_of_epoch(self, partition: int, epoch: int) -> int:
        found = self.partitions[partition]
        await self._travel()
        later = [offset for offset, each in enumerate(found.log) if each.epoch > epoch]
        return min(later, default=len(found.log))

    async def _producers(self, partition: int) -> tuple[Leadership, frozenset[SourceProducer]]:
        leadership = self.leaderships[partition]
        await self._travel()
        self._check(partition, leadership.leader)
        return leadership, self.known(partition)

    def known(self, partition: int) -> frozenset[SourceProducer]:
        return fold(self.partitions[partition].log) | self.gone[partition]

    async def open_transactions(self) -> list[str]:
        return []

    async def transactional(self) -> list[str]:
        return []

    # The fence.

    def put_up(self) -> None:
        self.is_up = True
        for leader in range(3):
            late = self.random.uniform(0, FENCE_IS_LATE)
            self._fenced_at.setdefault(leader, self.runtime.monotonic() + late)

    def lift(self) -> None:
        self.is_up = False
        self._fenced_at.clear()

    def refuses(self, leader: int) -> bool:
        return self.runtime.monotonic() >= self._fenced_at.get(leader, float("inf"))

    # What happens meanwhile.

    async def write(self, partition: int, producer: int) -> None:
        """Until it is refused: one record after the other, each sent again until it is acknowledged."""
        for sequence in range(10_000):
            while not await self._append(partition, Write(producer, sequence)):
                if self.is_up and self.refuses(self.partitions[partition].leadership.leader):
                    return
                await self.runtime.sleep(0.01)
            await self.runtime.sleep(self.random.expovariate(self.records_a_second))

    async def _append(self, partition: int, write: Write) -> bool:
        found = self.partitions[partition]
        leadership = found.leadership
        if self.refuses(leadership.leader):
            return False
        await self.runtime.sleep(self.random.choice((0.0, 0.001, self.random.uniform(0, ON_THE_WAY))))
        if found.leadership != leadership:
            return False
        if not found.holds(write):
            found.log.append(Stored(write, leadership.epoch))
        end = len(found.log)
        await self.runtime.sleep(self.random.uniform(0, REPLICATION))
        if found.leadership != leadership:
            return False
        found.high_watermark = max(found.high_watermark, end)
        self.acknowledged[partition].append(write)
        return True

    def elect(self, partition: int, *, unclean: bool) -> None:
        """A broker hears of its leadership after all that the cluster decided before: also of a fence."""
        found = self.partitions[partition]
        kept = max(0, found.high_watermark - 2) if unclean else found.high_watermark
        self.lost[partition].update(each.write for each in found.log[kept:])
        del found.log[kept:]
        found.high_watermark = len(found.log)
        leader = (found.leadership.leader + 1) % 3
        found.leadership = Leadership(leader, found.leadership.epoch + 1)
        if leader in self._fenced_at:
            self._fenced_at[leader] = min(self._fenced_at[leader], self.runtime.monotonic())

    def _check(self, partition: int, leader: int) -> None:
        if self.partitions[partition].leadership.leader != leader:
            raise RequestFailed("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _travel(self) -> None:
        await self.runtime.sleep(self.random.uniform(0, 0.01))


@dataclass(slots=True)
class ClassicFence:
    source: ClassicSource
    is_probed: bool = True
    moment_seconds: float = 0.1

    async def check(self, _: object, /) -> None:
        return None

    async def put_up(self) -> None:
        self.source.put_up()

    async def lift(self) -> None:
        self.source.lift()


class DrayDestination:
    """`forgets`: it does not remember the last record of one of the producers, as a fold with a fault
    would."""

    def __init__(self, source: ClassicSource, runtime: Runtime, random: Random, *, forgets: bool) -> None:
        self._source = source
        self._runtime = runtime
        self._random = random
        self._forgets = forgets
        self.logs: dict[int, list[Stored]] = {each: [] for each in source.partitions}
        self.boundaries: dict[int, int] = {}
        self.taken_over: dict[int, frozenset[SourceProducer]] = {}

    async def mirror(self, partition: int) -> None:
        mine = self.logs[partition]
        while partition not in self.boundaries:
            theirs = self._source.partitions[partition]
            if mine != theirs.log[: len(mine)]:
                return  # stopped: nothing is taken back
            upto = theirs.high_watermark
            await self._runtime.sleep(self._random.uniform(0, 0.05))
            if partition not in self.boundaries and mine == theirs.log[: len(mine)]:
                mine.extend(theirs.log[len(mine) : upto])

    async def end(self, partition: int) -> int:
        await self._runtime.sleep(0.001)
        return len(self.logs[partition])

    async def last_epoch(self, partition: int) -> int | None:
        mine = self.logs[partition]
        return mine[-1].epoch if mine else None

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        found = sorted(fold(self.logs[partition]))
        if self._forgets and found:
            found[0] = found[0]._replace(last_sequence=found[0].last_sequence - 1)
        return found

    async def boundary(self, partition: int) -> int | None:
        return self.boundaries.get(partition)

    async def decide(
        self, partition: int, boundary: int, taken_over: Collection[SourceProducer] = (), _: object = None
    ) -> bool:
        await self._runtime.sleep(0.001)
        if partition in self.boundaries or len(self.logs[partition]) != boundary:
            return False
        self.taken_over[partition] = frozenset(taken_over)
        self.boundaries[partition] = boundary
        return True


def switch_of(
    source: ClassicSource,
    destination: DrayDestination,
    fence: ClassicFence,
    runtime: Runtime,
    give_up_seconds: float = 5,
    pause_seconds: float = switch.PAUSE_SECONDS,
) -> TopicSwitch:
    """Both are models: neither is asked for more than it has."""
    both = cast(SourceTopic, source), cast(Destination, destination)
    return TopicSwitch(*both, fence, runtime, give_up_seconds, pause_seconds)


def fold(log: list[Stored]) -> frozenset[SourceProducer]:
    last = {write.producer: write.sequence for write, _ in log}
    return frozenset(SourceProducer(producer, 0, sequence) for producer, sequence in last.items())


@dataclass(slots=True)
class Outcome:
    switched: bool
    why: str = ""
    faults: list[str] = field(default_factory=list)


async def play(seed: int, *, forgets: bool = False, is_probed: bool = True, moment: float = 0.1) -> Outcome:
    """One switch in the midst of it all, and what is wrong afterwards."""
    random = Random(seed)
    runtime = SimulatedRuntime(seed)
    source = ClassicSource(runtime, random, partitions=random.choice((1, 2, 3)))
    target = DrayDestination(source, runtime, random, forgets=forgets)
    past = Random(~seed)
    for partition in source.partitions:
        some = past.sample(range(100, 105), past.choice((0, 2)))
        source.gone[partition] = frozenset(SourceProducer(each, 3, each - 97) for each in some)
    tasks = [
        runtime.spawn(source.write(partition, 10 * partition + writer), "writer")
        for partition in source.partitions
        for writer in range(3)
    ]
    tasks += [runtime.spawn(target.mirror(partition), "mirror") for partition in source.partitions]

    async def elections() -> None:
        while True:
            await runtime.sleep(random.expovariate(rate))
            source.elect(random.choice(list(source.partitions)), unclean=random.random() < unclean)

    rate, unclean = random.choice((1, 4)), random.choice((0.0, 0.4))
    if random.random() < 0.7:
        tasks.append(runtime.spawn(elections(), "elections"))
    await runtime.sleep(random.uniform(0, 1))
    fence = ClassicFence(source, is_probed, moment)
    outcome = Outcome(switched=True)
    try:
        found = await switch_of(source, target, fence, runtime, pause_seconds=PAUSE_SECONDS).run()
        outcome.faults += [] if dict(found) == target.boundaries else ["other boundaries than were decided"]
    except (SwitchFailed, SwitchStuck) as failure:
        outcome = Outcome(switched=False, why=str(failure))
        if target.boundaries and isinstance(failure, SwitchFailed):
            outcome.faults.append("went back after a decision")
        if not target.boundaries and source.is_up:
            outcome.faults.append("the fence is still up")
    await runtime.sleep(0.5)  # what is on the way arrives
    for task in tasks:
        task.cancel()
    for partition in target.boundaries:
        if not source.is_up:
            outcome.faults.append("the fence was lifted after a decision")
        lost = source.lost[partition]  # by unclean elections: the source's own fault
        here = [each for each in target.logs[partition] if each.write not in lost]
        there = [each for each in source.partitions[partition].log if each.write not in lost]
        if here != there[: len(here)]:
            outcome.faults.append("another log than the source's")
        known = {each.write for each in here} | lost
        beyond = [each for each in source.acknowledged[partition] if each not in known]
        if beyond:
            outcome.faults.append(f"acknowledged and not here: {beyond}")
        unknown = source.known(partition) - fold(target.logs[partition]) - target.taken_over[partition]
        if unknown and not lost:
            outcome.faults.append(f"a retry of these would be there twice: {unknown}")
        if forgets and target.logs[partition]:
            outcome.faults.append("decided although a producer is not known")
    return outcome
