"""Quotas straight in the metadata store: for operators who may write there, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.store_audit import note_changes
from dray.daemon.stores import open_metadata
from dray.metadata.contract import MetadataError
from dray.runtime import SystemRuntime
from dray.security.acls.model import AclOperation
from dray.security.faults import SecurityUnavailable
from dray.security.quotas.entities import Parts, entity_of, parts_of, text_of_change
from dray.security.quotas.store import Quotas
from dray.telemetry import quiet_logs

T = TypeVar("T")


def list_quotas(settings: Settings, wanted: Parts) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Those of all entities that have these names, and perhaps further ones."""

    async def look(quotas: Quotas) -> list[tuple[dict[str, str | None], dict[str, float]]]:
        return [
            (parts, dict(held))
            for entity, held in quotas.table.items()
            if wanted.items() <= (parts := parts_of(entity)).items()
        ]

    return _with_quotas(settings, look)


def alter_quotas(settings: Settings, changes: Sequence[tuple[Parts, Mapping[str, float | None]]]) -> None:
    async def alter(quotas: Quotas) -> None:
        for parts, wanted in changes:
            await quotas.alter(entity_of(parts), wanted)

    _with_quotas(settings, alter)
    note_changes((text_of_change(*change) for change in changes), AclOperation.ALTER_CONFIGS)


def _with_quotas(settings: Settings, work: Callable[[Quotas], Awaitable[T]]) -> T:
    with quiet_logs():
        return asyncio.run(_open_and(settings, work))


async def _open_and(settings: Settings, work: Callable[[Quotas], Awaitable[T]]) -> T:
    runtime = SystemRuntime()
    try:
        store = await open_metadata(settings, runtime)
        quotas = Quotas(store, runtime)
        try:
            await quotas.start()
            return await work(quotas)
        except (SecurityUnavailable, MetadataError) as error:
            raise Failure(f"the metadata store: {error}") from error
        finally:
            await quotas.stop()
            await store.close()
    finally:
        runtime.close()
