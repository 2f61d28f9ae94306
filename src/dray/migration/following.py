"""The groups of a source, followed for all its topics at once: a group moves with all that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.client.cluster import Cluster
from dray.groups.coordinator.copies import GroupCopies, StoredCopy
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataStore
from dray.migration.record import MigrationRecord, Migrations, MigrationState
from dray.runtime import Runtime
from dray.upstream.group_follower import GroupFollower, LinkedTopic
from dray.upstream.source_groups import SourceGroups

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


def group_follower(
    cluster: Cluster,
    metadata: MetadataStore,
    runtime: Runtime,
    streams: StreamStore,
    domains: int,
    upstream: str,
) -> GroupFollower[StoredCopy]:
    """`run_once` is a round over the groups of the source that this name of the config means. Any number of
    processes may make rounds."""
    migrations = Migrations(metadata, runtime)

    async def linked() -> Sequence[LinkedTopic]:
        return await linked_topics(migrations, streams, upstream)

    return GroupFollower(SourceGroups(cluster), GroupCopies(metadata, runtime, domains, upstream), linked)


async def linked_topics(migrations: Migrations, streams: StreamStore, upstream: str) -> list[LinkedTopic]:
    return [
        LinkedTopic(name, record.topic_id, record.partitions, await boundaries_of(streams, record))
        for name, record in sorted((await migrations.read_all()).items())
        if record.upstream == upstream and record.state in _LINKED
    ]


async def boundaries_of(streams: StreamStore, record: MigrationRecord) -> dict[int, int]:
    """B0 of the partitions that are Dray's."""
    found: dict[int, int] = {}
    for partition, stream in enumerate(record.streams):
        await streams.barrier(stream)
        high_watermark = await streams.high_watermark(stream)
        origin = None if high_watermark is None else high_watermark.value.origin
        if origin is not None and not origin.is_classic:
            found[partition] = origin.boundary
    return found
