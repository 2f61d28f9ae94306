"""The tables that a console shows. Their libraries are loaded, and the catalog is opened, when a page first
asks: a console that shows none starts without them."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dray.config import Settings
from dray.daemon.catalogs import locations_of, make_tables
from dray.daemon.failures import Failure
from dray.daemon.store_settings import table_names
from dray.inspection.sql_queries import SqlQueries
from dray.inspection.stored import StoredCluster
from dray.inspection.tables import ClusterTables
from dray.runtime import Runtime
from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.settings import SettingsRefused
from dray.tables.snapshots import TableSnapshot

if TYPE_CHECKING:
    from dray.tables.iceberg.reading import TableView
    from dray.tables.iceberg.tables import IcebergTables


class TablesWhenAsked:
    """`IcebergTables`, made when it is first asked."""

    def __init__(self, settings: Settings, cluster_id: str, runtime: Runtime) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._opened: IcebergTables | None = None
        self._opening = asyncio.Lock()

    async def view(self, topic: str) -> TableView | None:
        return await (await self._tables()).view(topic)

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        return await (await self._tables()).snapshots(topic)

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        return await (await self._tables()).ends_of(topic, snapshot_id)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _tables(self) -> IcebergTables:
        async with self._opening:
            if self._opened is None:
                # In a thread: pages that need no table are served meanwhile.
                try:
                    self._opened = await self._runtime.in_thread(
                        make_tables, self._settings, self._cluster_id, self._runtime
                    )
                except Failure as error:
                    raise TablesUnavailable(str(error)) from error
            return self._opened


def tables_for_console(
    settings: Settings, stored: StoredCluster, source: TablesWhenAsked, runtime: Runtime
) -> ClusterTables | None:
    """None where the cluster has no tables, or this machine has not the packages to read them."""
    if not settings.iceberg.enabled or importlib.util.find_spec("pyiceberg") is None:
        return None
    try:
        locations = locations_of(settings)
    except SettingsRefused:
        return None
    names = table_names(settings)

    async def why_not(topic: str) -> str | None:
        known = await stored.topic(topic)
        return None if known is None else names.why_not(known, settings.topics.defaults)

    # A query on local files needs nothing of ours; one on a cloud finds its credentials as we do.
    environment = {} if locations.is_local else dict(os.environ)
    return ClusterTables(source, locations, SqlQueries(runtime, environment), why_not)
