"""Groups of a switched topic whose source is gone for good: nobody can say when they have left it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dray.config import Settings
from dray.daemon import migration
from dray.groups.coordinator.copies import GroupCopies
from dray.groups.followed import CopyState
from dray.migration.following import GroupsOfTopic, groups_of, hand_over_without_source
from dray.migration.found import MigrationRefused
from dray.migration.record import MigrationRecord, MigrationState
from dray.runtime import Runtime
from dray.upstream.group_follower import FollowReport


@dataclass(frozen=True, slots=True)
class HandedOver:
    record: MigrationRecord
    report: FollowReport


def hand_over(settings: Settings, topic: str, approve: Callable[[GroupsOfTopic], bool]) -> HandedOver | None:
    """Without the source. The topic has moved then, unless groups wait for other topics. None where it was
    not approved."""

    async def work(runtime: Runtime) -> HandedOver | None:
        async with migration.opened(settings, runtime) as rooms:
            migrations = rooms.attacher.migrations
            record = await migrations.read(topic)
            if record is None or record.upstream is None:
                raise MigrationRefused(f"topic {topic} is not linked: there are no groups to hand over")
            if record.state is not MigrationState.SWITCHED:
                raise MigrationRefused(
                    f"topic {topic} is {record.state}, and groups are handed over once it is switched: "
                    f"drayd migrate status {topic}"
                )
            domains, metadata = rooms.cluster.domains, rooms.stores.metadata
            copies = GroupCopies(metadata, runtime, domains, record.upstream)
            if not approve(await groups_of(copies, topic)):
                return None
            report = await hand_over_without_source(
                metadata, runtime, rooms.streams, domains, record.upstream
            )
            if not (await groups_of(copies, topic)).states.get(CopyState.FOLLOWED):
                record = await migrations.step(topic, record, _moved)
            return HandedOver(record, report)

    return migration.run(work)


def _moved(current: MigrationRecord) -> MigrationRecord:
    return current if current.state is MigrationState.MOVED else current.to(MigrationState.MOVED)
