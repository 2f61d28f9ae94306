"""The tables that a config names, and the cluster that they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.cluster.identity import ClusterInfo
from dray.compaction.packages import needs
from dray.config import Settings
from dray.daemon.failures import USAGE, Failure
from dray.daemon.store_settings import catalog_settings, revealed
from dray.daemon.stores import Stores, open_stores, read_cluster
from dray.metadata.contract import MetadataError
from dray.runtime import Runtime, SystemRuntime
from dray.tables.contract import TablesError
from dray.tables.iceberg.locations import Locations, locations
from dray.tables.iceberg.settings import SettingsRefused
from dray.telemetry import quiet_logs

if TYPE_CHECKING:
    from dray.tables.iceberg.tables import IcebergTables


@dataclass(frozen=True)
class OpenTables:
    tables: IcebergTables
    locations: Locations
    stores: Stores
    cluster: ClusterInfo


def make_tables(settings: Settings, cluster_id: str, runtime: Runtime) -> IcebergTables:
    """The catalog is not asked yet: a process starts even while the catalog is down. Raises `Failure` for
    settings that cannot work."""
    if not settings.iceberg.enabled:
        raise Failure("iceberg.enabled is false: there are no tables", USAGE)
    try:
        from dray.tables.iceberg.tables import IcebergTables
    except ImportError as error:
        raise Failure(needs("tables", error)) from error
    try:
        return IcebergTables(catalog_settings(settings), locations_of(settings), cluster_id, runtime)
    except SettingsRefused as error:
        raise Failure(str(error), USAGE) from error


def locations_of(settings: Settings) -> Locations:
    return locations(settings.objects_url, settings.objects.options, revealed(settings.objects.secrets))


@asynccontextmanager
async def open_tables(settings: Settings) -> AsyncIterator[OpenTables]:
    """For a command that reads: the stores, the cluster on them, and its tables. Whatever is wrong is one
    line, and nothing but the command's answer is on standard output."""
    with quiet_logs():
        async with _open_tables(settings) as opened:
            yield opened


@asynccontextmanager
async def _open_tables(settings: Settings) -> AsyncIterator[OpenTables]:
    if settings.metadata.engine == "sqlite" and not settings.metadata_path.exists():
        # A command that only reads makes nothing.
        raise Failure(f"there is no cluster here yet: {settings.metadata_path} does not exist (drayd up)")
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    try:
        cluster = await read_cluster(stores)
        tables = make_tables(settings, cluster.cluster_id, runtime)
        try:
            yield OpenTables(tables, locations_of(settings), stores, cluster)
        except TablesError as error:
            raise Failure(str(error)) from error
        except SettingsRefused as error:
            raise Failure(str(error), USAGE) from error
        finally:
            await tables.close()
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
