"""The groups of a source, followed for all its topics at once: a group moves with all that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Cluster
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.copy import CopyState
from dray.migration.groups.follower import FollowReport, GroupFollower, LinkedTopic
from dray.migration.live.switch import boundaries_of
from dray.migration.record import Migrations, MigrationState
from dray.migration.source.source_groups import SourceGroups

_log = structlog.get_logger(__name__)

_LINKED: Final = frozenset(
    {
        MigrationState.ATTACHING,
        MigrationState.PUBLISHING,
        MigrationState.MIRRORING,
        MigrationState.PENDING,
        MigrationState.SWITCHED,
    }
)
"""From before the topic is shown, so that its groups are known by then, until it has moved."""

_MOST_NAMED: Final = 20


class SourceFollower:
    """`run_once` is a round over the groups of one source. Any number of processes may make rounds.

    A round that was under way when a topic was aborted may have copied groups for it once more. So after each
    round the topics that groups wait for are held against the migrations that there are: without that, their
    groups would wait for ever."""

    def __init__(
        self,
        follower: GroupFollower,
        copies: GroupCopies,
        metadata: MetadataStore,
        migrations: Migrations,
    ) -> None:
        self._follower = follower
        self._copies = copies
        self._metadata = metadata
        self._migrations = migrations

    async def run_once(self) -> FollowReport:
        report = await self._follower.run_once()
        if report.topics:
            # Another process may have linked the topic a moment ago: its record is older than its copies.
            await self._metadata.barrier(keys.CLUSTER_DOMAIN)
            records = await self._migrations.read_all()
            for topic in report.topics - records.keys():
                await self._copies.forget_topic(topic)
        return report


def group_follower(
    cluster: Cluster,
    metadata: MetadataStore,
    runtime: Runtime,
    streams: StreamStore,
    domains: int,
    upstream: str,
) -> SourceFollower:
    """Of the source that this name of the config means."""
    migrations = Migrations(metadata, runtime)
    copies = GroupCopies(metadata, runtime, domains, upstream)

    async def linked() -> Sequence[LinkedTopic]:
        return await linked_topics(migrations, streams, upstream)

    return SourceFollower(GroupFollower(SourceGroups(cluster), copies, linked), copies, metadata, migrations)


class GroupRounds:
    """The groups of a source, followed by one process for all topics that are linked to it. Rounds are at
    least `interval_seconds` apart, however many topics ask for one."""

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        metadata: MetadataStore,
        runtime: Runtime,
        streams: StreamStore,
        domains: int,
        interval_seconds: float,
    ) -> None:
        self._name = name
        self.cluster = cluster
        """For all that is asked of groups: such requests are tried again with fresh connections, which would
        break off what others ask on them."""
        self._runtime = runtime
        self._interval = interval_seconds
        self._copies = GroupCopies(metadata, runtime, domains, name)
        self._follower = group_follower(cluster, metadata, runtime, streams, domains, name)
        self._round = asyncio.Lock()
        self._next = float("-inf")
        self._followed_at = runtime.monotonic()
        self._left: Mapping[str, str] = {}

    @property
    def unfollowed_seconds(self) -> float:
        """Since the last round that came to its end: groups of switched topics wait for as long."""
        return self._runtime.monotonic() - self._followed_at

    async def close(self) -> None:
        await self.cluster.close()

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


class _GoneSource:
    """Of a cluster that is gone for good nothing is asked."""

    async def listed(self) -> NoReturn:
        raise RuntimeError("a source that is gone cannot be asked")

    async def members(self, _: Collection[str]) -> NoReturn:
        await self.listed()

    async def committed(self, _: Collection[str], __: Mapping[str, Sequence[int]]) -> NoReturn:
        await self.listed()


async def hand_over_without_source(
    metadata: MetadataStore, runtime: Runtime, streams: StreamStore, domains: int, upstream: str
) -> FollowReport:
    """Groups that wait for a source which is gone: they are Dray's with what was copied last, if their topics
    are."""
    migrations = Migrations(metadata, runtime)
    copies = GroupCopies(metadata, runtime, domains, upstream)

    async def linked() -> Sequence[LinkedTopic]:
        return await linked_topics(migrations, streams, upstream)

    return await GroupFollower(_GoneSource(), copies, linked).hand_over_without_source()


async def linked_topics(migrations: Migrations, streams: StreamStore, upstream: str) -> list[LinkedTopic]:
    found = []
    for name, record in sorted((await migrations.read_all()).items()):
        if record.upstream == upstream and record.state in _LINKED:
            is_switched = record.state is MigrationState.SWITCHED
            boundaries = await boundaries_of(streams, record) if is_switched else {}
            found.append(LinkedTopic(name, record.topic_id, record.partitions, boundaries))
    return found


@dataclass(frozen=True, slots=True)
class GroupsOfTopic:
    """The groups that come, or came, with a topic."""

    states: Mapping[CopyState, Sequence[str]] = field(default_factory=dict)
    """By how far they are."""
    unread: Sequence[str] = ()
    """Those that wait of which the source has not said yet how far they have read."""


async def groups_of(copies: GroupCopies, topic: str) -> GroupsOfTopic:
    states: dict[CopyState, list[str]] = {}
    unread: list[str] = []
    for group_id, stored in sorted((await copies.read_all()).items()):
        state = stored.copy.state_with(topic)
        if state is not None and stored.source == copies.source:
            states.setdefault(state, []).append(group_id)
            if stored.copy.is_unread(topic):
                unread.append(group_id)
    return GroupsOfTopic(states, unread)
