"""A cluster in bad weather, and clients that notice when a promise is broken.

Brokers are killed, started again and frozen; their writes get lost, are late, happen twice, and their replies
get lost. The clients behave as Kafka's do: they look for the coordinator, try again, and join again when
an answer says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    SETTINGS,
    BrokerUnderTest,
    FakeMembership,
    World,
)

from dray.broker.cluster import AdvertisedListener, Broker
from dray.broker.groups.consumer import HeartbeatAnswer
from dray.broker.groups.coordinator import Groups, GroupUnavailable
from dray.kafka.protocol import ErrorCode
from dray.metadata.contract import Operation, Outcome, Put, SessionEnded
from dray.metadata.sessions import session_identity
from dray.migration.groups.gate import GroupGate
from dray_simulation.kernel.faults import FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.kernel.weather import Weather

T = TypeVar("T")

TOPIC = "a"
PARTITIONS = 8
SESSION_TTL = 3.0
PATIENCE = 8.0
"""After which a client gives up waiting for an answer."""


class Broken(AssertionError):
    """A promise was not kept."""


@dataclass
class Cluster(World):
    seed: int = 0
    running: dict[int, BrokerUnderTest] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.weather = Weather(Random(self.seed + 1), stale=0.05)
        self._started = 0
        self.restless = True
        """Whether members come and go."""

    def apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        sessions = {operation.session for operation in operations if isinstance(operation, Put)} - {None}
        identity = session_identity(domain, sessions.pop()) if sessions else None
        now = asyncio.get_running_loop().time()
        try:
            return self.state.apply(domain, operations, identity, now)
        except SessionEnded:
            return [Outcome(False)] * len(operations)

    async def start_broker(self, broker_id: int) -> None:
        self._started += 1
        me = Broker(
            broker_id,
            (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092 + broker_id),),
            machine="here",
            process=self._started,
        )
        self.cluster[broker_id] = me
        runtime = SimulatedRuntime(self.seed * 1000 + self._started)
        store = FaultyStore(self.state, self.apply, runtime, self.weather)
        groups = Groups(
            store,
            runtime,
            self.topics,  # type: ignore[arg-type]
            FakeMembership(me, self.cluster),  # type: ignore[arg-type]
            DOMAINS,
            self.settings,
            admission=GroupGate(store, runtime, DOMAINS),
        )
        await groups.start()
        self.running[broker_id] = BrokerUnderTest(self, groups, store, runtime)  # type: ignore[arg-type]

    def kill_broker(self, broker_id: int) -> None:
        broker = self.running.pop(broker_id)
        if broker.runtime.failures:
            raise Broken(f"broker {broker_id} failed: {broker.runtime.failures}")
        broker.runtime.kill()
        broker.store.cut()  # type: ignore[attr-defined]
        for group in broker.groups.active():
            group._timers.close()

    async def trouble(self, seconds: float) -> None:
        """Kill, start and freeze brokers until the time is up."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            await asyncio.sleep(self.random.random() * 8)
            chance = self.random.random()
            alive = sorted(self.running)
            if chance < 0.25 and len(alive) > 1:
                self.kill_broker(self.random.choice(alive))
            elif chance < 0.5:
                missing = [number for number in (1, 2, 3) if number not in self.running]
                if missing:
                    await self.start_broker(self.random.choice(missing))
            elif alive:
                frozen = self.running[self.random.choice(alive)]
                frozen.runtime.pause(self.random.random() * 3 * SESSION_TTL)

    async def calm(self) -> None:
        self.restless = False
        self.weather.calm()
        for number in (1, 2, 3):
            if number not in self.running:
                await self.start_broker(number)
        await asyncio.sleep(4 * SESSION_TTL)


class Client:
    """Finds the coordinator of its group, and asks it."""

    def __init__(self, cluster: Cluster, group_id: str, name: str) -> None:
        self.cluster = cluster
        self.group_id = group_id
        self.name = name
        self.random = Random(f"{cluster.seed}/{group_id}/{name}")
        self._coordinator: int | None = None

    async def broker(self) -> BrokerUnderTest:
        while True:
            known = self.cluster.running.get(self._coordinator or 0)
            if known is not None:
                return known
            await asyncio.sleep(0.1)
            alive = sorted(self.cluster.running)
            if alive:
                asked = self.cluster.running[self.random.choice(alive)]
                found = await self.answer(asked, partial(asked.groups.find_coordinator, self.group_id))
                self._coordinator = None if found is None else found.broker_id

    async def answer(self, broker: BrokerUnderTest, asking: Callable[[], Awaitable[T]]) -> T | None:
        """The answer; None when there is none in time, or it is not for this broker to give."""

        async def ask() -> T | GroupUnavailable:
            await asyncio.sleep(self.random.random() * 0.01)
            await broker.runtime.awake()
            try:
                answer: T | GroupUnavailable = await asking()
            except GroupUnavailable as refusal:
                answer = refusal
            await broker.runtime.awake()
            await asyncio.sleep(self.random.random() * 0.01)
            return answer

        task = broker.runtime.spawn(ask(), self.name)
        done, _ = await asyncio.wait([task], timeout=PATIENCE)
        if not done or task.cancelled():  # it takes too long, or the broker was killed
            # What waits in a connection that was given up could overtake what follows, on Kafka too.
            task.cancel()
            self._coordinator = None
            return None
        answer = task.result()
        if isinstance(answer, GroupUnavailable):
            if answer.error is ErrorCode.NOT_COORDINATOR:
                self._coordinator = None
            return None
        return answer


class Committer(Client):
    """Commits growing offsets, and checks that none that was acknowledged is ever forgotten."""

    acknowledged = -1
    sent = -1

    async def live(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 0.5)
            broker = await self.broker()
            if self.random.random() < 0.5:
                self.sent += 1
                offset = self.sent
                error = await self.answer(broker, partial(broker.commit, offset, group_id=self.group_id))
                if error is ErrorCode.NONE:
                    self.acknowledged = max(self.acknowledged, offset)
                elif error is not None:
                    raise Broken(f"a commit was refused with {error!r}")
            else:
                await self.check(broker)

    async def check(self, broker: BrokerUnderTest) -> bool:
        least = self.acknowledged

        async def fetch() -> int:
            found = await broker.committed(group_id=self.group_id)
            return -1 if found is None else found

        found = await self.answer(broker, fetch)
        if found is not None and not least <= found <= self.sent:
            raise Broken(f"{self.group_id}: {found} is fetched, {least} was acknowledged, {self.sent} sent")
        return found is not None


class Owners:
    """Who believes to own what: never two the same."""

    def __init__(self) -> None:
        self.by_partition: dict[int, str] = {}

    def take(self, member: str, partitions: set[int]) -> None:
        for partition in partitions:
            owner = self.by_partition.get(partition, member)
            if owner != member:
                raise Broken(f"partition {partition} belongs to {owner} and is given to {member}")
            self.by_partition[partition] = member

    def give_up(self, member: str, partitions: set[int] | None = None) -> None:
        for partition, owner in list(self.by_partition.items()):
            if owner == member and (partitions is None or partition in partitions):
                del self.by_partition[partition]


class ConsumerMember(Client):
    """A member of a KIP-848 group."""

    def __init__(self, cluster: Cluster, group_id: str, name: str, owners: Owners) -> None:
        super().__init__(cluster, group_id, name)
        self.owners = owners
        self.topic_id: UUID = cluster.topics.by_name[TOPIC].topic_id
        self.epoch = 0
        self.highest = 0
        self.owned: set[int] = set()
        self.full = True

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0.3 + self.random.random())
            if self.cluster.restless and self.random.random() < 0.03:
                await self.leave()
            await self.beat()

    async def leave(self) -> None:
        self.owners.give_up(self.name)
        self.owned, self.full = set(), True
        broker = await self.broker()
        await self.answer(broker, partial(broker.beat, self.name, -1, group_id=self.group_id))
        self.epoch = 0

    async def beat(self) -> None:
        broker = await self.broker()
        joins = self.epoch == 0
        owned = [(self.topic_id, sorted(self.owned))] if self.owned else []
        beating = partial(
            broker.beat,
            self.name,
            self.epoch,
            group_id=self.group_id,
            topics=[TOPIC] if joins or self.full else None,
            owned=owned if joins or self.full or self.random.random() < 0.5 else None,
        )
        answer = await self.answer(broker, beating)
        if answer is None:
            self.full = True
            return
        if not isinstance(answer, HeartbeatAnswer):
            if answer.error not in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
                raise Broken(f"{self.name} was refused: {answer}")
            self.owners.give_up(self.name)
            self.owned, self.epoch, self.full = set(), 0, True
            return
        if answer.member_epoch < self.highest and self.epoch != 0:
            raise Broken(f"{self.name} goes back from epoch {self.highest} to {answer.member_epoch}")
        self.full = False
        self.epoch = self.highest = answer.member_epoch
        if answer.assignment is not None:
            assigned = set(answer.assignment.get(self.topic_id, frozenset()))
            self.owners.give_up(self.name, self.owned - assigned)
            self.owners.take(self.name, assigned)
            self.owned = assigned


class ClassicMember(Client):
    """A member of a classic group that gives up everything before it joins again."""

    def __init__(
        self, cluster: Cluster, group_id: str, name: str, owners: Owners, highest: list[int]
    ) -> None:
        super().__init__(cluster, group_id, name)
        self.owners = owners
        self.highest = highest
        self.member_id = ""
        self.generation = -1
        self._fresh = 0

    async def live(self) -> None:
        while True:
            await asyncio.sleep(0.2 + self.random.random() * 0.5)
            if self.cluster.restless and self.member_id and self.random.random() < 0.03:
                self.rejoin()
                broker = await self.broker()
                await self.answer(broker, partial(broker.leave, self.member_id, group_id=self.group_id))
                self.member_id = ""
            if self.generation < 0:
                await self.join()
            else:
                await self.beat()

    def rejoin(self, forget: bool = False) -> None:
        self.owners.give_up(self.name)
        self.generation = -1
        if forget:
            self.member_id = ""

    async def join(self) -> None:
        broker = await self.broker()
        self._fresh += 1
        fresh = f"{self.name}-{self._fresh}"
        joined = await self.answer(
            broker,
            partial(
                broker.join,
                self.member_id,
                group_id=self.group_id,
                version=5,
                session_ms=20_000,
                fresh=fresh,
            ),
        )
        if joined is None:
            return
        if joined.error is not ErrorCode.NONE:
            self.member_id = joined.member_id if joined.error is ErrorCode.MEMBER_ID_REQUIRED else ""
            return
        self.member_id = joined.member_id
        if joined.generation < self.highest[0]:
            raise Broken(f"generation {joined.generation} after {self.highest[0]}")
        self.highest[0] = max(self.highest[0], joined.generation)
        assignments: list[tuple[str, bytes]] = []
        if joined.members:
            ids = sorted(member.member_id for member in joined.members)
            assignments = [
                (member_id, bytes(range(position, PARTITIONS, len(ids))))
                for position, member_id in enumerate(ids)
            ]
        broker = await self.broker()
        synced = await self.answer(
            broker,
            partial(broker.sync, self.member_id, joined.generation, assignments, group_id=self.group_id),
        )
        if synced is None or synced.error is not ErrorCode.NONE:
            if synced is not None and synced.error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
            return
        self.generation = joined.generation
        self.owners.take(self.name, set(synced.assignment))

    async def beat(self) -> None:
        broker = await self.broker()
        error = await self.answer(
            broker, partial(broker.classic_beat, self.member_id, self.generation, group_id=self.group_id)
        )
        if error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            self.rejoin()
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.rejoin(forget=True)
        elif error not in (None, ErrorCode.NONE):
            raise Broken(f"{self.name} was refused: {error!r}")


async def play(seed: int, seconds: float) -> dict[str, Any]:
    """One run. What it did, to be sure that it did something."""
    cluster = Cluster(settings=replace(SETTINGS, session_ttl=SESSION_TTL), seed=seed)
    cluster.topics.make(TOPIC, PARTITIONS)
    for number in (1, 2, 3):
        await cluster.start_broker(number)
    consumers, classics = Owners(), Owners()
    committers = [Committer(cluster, f"simple-{number}", "committer") for number in range(3)]
    generations = [0]
    members: list[ConsumerMember] = [
        ConsumerMember(cluster, "consumers", f"m{number}", consumers) for number in range(4)
    ]
    joiners = [ClassicMember(cluster, "classics", f"c{number}", classics, generations) for number in range(3)]
    clients: list[Committer | ConsumerMember | ClassicMember] = [*committers, *members, *joiners]
    tasks = [asyncio.ensure_future(client.live()) for client in clients]
    trouble = asyncio.ensure_future(cluster.trouble(seconds))
    await asyncio.wait([*tasks, trouble], return_when=asyncio.FIRST_COMPLETED)
    for task in (*tasks, trouble):
        if task.done():
            task.result()
    await cluster.calm()
    await asyncio.wait(tasks, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.wait(tasks)
    everything = set(range(PARTITIONS))
    for what, owners in (("consumer", consumers), ("classic", classics)):
        if set(owners.by_partition) != everything:
            raise Broken(f"the {what} group does not settle: {owners.by_partition}")
    for committer in committers:
        while not await committer.check(await committer.broker()):
            pass
    for broker_id in list(cluster.running):
        cluster.kill_broker(broker_id)
    return {
        "commits": sum(committer.acknowledged + 1 for committer in committers),
        "epoch": max(member.highest for member in members),
        "generation": generations[0],
    }
