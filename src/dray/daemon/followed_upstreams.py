"""The groups of a source cluster, followed by one process for all topics that are linked to it."""

from __future__ import annotations

import asyncio

import structlog

from dray.client.cluster import Cluster
from dray.daemon.migration import Rooms
from dray.groups.coordinator.copies import GroupCopies, StoredCopy
from dray.log.boundary_decision import boundary_of
from dray.log.types import StreamClosed
from dray.migration.live_migration import WORKED
from dray.migration.record import MigrationRecord, MigrationState
from dray.runtime import Runtime
from dray.upstream.group_follower import GroupFollower, LinkedTopic
from dray.upstream.source_groups import SourceGroups

_log = structlog.get_logger(__name__)


class FollowedUpstream:
    """Rounds are at least `interval_seconds` apart, however many topics ask for one."""

    def __init__(
        self, name: str, cluster: Cluster, rooms: Rooms, runtime: Runtime, interval_seconds: float
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._rooms = rooms
        self._runtime = runtime
        self._interval = interval_seconds
        self._copies = GroupCopies(rooms.stores.metadata, runtime, rooms.cluster.domains, name)
        self._follower: GroupFollower[StoredCopy] = GroupFollower(
            SourceGroups(cluster), self._copies, self._linked
        )
        self._round = asyncio.Lock()
        self._next = float("-inf")

    async def close(self) -> None:
        await self._cluster.close()

    async def follow(self, topic: str, *, at_once: bool = False) -> int:
        """One round, unless there was one just now. How many groups of the topic are still the source's."""
        async with self._round:
            if at_once or self._runtime.monotonic() >= self._next:
                report = await self._follower.run_once()
                self._next = self._runtime.monotonic() + self._interval
                if report.handed_over:
                    _log.info("groups have moved", upstream=self._name, groups=report.handed_over)
        return await self.waiting(topic)

    async def waiting(self, topic: str) -> int:
        return sum(
            stored.copy.is_waiting and topic in stored.copy.topics and stored.source == self._name
            for stored in (await self._copies.read_all()).values()
        )

    async def forget(self, topic: str) -> None:
        """The topic does not come here after all."""
        await self._copies.forget_topic(topic)

    async def _linked(self) -> list[LinkedTopic]:
        records = await self._rooms.attacher.migrations.read_all()
        return [
            LinkedTopic(topic, record.topic_id, record.partitions, await self._boundaries(record))
            for topic, record in sorted(records.items())
            if record.upstream == self._name and record.state in WORKED
        ]

    async def _boundaries(self, record: MigrationRecord) -> dict[int, int]:
        return await boundaries_of(self._rooms, record)


async def boundaries_of(rooms: Rooms, record: MigrationRecord) -> dict[int, int]:
    """Of all partitions once the topic is switched, else none."""
    if record.state not in (MigrationState.SWITCHED, MigrationState.MOVED):
        return {}
    found: dict[int, int] = {}
    for partition, stream in enumerate(record.streams):
        try:
            boundary = await boundary_of(rooms.streams, stream)
        except StreamClosed:
            return {}  # the topic is deleted
        if boundary is not None:
            found[partition] = boundary
    return found
