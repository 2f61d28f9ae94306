"""Brokers that share one store in virtual time, with a store whose every write can be made to go wrong."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.services import room_settings
from tests.simulation.scripted import ScriptedStore

from dray.broker.cluster import AdvertisedListener, Broker
from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator import Groups, GroupUnavailable, LeaseHolder
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.settings import GroupsSettings
from dray.broker.topics import Topic, TopicUnreadable
from dray.broker.topics.model import TopicSettings
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.metadata import keys
from dray.metadata.contract import StoredValue
from dray.metadata.memory import MemoryState
from dray.migration.groups.gate import GroupGate
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

DOMAINS = 2
TTL = 10.0
GROUP = "some/group"
SETTINGS = room_settings.groups(
    min_session_timeout=0.001,
    initial_rebalance_delay=0.0,
    session_ttl=TTL,
)


def simulated(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A test in virtual time: whatever it waits for takes none."""

    @functools.wraps(test)
    def in_virtual_time() -> None:
        run(test())  # type: ignore[arg-type]

    del in_virtual_time.__wrapped__
    return in_virtual_time


class FakeTopics:
    """`by_name` is the truth, and what every broker knows but for the `hidden`: those cannot be read."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.hidden: set[str] = set()

    def make(self, name: str, partitions: int, created_ms: int = 0) -> Topic:
        topic = Topic(
            name,
            UUID(int=len(self.by_name) + 1 + created_ms),
            tuple(range(partitions)),
            {},
            created_ms,
            TopicSettings.of({}, {}),
        )
        self.by_name[name] = topic
        return topic

    @property
    def changes(self) -> int:
        """Tests change the table as they like: whatever is there now is a change of what was."""
        known = [(topic.name, topic.topic_id, topic.streams) for topic in self.all_cached()]
        return hash((*known, frozenset(self.hidden)))

    def all_cached(self) -> list[Topic]:
        readable = [topic for topic in self.by_name.values() if topic.name not in self.hidden]
        return sorted(readable, key=lambda topic: topic.name)

    def unreadable(self) -> set[str]:
        return self.hidden

    async def get(self, name: str) -> Topic | None:
        return await self.refresh(name)

    async def refresh(self, name: str) -> Topic | None:
        if name in self.hidden:
            raise TopicUnreadable(f"topic '{name}' cannot be read in this test")
        return self.by_name.get(name)


class FakeMembership:
    def __init__(self, me: Broker, cluster: dict[int, Broker]) -> None:
        self.me = me
        self._cluster = cluster

    def brokers(self) -> Sequence[Broker]:
        return [self._cluster[broker_id] for broker_id in sorted(self._cluster)]

    def find(self, broker_id: int) -> Broker | None:
        return self._cluster.get(broker_id)

    def listen(self, renumbered: Callable[[int], None]) -> None:
        self.renumbered = renumbered


@dataclass
class World:
    """`dead` are the processes that everybody knows to be gone."""

    settings: GroupsSettings = SETTINGS
    state: MemoryState = field(default_factory=MemoryState)
    topics: FakeTopics = field(default_factory=FakeTopics)
    cluster: dict[int, Broker] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)

    async def broker(self, broker_id: int, settings: GroupsSettings | None = None) -> BrokerUnderTest:
        listeners = (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092 + broker_id),)
        me = Broker(broker_id, listeners, machine="here", process=1000 + broker_id)
        self.cluster[broker_id] = me
        runtime = SimulatedRuntime(broker_id)
        store = ScriptedStore(runtime, self.state)
        groups = Groups(
            store,
            runtime,
            self.topics,  # type: ignore[arg-type]
            FakeMembership(me, self.cluster),  # type: ignore[arg-type]
            DOMAINS,
            settings or self.settings,
            is_dead=self._is_dead,
            admission=GroupGate(store, runtime, DOMAINS),
        )
        await groups.start()
        return BrokerUnderTest(self, groups, store, runtime)

    def _is_dead(self, holder: LeaseHolder) -> bool:
        return holder.process in self.dead

    def records(self, prefix: str = keys.ROOT) -> list[StoredValue]:
        """What is stored, of all domains."""
        now = asyncio.get_running_loop().time()
        found = []
        for domain in range(DOMAINS):
            content = self.state.domain(domain, now)
            found += [content.entries[key].record for key in content.keys if key.startswith(prefix)]
        return found

    def group_record(self, group_id: str = GROUP) -> StoredValue | None:
        found = [record for record in self.records(keys.GROUPS) if record.key == keys.group(group_id)]
        return found[0] if found else None


@dataclass
class BrokerUnderTest:
    world: World
    groups: Groups
    store: ScriptedStore
    runtime: SimulatedRuntime

    async def stop(self) -> None:
        await self.groups.stop()
        assert self.runtime.failures == []

    def vanish(self) -> None:
        """As a process that is killed: without a word to other brokers."""
        self.runtime.kill()
        self.store.abandon()
        for group in self.groups.active():
            group._timers.close()

    # --- what clients ask

    async def beat(
        self,
        member_id: str = "m1",
        epoch: int = 0,
        *,
        group_id: str = GROUP,
        topics: Sequence[str] | None = None,
        regex: str | None = None,
        owned: Sequence[tuple[UUID, Sequence[int]]] | None = None,
        instance_id: str | None = None,
        host: str = "/127.0.0.1",
    ) -> consumer.HeartbeatAnswer | consumer.Refusal:
        joins = epoch == 0
        if joins and topics is None and regex is None:
            topics = ["a"]
        return await self.groups.consumer_heartbeat(
            consumer.Heartbeat(
                group_id,
                member_id,
                epoch,
                1,
                "client",
                host,
                instance_id=instance_id,
                rebalance_timeout_ms=60_000 if joins else -1,
                topic_names=topics,
                topic_regex=regex,
                owned=[] if joins else owned,
            )
        )

    async def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        version: int = 3,
        session_ms: int = 30_000,
        instance_id: str | None = None,
        fresh: str = "fresh",
        metadata: bytes = b"\0\0\0\0\0\1\0\1a\0\0\0\0",
    ) -> classic.JoinAnswer:
        answer: classic.JoinAnswer = await self.groups.ask(
            group_id,
            lambda token: classic.Join(
                token,
                group_id,
                member_id,
                version,
                session_ms,
                60_000,
                "consumer",
                [("range", metadata)],
                instance_id=instance_id,
                client_id="client",
                client_host="/127.0.0.1",
                fresh_member_id=fresh,
            ),
        )
        return answer

    async def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Sequence[tuple[str, bytes]] = (),
        *,
        group_id: str = GROUP,
    ) -> classic.SyncAnswer:
        answer: classic.SyncAnswer = await self.groups.ask(
            group_id,
            lambda token: classic.Sync(token, group_id, member_id, generation, assignments=assignments),
        )
        return answer

    async def classic_beat(self, member_id: str, generation: int, *, group_id: str = GROUP) -> ErrorCode:
        verdict = await self.groups.ask(
            group_id, lambda token: classic.Heartbeat(token, group_id, member_id, generation)
        )
        error: ErrorCode = verdict.error
        return error

    async def leave(self, member_id: str, *, group_id: str = GROUP) -> ErrorCode:
        answer = await self.groups.ask(
            group_id, lambda token: classic.Leave(token, group_id, [(member_id, None)])
        )
        [(_, _, error)] = answer.members
        assert isinstance(error, ErrorCode)
        return error

    async def stable_group(self, group_id: str = GROUP) -> tuple[str, int]:
        """A classic group of one: its member and generation."""
        joined = await self.join(group_id=group_id)
        assert joined.error is ErrorCode.NONE
        synced = await self.sync(
            joined.member_id, joined.generation, [(joined.member_id, b"all")], group_id=group_id
        )
        assert synced.assignment == b"all"
        return joined.member_id, joined.generation

    async def commit(
        self,
        offset: int,
        *,
        group_id: str = GROUP,
        partition: int = 0,
        topic: str = "a",
        member_id: str = "",
        generation: int = -1,
        version: int = 9,
    ) -> ErrorCode:
        known = self.world.topics.by_name.get(topic)
        topic_id = ZERO_UUID if known is None else known.topic_id
        committed = CommittedOffset.at(offset, 0, "", self.runtime.wall_ms(), topic_id=topic_id)
        return await self.groups.commit(
            group_id,
            lambda token: classic.CommitCheck(token, group_id, member_id, generation, version),
            {(topic, partition): committed},
        )

    async def committed(self, *, group_id: str = GROUP, partition: int = 0, topic: str = "a") -> int | None:
        ledger = await self.groups.offsets(group_id, None, -1, [(topic, partition)])
        found = None if ledger is None else ledger.find(topic, partition)
        return None if found is None else found.offset

    async def delete(self, group_id: str = GROUP) -> ErrorCode:
        error: ErrorCode = (await self.groups.ask(group_id, classic.DeleteGroup)).error
        return error


async def refused(asking: Awaitable[Any]) -> ErrorCode:
    try:
        answer = await asking
    except GroupUnavailable as refusal:
        return refusal.error
    raise AssertionError(f"it was not refused, but answered with {answer}")


async def passing(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def settled() -> None:
    """Let everything that can happen now happen."""
    for _ in range(50):
        await asyncio.sleep(0)


async def until(true: Callable[[], object]) -> None:
    """What brings it about is on its way."""
    for _ in range(10_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")
