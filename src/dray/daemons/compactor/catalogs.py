"""The tables that a config names, and the cluster that they belong to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING

from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import quiet_logs
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.topics.model import Topic, decode_topic
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.store_settings import object_secrets, revealed
from dray.daemons.assembly.stores import Stores, open_stores, read_cluster
from dray.daemons.config import Settings
from dray.inspection.sql.tail import MOST_BYTES, TailReader
from dray.inspection.storage.stored import ReadOnlyMetadataStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.tables.compaction.packages import needs
from dray.tables.contract import TablesError
from dray.tables.iceberg.locations import Locations, locations
from dray.tables.iceberg.settings import CatalogSettings, SettingsRefused
from dray.tables.iceberg.view import NotPlain, TableView, plain_view

if TYPE_CHECKING:
    from dray.migration.entries.kind import ForeignEntries
    from dray.tables.iceberg.tables import IcebergTables


class OpenTables:
    """The library of tables is loaded when something needs it: a look at a plain table does not."""

    def __init__(self, settings: Settings, stores: Stores, cluster: ClusterInfo, runtime: Runtime) -> None:
        self.stores = stores
        self.cluster = cluster
        self.runtime = runtime
        self._settings = settings

    @cached_property
    def tables(self) -> IcebergTables:
        return make_tables(self._settings, self.cluster.cluster_id, self.runtime)

    @cached_property
    def locations(self) -> Locations:
        return locations_of(self._settings)

    @cached_property
    def tails(self) -> TailReader:
        return tail_reader(self._settings, self.stores, self.cluster, self.runtime)

    async def view(self, topic: str) -> TableView | None:
        if self._settings.iceberg.enabled:
            with suppress(NotPlain):
                return await view_of_plain(self._settings, self.cluster.cluster_id, topic, self.runtime)
        return await self.tables.view(topic)

    async def topic(self, name: str) -> Topic | None:
        record = await self.stores.metadata.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if record is None:
            return None
        return decode_topic(name, record.value, self._settings.topics.defaults)

    async def topic_names(self) -> list[str]:
        found = await self.stores.metadata.scan(
            keys.CLUSTER_DOMAIN, keys.TOPICS, keys.prefix_end(keys.TOPICS)
        )
        return [name for record in found if (name := keys.topic_of(record.key)) is not None]

    async def close(self) -> None:
        if "tables" in self.__dict__:
            await self.tables.close()


def tail_reader(
    settings: Settings, stores: Stores, cluster: ClusterInfo, runtime: Runtime, most: int = MOST_BYTES
) -> TailReader:
    store = ReadOnlyMetadataStore(stores.metadata)

    def outside() -> ForeignEntries:
        from dray.migration.entries.kind import ForeignEntries

        kept = min(settings.foreign.cache_bytes, most)
        return ForeignEntries(stores.objects, runtime, stores.foreign, kept, looks_after=False)

    return TailReader(store, stores.objects, runtime, cluster.domains, settings.log, outside, most)


async def view_of_plain(
    settings: Settings, cluster_id: str, topic: str, runtime: Runtime
) -> TableView | None:
    """Without the library, which takes longer to load than a small query takes. Raises `NotPlain` where only
    that can tell."""
    return await runtime.in_thread(plain_view, catalog_settings(settings), cluster_id, topic)


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


def catalog_settings(settings: Settings) -> CatalogSettings:
    """Raises `SettingsRefused` where they do not fit together."""
    given = settings.iceberg
    return CatalogSettings(
        kind=given.catalog,  # type: ignore[arg-type]  # the config model has the same three choices
        uri=settings.catalog_uri,
        namespace=given.namespace,
        options=given.options,
        secrets=revealed(given.secrets),
        warehouse=given.warehouse,
        sigv4_region=given.sigv4_region,
    )


def locations_of(settings: Settings) -> Locations:
    return locations(settings.objects_url, settings.objects.options, object_secrets(settings))


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
        opened = OpenTables(settings, stores, cluster, runtime)
        try:
            yield opened
        except TablesError as error:
            raise Failure(str(error)) from error
        except SettingsRefused as error:
            raise Failure(str(error), USAGE) from error
        finally:
            await opened.close()
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    finally:
        await stores.close()
        runtime.close()
