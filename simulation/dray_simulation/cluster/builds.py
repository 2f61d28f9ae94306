"""Two builds in one cluster: older processes cannot read what newer ones store.

The stores hold what both could read. A value that a newer process writes is remembered by its version, and an
older one finds another format there, from which it must keep its hands: nothing of it may count as absent. In
the end the older processes are replaced by newer ones, as in a rolling upgrade, and all must be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from dray.broker.cluster import levels
from dray.broker.cluster.clock_guard import StoredBeat, encode_beat
from dray.broker.cluster.identity import ClusterInfo, decode_cluster, encode_cluster
from dray.broker.groups.coordinator.storage import GroupKind, decode_record
from dray.broker.groups.offsets import CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import Delete, DeleteRange, Operation, Outcome, Put, StoredValue
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import ClusterConditions, Disaster
from dray_simulation.kernel.faults import FaultyStore

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

Apply = Callable[[int, Sequence[Operation]], list[Outcome]]

NEWER_BY: Final = 100
"""The number that a newer build adds to that of each format."""

_FORMATS: Final = (
    keys.DELETED_TOPICS,
    keys.BROKERS,
    keys.GROUPS,
    keys.GROUP_LEASES,
    keys.GROUP_OFFSETS,
    keys.JOBS,
    keys.STREAMS,
    keys.STAGING,
    keys.OBJECTS,
)

_TOPICS_CHANGE: Final = 0.7
_LEVEL_WAIT: Final = 2.0
_RAISED_WITHIN: Final = 60.0  # beats of processes that were killed count for twenty seconds
_LOOK_EVERY: Final = 0.5


def two_builds(seed: int) -> ClusterConditions:
    """As any run, with a broker or two and a compactor of an older build."""
    random = Random(seed ^ 0xB01D)
    formats = random.sample(_FORMATS, random.choice((1, 2, 3)))
    if random.random() < _TOPICS_CHANGE:
        formats.append(keys.TOPICS)
    return replace(
        ClusterConditions.choose(seed),
        compactors=2,
        older_brokers=frozenset(random.choice(((0,), (1,), (0, 2)))),
        older_compactors=frozenset({0}),
        newer_formats=tuple(formats),
        rewritten_at=random.uniform(0.5, 2.0),
    )


def older_by_a_level(seed: int) -> ClusterConditions:
    """Little befalls one process of an older build: a broker that says so in its registration alone, or a
    compactor that does so in its beat alone. All the others would raise the level soon. No clock jumps: who
    doubts its clock raises nothing."""
    chosen = ClusterConditions.choose(seed)
    place = Random(seed ^ 0x1E7E1).choice((0, 1, 2, None))
    return replace(
        chosen,
        compactors=2,
        older_brokers=frozenset() if place is None else frozenset({place}),
        older_compactors=frozenset({0} if place is None else ()),
        disasters=tuple(
            each
            for each in chosen.disasters
            if each.what is not Disaster.CLOCK_JUMP and (place is None or each.place != place)
        ),
        clocks=(),
        older_beats=False,
        level_wait=_LEVEL_WAIT,
        carry_bytes=chosen.carry_bytes or None,
    )


class Builds:
    """The values that newer processes wrote, and those that older ones cannot read and must not delete."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._newer: set[int] = set()  # versions
        self.are_two = bool(world.conditions.older_brokers or world.conditions.older_compactors)
        self.upgraded = not self.are_two

    def level_read(self, *, older: bool) -> int:
        """The highest level of a cluster that a process of that build reads."""
        return levels.BASE if older and not self.upgraded else levels.NEWEST

    def found(self) -> None:
        """An older build has made the cluster."""
        cluster = ClusterInfo("made-by-an-older-build", self._world.conditions.domains, 0)
        puts = [Put(keys.CLUSTER, encode_cluster(cluster))]
        if self._world.conditions.older_compactors and self._world.conditions.level_wait is not None:
            puts.append(Put(keys.clock("older"), encode_beat(StoredBeat("older", 0, stepped=False))))
        self._world.state.apply(keys.CLUSTER_DOMAIN, puts, None, self._world.now())

    def apply(self, *, older: bool) -> Apply:
        """How a process of that build writes."""
        return self._world.apply if older or self.upgraded else self._apply_newer

    def _apply_newer(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        outcomes = self._world.apply(domain, operations)
        formats = self._world.conditions.newer_formats
        for operation, outcome in zip(operations, outcomes, strict=True):
            if isinstance(operation, Put) and outcome.applied and operation.key.startswith(formats):
                self._newer.add(outcome.version)
        return outcomes

    def seen_by_older(self, record: StoredValue | None) -> StoredValue | None:
        if record is None or record.version not in self._newer or not record.value:
            return record
        self._world.counts["unreadable values"] += 1
        return replace(record, value=bytes([record.value[0] + NEWER_BY]) + record.value[1:])

    async def rewrite_topics(self) -> None:
        """A newer build stores every topic anew, as it does when one is altered, in whatever format."""
        await asyncio.sleep(self._world.conditions.rewritten_at)
        content = self._world.state.domain(keys.CLUSTER_DOMAIN, self._world.now())
        for key in [key for key in content.keys if key.startswith(keys.TOPICS)]:
            record = content.entries[key].record
            self._apply_newer(keys.CLUSTER_DOMAIN, [Put(key, record.value, record.version)])
            self._world.trace("newer build", "stores", key)

    # --- what must stay, and what must not be there

    def check_level(self, operations: Sequence[Operation]) -> None:
        """While older processes are there, they read the level, and nothing above it is stored."""
        if self.upgraded:
            return
        for operation in operations:
            if isinstance(operation, Put) and operation.key == keys.CLUSTER:
                level = decode_cluster(operation.value).level
                if level.number > levels.BASE:
                    raise Violation("the level is raised above what a process reads that is there")
        if self._world.truth.log.carried:
            raise Violation("entries are carried, and a process is there that cannot read them")

    def check_deletions(self, domain: int, operations: Sequence[Operation]) -> None:
        """Before it happens: no offset goes while its group and its topic are there. A group is marked as
        deleted when it has none. One that goes then was refused as unclear, and arrived after its coordinator
        had looked for it."""
        content = self._world.state.domain(domain, self._world.now())
        for operation in operations:
            if isinstance(operation, DeleteRange) or not isinstance(operation, Delete):
                continue
            place = keys.place_of_offset(operation.key)
            if place is None or not content.meets(operation.key, operation.expect):
                continue
            group_id, topic, partition = place
            entry, group = content.entries.get(operation.key), content.entries.get(keys.group(group_id))
            if entry is None or group is None:
                continue
            offset = CommittedOffset.decode(entry.record.value)
            if self._world.truth.named.get(topic) != offset.topic_id:
                continue
            if decode_record(group_id, group.record.value).kind is not GroupKind.DELETED:
                raise Violation(f"{operation.key} is deleted, and its topic is there")
            self._world.committed.deleted((group_id, partition), offset.metadata)

    def check_drop(self, topic: str, topic_id: object) -> None:
        if self._world.truth.named.get(topic) == topic_id:
            raise Violation(f"the table of {topic} is dropped, and its topic is there")


class OlderStore(FaultyStore):
    """The client of a process that cannot read what newer ones write."""

    builds: Builds
    beats = True

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        clocks = [each for each in operations if isinstance(each, Put) and each.key.startswith(keys.CLOCKS)]
        if clocks and not self.beats:
            return [Outcome(True, 1) for _ in operations]
        return await super().write(domain, operations)

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return self.builds.seen_by_older(await super().get(domain, key))

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return self.builds.seen_by_older(await super().floor(domain, key, prefix))

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return self.builds.seen_by_older(await super().ceiling(domain, key, prefix))

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        found = [
            self.builds.seen_by_older(record) for record in await super().scan(domain, start, end, limit)
        ]
        return [record for record in found if record is not None]


async def upgrade(world: ClusterWorld, disasters: asyncio.Task[None]) -> None:
    """The rest of a rolling upgrade, once nothing else befalls the brokers."""
    await asyncio.wait([disasters])
    world.builds.upgraded = True
    for place, broker in enumerate(world.brokers):
        if place in world.conditions.older_brokers:
            world.trace(broker.name, "is upgraded")
            broker.kill()
            await broker.up()
    for number, compactor in enumerate(world.compactors):
        if number in world.conditions.older_compactors:
            compactor.kill()
            compactor.start()


async def check_raised(world: ClusterWorld) -> None:
    """Every process reads the newest level now: the cluster comes to it by itself, and its brokers follow."""
    deadline = world.now() + _RAISED_WITHIN
    while not all(broker.node is not None and broker.node.is_carrying for broker in world.brokers):
        if world.now() > deadline:
            raise Violation("the level is not raised, though every process reads the next one")
        await asyncio.sleep(_LOOK_EVERY)
