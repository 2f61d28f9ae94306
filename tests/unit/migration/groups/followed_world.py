"""A source with groups, linked topics, and migrators that follow the groups into a world of brokers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from tests.simulation.scripted import ScriptedStore
from tests.unit.broker.groups.coordinator.harness import DOMAINS, World

from dray.broker.topics import Topic
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.copy import Offsets
from dray.migration.groups.follower import GroupFollower, LinkedTopic
from dray.migration.source.source_groups import ListedSourceGroup, ReadOffsets
from dray_simulation.kernel.runtime import SimulatedRuntime

Hook = Callable[[], Awaitable[None]]
UPSTREAM = "old"


@dataclass
class GroupAtSource:
    committed: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    members: int = 0
    group_type: str = "classic"

    def commit(self, offset: int, topic: str = "a", partition: int = 0, metadata: str = "") -> None:
        self.committed[topic, partition] = (offset, metadata)


@dataclass
class FakeGroupSource:
    """`before` has what happens just before a question is answered, once."""

    groups: dict[str, GroupAtSource] = field(default_factory=dict)
    before: dict[str, list[Hook]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    silent: set[str] = field(default_factory=set)
    """Groups whose coordinator does not answer."""
    refusing: dict[str, str] = field(default_factory=dict)
    """Groups whose offsets we may not know, and the error."""
    uncounted: set[str] = field(default_factory=set)
    """Groups whose members are not told, though their offsets are."""

    async def listed(self) -> Mapping[str, ListedSourceGroup]:
        await self._happens("listed")
        return {
            group_id: ListedSourceGroup(group.group_type, "Stable" if group.members else "Empty")
            for group_id, group in self.groups.items()
        }

    async def members(self, group_ids: Collection[str]) -> Mapping[str, int]:
        await self._happens("members")
        return {
            group_id: self.groups[group_id].members if group_id in self.groups else 0
            for group_id in group_ids
            if group_id not in self.silent | self.uncounted
        }

    async def committed(
        self, group_ids: Collection[str], partitions: Mapping[str, Sequence[int]]
    ) -> ReadOffsets:
        await self._happens("committed")
        found: dict[str, Offsets] = {}
        for group_id in group_ids:
            if group_id in self.silent or group_id in self.refusing:
                continue
            group = self.groups.get(group_id, GroupAtSource())
            found[group_id] = {
                place: offset
                for place, offset in group.committed.items()
                if place[1] in partitions.get(place[0], ())
            }
        return ReadOffsets(found, {each: self.refusing[each] for each in group_ids if each in self.refusing})

    async def _happens(self, question: str) -> None:
        self.asked.append(question)
        hooks = self.before.get(question)
        if hooks:
            await hooks.pop(0)()


class Links:
    """The linked topics of a world, all of which exist at Dray."""

    def __init__(self, world: World, **partitions: int) -> None:
        self.world = world
        self._unseen: dict[str, Topic] = {}
        self.topics = {
            name: LinkedTopic(name, world.topics.make(name, count).topic_id, count, {})
            for name, count in partitions.items()
        }

    async def read(self) -> Sequence[LinkedTopic]:
        return list(self.topics.values())

    def link(self, name: str, partitions: int = 1) -> None:
        """As it is before brokers see it."""
        topic = self.world.topics.make(name, partitions)
        del self.world.topics.by_name[name]
        self._unseen[name] = replace(topic, leader_epoch=65_536)
        self.topics[name] = LinkedTopic(name, topic.topic_id, partitions, {})

    def show(self, name: str) -> None:
        self.world.topics.by_name[name] = self._unseen.pop(name)

    def switch(self, name: str = "a", boundary: int = 1000) -> None:
        topic = self.topics[name]
        boundaries = dict.fromkeys(range(topic.partitions), boundary)
        self.topics[name] = LinkedTopic(name, topic.topic_id, topic.partitions, boundaries)

    def topic_id(self, name: str = "a") -> UUID:
        return self.topics[name].topic_id


@dataclass
class Migrator:
    follower: GroupFollower
    copies: GroupCopies
    store: ScriptedStore


def migrator(
    world: World, source: FakeGroupSource, links: Links, seed: int = 99, upstream: str = UPSTREAM
) -> Migrator:
    runtime = SimulatedRuntime(seed)
    store = ScriptedStore(runtime, world.state)
    copies = GroupCopies(store, runtime, DOMAINS, upstream)
    return Migrator(GroupFollower(source, copies, links.read), copies, store)


def counted(store: ScriptedStore, name: str, part: str = "") -> list[str]:
    """The calls of one kind from now on, of those with such a key."""
    calls: list[str] = []
    call = getattr(store, name)

    async def noted(*arguments: Any) -> Any:
        if part in str(arguments):
            calls.append(name)
        return await call(*arguments)

    setattr(store, name, noted)
    return calls
