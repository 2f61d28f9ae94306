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

from dray.broker.groups.coordinator.storage import GroupKind, decode_record
from dray.broker.groups.offsets import CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import Delete, DeleteRange, Operation, Outcome, Put, StoredValue
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import ClusterConditions
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


class Builds:
    """The values that newer processes wrote, and those that older ones cannot read and must not delete."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._newer: set[int] = set()  # versions
        self.upgraded = not (world.conditions.older_brokers or world.conditions.older_compactors)

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

    # --- what must stay

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
