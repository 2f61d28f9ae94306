"""Which migrator works on a topic. A lease only saves work: two that work on one topic at a time, or one that
wakes up late, do no harm (`live_migration.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import structlog

from dray.metadata import keys
from dray.metadata.codec import JsonCodec
from dray.metadata.contract import ABSENT, MetadataStore, Put, Session, SessionEnded
from dray.metadata.values import UnreadableValue
from dray.runtime import Runtime

_log = structlog.get_logger(__name__)

LEASE_FORMAT: Final = 1
TTL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class MigrationLease:
    """The value of a lease. It vanishes with the session of its process."""

    process: str


_CODEC: Final = JsonCodec(MigrationLease, LEASE_FORMAT)


def encode_lease(lease: MigrationLease) -> bytes:
    return _CODEC.encode(lease)


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
                return _CODEC.decode(f"the lease of the migration of '{topic}'", found.value) == self._mine
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
