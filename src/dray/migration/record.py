"""The record of a migration: one value for each topic, every step a compare-and-set of it.

    state         what is there                                   what may follow
    ----------    --------------------------------------------    ------------------------------
    ATTACHING     keys of streams that no topic names, objects    PUBLISHING, ABORTING
                  that were uploaded
    PUBLISHING    all of it, and perhaps the topic                ATTACHED: never back
    ATTACHED      the topic                                       (the topic may be deleted)
    ABORTING      what is left of ATTACHING                       the record is deleted

Nothing is seen of a topic before PUBLISHING. From then on all that is left to do is in the record, so that
any process can do it, without the source. A process that lost the record to an abort finds that its next step
does not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dray.metadata import keys
from dray.metadata.codec import HexUuid, JsonCodec
from dray.metadata.contract import ABSENT, Delete, MetadataStore, Put
from dray.metadata.update import ALL_FAILURES, update
from dray.migration.found import MigrationRefused
from dray.runtime import Runtime

MIGRATION_FORMAT: Final = 1


class MigrationState(StrEnum):
    ATTACHING = "attaching"
    PUBLISHING = "publishing"
    ATTACHED = "attached"
    ABORTING = "aborting"


_FOLLOWS: Final = {
    MigrationState.ATTACHING: {MigrationState.ATTACHING, MigrationState.PUBLISHING, MigrationState.ABORTING},
    MigrationState.PUBLISHING: {MigrationState.ATTACHED},
    MigrationState.ATTACHED: set(),
    MigrationState.ABORTING: set(),
}


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    state: MigrationState
    migration_id: HexUuid
    topic_id: HexUuid
    layout: str
    source: str  # its URL, for people
    store: str  # the name of the foreign store in the config; empty where segments were uploaded
    plan: str  # a digest of what is to be laid down: another plan is another migration
    leader_epoch: int
    partitions: int
    streams: tuple[int, ...]  # of each partition; none before they are taken
    bounds: tuple[tuple[int, int], ...]  # start and end of each partition
    config: Mapping[str, str]
    created_ms: int

    def to(self, state: MigrationState) -> MigrationRecord:
        if state not in _FOLLOWS[self.state]:
            raise MigrationRefused(f"a migration that is {self.state} cannot become {state}")
        return replace(self, state=state)


_CODEC: Final = JsonCodec(MigrationRecord, MIGRATION_FORMAT)


def encode_migration(record: MigrationRecord) -> bytes:
    return _CODEC.encode(record)


def decode_migration(topic: str, value: bytes) -> MigrationRecord:
    return _CODEC.decode(f"the migration of topic '{topic}'", value)


class MigrationLost(MigrationRefused):
    """Another process has this migration, or has ended it."""


class Migrations:
    """The records in the metadata store. Its errors are raised as they are."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    async def read(self, topic: str) -> MigrationRecord | None:
        found = await self._read(topic)
        return None if found is None else found[0]

    async def read_all(self) -> dict[str, MigrationRecord]:
        end = keys.prefix_end(keys.MIGRATIONS)
        found = await self._store.scan(keys.CLUSTER_DOMAIN, keys.MIGRATIONS, end)
        named = [(keys.topic_of_migration(each.key), each.value) for each in found]
        return {topic: decode_migration(topic, value) for topic, value in named if topic is not None}

    async def begin(self, topic: str, record: MigrationRecord) -> MigrationRecord:
        """The record, or the one that is there: that of another try, or of another process."""

        async def attempt() -> MigrationRecord | None:
            found = await self._read(topic)
            if found is not None:
                return found[0]
            put = Put(keys.migration(topic), encode_migration(record), ABSENT)
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            return record if outcome.applied else None

        return await update(self._runtime, attempt, ALL_FAILURES)

    async def step(
        self, topic: str, record: MigrationRecord, change: Callable[[MigrationRecord], MigrationRecord]
    ) -> MigrationRecord:
        """The change of a record that must still be this migration's. `change` gets what is there, and may
        refuse it. Raises `MigrationLost`."""

        async def attempt() -> MigrationRecord | None:
            found = await self._read(topic)
            if found is None or found[0].migration_id != record.migration_id:
                raise MigrationLost(f"topic {topic}: the migration was aborted meanwhile")
            current, version = found
            changed = change(current)
            if changed == current:
                return current  # our own write, whose reply was lost
            put = Put(keys.migration(topic), encode_migration(changed), version)
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            return changed if outcome.applied else None

        return await update(self._runtime, attempt, ALL_FAILURES)

    async def forget(self, topic: str, record: MigrationRecord) -> None:
        """Delete the record, if it is still this migration's."""

        async def attempt() -> bool | None:
            found = await self._read(topic)
            if found is None or found[0].migration_id != record.migration_id:
                return True
            [outcome] = await self._store.write(
                keys.CLUSTER_DOMAIN, [Delete(keys.migration(topic), found[1])]
            )
            return outcome.applied or None

        await update(self._runtime, attempt, ALL_FAILURES)

    async def _read(self, topic: str) -> tuple[MigrationRecord, int] | None:
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        found = await self._store.get(keys.CLUSTER_DOMAIN, keys.migration(topic))
        return None if found is None else (decode_migration(topic, found.value), found.version)
