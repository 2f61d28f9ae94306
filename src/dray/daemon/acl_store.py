"""ACLs straight in the metadata store, for whoever may write there: no broker is asked, and no right is
needed but that to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.store_audit import note_changes
from dray.daemon.stores import open_metadata
from dray.metadata.contract import MetadataError
from dray.runtime import SystemRuntime
from dray.security.acls.model import AclBinding, AclFilter, text_of
from dray.security.acls.store import Acls
from dray.security.faults import SecurityUnavailable
from dray.telemetry import quiet_logs

T = TypeVar("T")


def create_acls(settings: Settings, bindings: Sequence[AclBinding]) -> None:
    _with_acls(settings, lambda acls: acls.create(bindings))
    note_changes(f"add {text_of(each)}" for each in bindings)


def list_acls(settings: Settings, wanted: AclFilter) -> list[AclBinding]:
    async def look(acls: Acls) -> list[AclBinding]:
        return acls.index.matching(wanted)

    return _with_acls(settings, look)


def delete_acls(settings: Settings, wanted: AclFilter) -> list[AclBinding]:
    async def delete(acls: Acls) -> list[AclBinding]:
        [found] = await acls.delete([wanted])
        return found

    deleted = _with_acls(settings, delete)
    note_changes(f"delete {text_of(each)}" for each in deleted)
    return deleted


def _with_acls(settings: Settings, work: Callable[[Acls], Awaitable[T]]) -> T:
    with quiet_logs():
        return asyncio.run(_open_and(settings, work))


async def _open_and(settings: Settings, work: Callable[[Acls], Awaitable[T]]) -> T:
    runtime = SystemRuntime()
    try:
        store = await open_metadata(settings, runtime)
        acls = Acls(store, runtime)
        try:
            await acls.start()
            return await work(acls)
        except (SecurityUnavailable, MetadataError) as error:
            raise Failure(f"the metadata store: {error}") from error
        finally:
            await acls.stop()
            await store.close()
    finally:
        runtime.close()
