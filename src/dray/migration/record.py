"""The record of a migration: one value for each topic, every step a compare-and-set of it.

    state         what is there                                   what may follow
    ----------    --------------------------------------------    ------------------------------
    ATTACHING     keys of streams that no topic names, objects    PUBLISHING, ABORTING
                  that were uploaded
    PUBLISHING    all of it, and perhaps the topic                ATTACHED, or MIRRORING of a live one
    ATTACHED      the topic                                       (the topic may be deleted)
    MIRRORING     the topic, which its source owns                PENDING, ABORTING
    PENDING       the same, and a switch is asked for: the        SWITCHED; MIRRORING while no partition
                  fence at the source may be up                   is decided
    SWITCHED      the topic is Dray's; groups may still be at     MOVED: never back
                  the source, whose end is watched
    MOVED         the topic                                       (the topic may be deleted)
    ABORTING      what is left of it                              the record is deleted

Nothing is seen of a topic before PUBLISHING. From then on all that is left to do is in the record, so that
any process can do it, without the source's files. A process that lost the record to an abort finds that its
next step does not apply.

A live migration is one whose source still takes records: a Kafka cluster that the config names. Its record
has format 2. While the fence at the source may be up, `undo` says what was there before it: so a migration
that is MIRRORING with `undo` still has to lift it.

The lease of a topic says which migrator works on it. It only saves work: two that work on one topic at a
time, or one that wakes up late, do no harm (`live/migration.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import structlog

from dray.base.runtime import Runtime
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataStore, Put, Session, SessionEnded
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import NOT_IF_NONE, HexUuid, JsonCodec, UnreadableValue, ValueCorrupt
from dray.migration.attach.found import MigrationRefused

COLD_FORMAT: Final = 1
MIGRATION_FORMAT: Final = 2
"""That of live ones, and the newest that this build reads."""

FENCES: Final = ("acl", "size", "stopped")
"""How the writers at the source are stopped (`migration/source/fences.py`)."""

TRANSACTIONS: Final = "transactions"
ASSIGNING: Final = "assigning"
ALLOWED: Final = (TRANSACTIONS, ASSIGNING)
"""Users of a topic for whom a switch is refused unless it was asked for in so many words: producers that
write transactions, and consumers that assign partitions to themselves."""


class MigrationState(StrEnum):
    ATTACHING = "attaching"
    PUBLISHING = "publishing"
    ATTACHED = "attached"
    MIRRORING = "mirroring"
    PENDING = "pending"
    SWITCHED = "switched"
    MOVED = "moved"
    ABORTING = "aborting"


_COLD: Final = {
    MigrationState.ATTACHING: {MigrationState.ATTACHING, MigrationState.PUBLISHING, MigrationState.ABORTING},
    MigrationState.PUBLISHING: {MigrationState.ATTACHED},
    MigrationState.ATTACHED: set(),
    MigrationState.ABORTING: set(),
}
_LIVE: Final = {
    MigrationState.ATTACHING: {MigrationState.ATTACHING, MigrationState.PUBLISHING, MigrationState.ABORTING},
    MigrationState.PUBLISHING: {MigrationState.MIRRORING},
    MigrationState.MIRRORING: {MigrationState.PENDING, MigrationState.ABORTING},
    MigrationState.PENDING: {MigrationState.MIRRORING, MigrationState.SWITCHED},
    MigrationState.SWITCHED: {MigrationState.MOVED},
    MigrationState.MOVED: set(),
    MigrationState.ABORTING: set(),
}
ENDED: Final = frozenset({MigrationState.ATTACHED, MigrationState.MOVED})
"""The topic is Dray's for good."""


class SkippedOffsets(NamedTuple):
    """Of a partition: what the source deleted before it was mirrored."""

    offsets: int  # how many
    below: int  # all of them lie below this one


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
    # Of live ones alone:
    upstream: Annotated[str | None, NOT_IF_NONE] = None  # the name of its cluster in the config
    source_topic_id: Annotated[HexUuid | None, NOT_IF_NONE] = None  # all zeros where the source has no ids
    attempt: Annotated[int | None, NOT_IF_NONE] = None  # the number of the last switch that was asked for
    fence: Annotated[str | None, NOT_IF_NONE] = None  # one of `FENCES`: that of the last switch
    undo: Annotated[Mapping[str, str] | None, NOT_IF_NONE] = None  # what was there before the fence
    lifted: Annotated[Mapping[str, Mapping[str, str]] | None, NOT_IF_NONE] = None  # by fence: the same, of
    # those that were lifted. A call that puts one up may still be on its way.
    began_ms: Annotated[int | None, NOT_IF_NONE] = None  # when the first migrator took the last switch up
    why: Annotated[str | None, NOT_IF_NONE] = None  # why the last switch went back, or does not go on
    stopped: Annotated[Mapping[int, str] | None, NOT_IF_NONE] = None  # why partitions are not mirrored
    switched_ms: Annotated[int | None, NOT_IF_NONE] = None
    stragglers: Annotated[Mapping[int, int] | None, NOT_IF_NONE] = None  # records at the source behind B0
    skipped: Annotated[Mapping[int, SkippedOffsets] | None, NOT_IF_NONE] = None
    allows: Annotated[tuple[str, ...] | None, NOT_IF_NONE] = (
        None  # of `ALLOWED`: what the last switch goes over
    )

    @property
    def is_live(self) -> bool:
        """Its source is a cluster that took records when it was linked."""
        return self.upstream is not None

    @property
    def is_pending(self) -> bool:
        """A switch is asked for, and not all partitions are known to be Dray's."""
        return self.state is MigrationState.PENDING

    @property
    def has_tier(self) -> bool:
        """Segments that lie elsewhere are part of it."""
        return self.layout != NO_TIER

    @property
    def is_classic(self) -> bool:
        """The source may still own partitions of the topic that clients see."""
        return self.state in (MigrationState.MIRRORING, MigrationState.PENDING)

    def with_skipped(self, partition: int, first: int, below: int) -> MigrationRecord:
        """The source has deleted these offsets before they were mirrored. May be said more than once."""
        known = (self.skipped or {}).get(partition, SkippedOffsets(0, first))
        if below <= known.below:
            return self
        more = SkippedOffsets(known.offsets + below - max(first, known.below), below)
        return replace(self, skipped={**(self.skipped or {}), partition: more})

    def to(self, state: MigrationState) -> MigrationRecord:
        if state not in (_LIVE if self.is_live else _COLD).get(self.state, set()):
            raise MigrationRefused(f"a migration that is {self.state} cannot become {state}")
        if state is MigrationState.ABORTING and self.undo is not None:
            raise MigrationRefused("the fence at the source has to be lifted before the migration is aborted")
        return replace(self, state=state)


NO_TIER: Final = "mirror"
"""The layout of a topic whose source is mirrored from its start on."""

_CODEC: Final = JsonCodec(MigrationRecord, MIGRATION_FORMAT)


def encode_migration(record: MigrationRecord) -> bytes:
    return _CODEC.encode(record, MIGRATION_FORMAT if record.is_live else COLD_FORMAT)


def decode_migration(topic: str, value: bytes) -> MigrationRecord:
    what = f"the migration of topic '{topic}'"
    version, record = _CODEC.decode_versioned(what, value)
    if (version != COLD_FORMAT) != record.is_live or record.state not in (_LIVE if record.is_live else _COLD):
        raise ValueCorrupt(what, f"format {version} is not that of a migration that is {record.state}")
    if record.is_live and (record.source_topic_id is None or record.attempt is None):
        raise ValueCorrupt(what, "source_topic_id and attempt: Field required")
    return record


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


# --- leases: which migrator works on a topic

_log = structlog.get_logger(__name__)

LEASE_FORMAT: Final = 1
TTL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MigrationLease:
    """The value of a lease. It vanishes with the session of its process."""

    process: str


_LEASE_CODEC: Final = JsonCodec(MigrationLease, LEASE_FORMAT)


def encode_lease(lease: MigrationLease) -> bytes:
    return _LEASE_CODEC.encode(lease)


class MigrationLeases:
    """Of one process. The store's errors are raised as they are."""

    def __init__(self, store: MetadataStore, runtime: Runtime, ttl: float = TTL_SECONDS) -> None:
        self._store = store
        self._ttl = ttl
        self._mine = MigrationLease(runtime.uuid().hex)
        self._session: Session | None = None

    async def hold(self, topic: str) -> bool:
        """Take it, or keep it. False where another process has it. One that cannot be read is another's: a
        newer build may have put it."""
        if self._session is None or self._session.ended:
            self._session = await self._store.session(keys.CLUSTER_DOMAIN, self._ttl)
        key = keys.migration_lease(topic)
        found = await self._store.get(keys.CLUSTER_DOMAIN, key)
        if found is not None:
            try:
                return (
                    _LEASE_CODEC.decode(f"the lease of the migration of '{topic}'", found.value) == self._mine
                )
            except UnreadableValue as error:
                _log.error("a migration is left to another process", topic=topic, reason=str(error))
                return False
        try:
            put = Put(key, encode_lease(self._mine), ABSENT, self._session)
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
        except SessionEnded:
            self._session = None
            return False
        return outcome.applied

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
