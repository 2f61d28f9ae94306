"""The groups of a source cluster, followed by one process for all topics that are linked to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from dray.client.cluster import Cluster
from dray.daemon.migration import Rooms
from dray.groups.coordinator.copies import GroupCopies
from dray.groups.followed import CopyState
from dray.migration.following import group_follower
from dray.runtime import Runtime
from dray.upstream.group_follower import FollowReport

_log = structlog.get_logger(__name__)

_MOST_NAMED: Final = 20


class FollowedUpstream:
    """Rounds are at least `interval_seconds` apart, however many topics ask for one."""

    def __init__(
        self, name: str, cluster: Cluster, rooms: Rooms, runtime: Runtime, interval_seconds: float
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._runtime = runtime
        self._interval = interval_seconds
        self._copies = GroupCopies(rooms.stores.metadata, runtime, rooms.cluster.domains, name)
        self._follower = group_follower(
            cluster, rooms.stores.metadata, runtime, rooms.streams, rooms.cluster.domains, name
        )
        self._round = asyncio.Lock()
        self._next = float("-inf")
        self._followed_at = runtime.monotonic()
        self._left: Mapping[str, str] = {}

    @property
    def unfollowed_seconds(self) -> float:
        """Since the last round that came to its end: groups of switched topics wait for as long."""
        return self._runtime.monotonic() - self._followed_at

    async def close(self) -> None:
        await self._cluster.close()

    async def follow(self, topic: str, *, at_once: bool = False) -> int:
        """One round, unless there was one just now. How many groups of the topic are still the source's."""
        async with self._round:
            if at_once or self._runtime.monotonic() >= self._next:
                report = await self._follower.run_once()
                self._followed_at = self._runtime.monotonic()
                self._next = self._followed_at + self._interval
                self._say(report)
        return await self.waiting(topic)

    def _say(self, report: FollowReport) -> None:
        if report.handed_over:
            _log.info("groups have moved", upstream=self._name, groups=report.handed_over)
        new = {group: why for group, why in report.left.items() if self._left.get(group) != why}
        self._left = report.left
        if new:
            named = dict(list(new.items())[:_MOST_NAMED])
            _log.warning("groups are not followed", upstream=self._name, groups=named, number=len(new))

    async def waiting(self, topic: str) -> int:
        return sum(
            stored.copy.state_with(topic) is CopyState.FOLLOWED and stored.source == self._name
            for stored in (await self._copies.read_all()).values()
        )
