"""Client quotas in the metadata store: one key per entity, all of its quotas in the value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.broker.security.key_follower import KeyFollower, SecurityUnavailable
from dray.kafka.quotas import QuotaEntity, QuotaTable
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataError, MetadataStore, Operation, Put
from dray.metadata.update import update
from dray.metadata.values import UnreadableValue, ValueCorrupt, seal_json, unseal_json

_log = structlog.get_logger(__name__)

QUOTA_FORMAT: Final = 1


def key_of(entity: QuotaEntity) -> str:
    """None as a name is the default, which stands as an empty one: Kafka refuses empty names."""
    parts = {
        kind: named[0] or ""
        for kind, named in (("user", entity.user), ("client-id", entity.client_id), ("ip", entity.ip))
        if named is not None
    }
    return keys.client_quota(parts)


def entity_of(key: str) -> QuotaEntity | None:
    parts = keys.parts_of_client_quota(key)
    if not parts or not parts.keys() <= {"user", "client-id", "ip"}:
        return None

    def named(kind: str) -> tuple[str | None] | None:
        return (parts[kind] or None,) if kind in parts else None

    return QuotaEntity(named("user"), named("client-id"), named("ip"))


def encode_quotas(quotas: Mapping[str, float]) -> bytes:
    return seal_json(QUOTA_FORMAT, dict(sorted(quotas.items())))


def decode_quotas(key: str, value: bytes) -> dict[str, float]:
    what = f"the quotas of {key.removeprefix(keys.CLIENT_QUOTAS)}"
    _, fields = unseal_json(what, value, QUOTA_FORMAT)
    try:
        found = {name: float(value) for name, value in fields.items()}
    except (TypeError, ValueError):
        raise ValueCorrupt(what, "one of them is no number") from None
    if not all(value > 0 for value in found.values()):
        raise ValueCorrupt(what, "one of them is not above 0")
    return found


class Quotas:
    """`table` is what is known now: always the same table, which changes."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self.table = QuotaTable()
        self._store = store
        self._runtime = runtime
        self._followed = KeyFollower(
            store, runtime, keys.CLIENT_QUOTAS, learn=self._learn, forget=self._forget
        )

    async def start(self) -> None:
        await self._followed.start()

    async def stop(self) -> None:
        await self._followed.stop()

    async def alter(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> None:
        """None takes a quota away. Raises `SecurityUnavailable`."""
        key = key_of(entity)
        try:
            await update(self._runtime, lambda: self._try_alter(key, changes))
            await self._followed.read_keys([key])
        except MetadataError as error:
            raise SecurityUnavailable(str(error)) from error

    async def _try_alter(self, key: str, changes: Mapping[str, float | None]) -> bool | None:
        """None where another write came in between."""
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        record = await self._store.get(keys.CLUSTER_DOMAIN, key)
        before = {} if record is None else decode_quotas(key, record.value)
        wanted = {**before, **changes}
        after = {name: value for name, value in wanted.items() if value is not None}
        if after == before:
            return True
        operation: Operation
        if record is not None and not after:
            operation = Delete(key, record.version)
        else:
            operation = Put(key, encode_quotas(after), ABSENT if record is None else record.version)
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [operation])
        return outcome.applied or None

    # --- knowing

    def _learn(self, key: str, value: bytes) -> None:
        """Take in a value. One that cannot be read does not count as absent: what was known before stays."""
        entity = entity_of(key)
        if entity is None:
            _log.error("a quota is not understood, and not used", key=key)
            return
        try:
            self.table.put(entity, decode_quotas(key, value))
        except UnreadableValue as error:
            _log.error("a quota cannot be read; what was known before holds", key=key, error=str(error))

    def _forget(self, key: str) -> None:
        entity = entity_of(key)
        if entity is not None:
            self.table.remove(entity)
