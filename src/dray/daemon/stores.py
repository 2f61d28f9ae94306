"""The stores that a config names, opened. A fault is one line."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from dray.cluster.identity import ClusterInfo, decode_cluster
from dray.config import Settings
from dray.daemon.failures import USAGE, Failure
from dray.daemon.foreign_stores import foreign_addresses
from dray.daemon.store_settings import etcd_settings, oxia_settings, revealed
from dray.log.foreign_segments import ForeignStore
from dray.log.foreign_stores import open_foreign_stores
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.metadata.factory import InMemory, SqliteFile
from dray.metadata.factory import open_store as open_metadata_store
from dray.objects import ObjectError, ObjectStore
from dray.objects.factory import open_store as open_object_store
from dray.records import uninitialised
from dray.runtime import Runtime


@dataclass(frozen=True)
class Stores:
    metadata: MetadataStore
    objects: ObjectStore
    foreign: Mapping[str, ForeignStore] = field(default_factory=dict)  # of other systems, by name

    async def close(self) -> None:
        try:
            for store in self.foreign.values():
                await store.objects.close()
            await self.objects.close()
        finally:
            await self.metadata.close()


class NoCluster(Failure):
    """No broker was ever started on these stores."""


async def read_cluster(stores: Stores) -> ClusterInfo:
    try:
        record = await stores.metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    if record is None:
        raise NoCluster("there is no cluster on these stores yet: start one with drayd up")
    return decode_cluster(record.value)


async def open_stores(settings: Settings, runtime: Runtime) -> Stores:
    metadata = await open_metadata(settings, runtime)
    try:
        return Stores(
            metadata, await _open_objects(settings, runtime), await _open_foreign(settings, runtime)
        )
    except BaseException:
        with suppress(OSError):
            await metadata.close()
        raise


async def _open_foreign(settings: Settings, runtime: Runtime) -> dict[str, ForeignStore]:
    try:
        return await open_foreign_stores(foreign_addresses(settings), runtime)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error


async def open_metadata(settings: Settings, runtime: Runtime) -> MetadataStore:
    engine = settings.metadata.engine
    path = settings.metadata_path
    try:
        if engine == "memory":
            return await open_metadata_store(InMemory(), runtime)
        if engine == "oxia":
            return await open_metadata_store(oxia_settings(settings.metadata.oxia), runtime)
        if engine == "etcd":
            return await open_metadata_store(etcd_settings(settings.metadata.etcd), runtime)
    except (OSError, MetadataError) as error:
        raise Failure(f"cannot open the metadata store: {error}") from error
    try:
        return await open_metadata_store(SqliteFile(path), runtime)
    except OSError as error:
        raise Failure(f"cannot open the metadata file {path}: {error.strerror}") from error
    except MetadataError as error:
        raise Failure(f"cannot open the metadata file {path}: {error}") from error


async def _open_objects(settings: Settings, runtime: Runtime) -> ObjectStore:
    try:
        return await open_object_store(
            settings.objects_url,
            settings.objects.options,
            runtime,
            revealed(settings.objects.secrets),
            allocate=uninitialised,
            check=True,
        )
    except ValueError as error:
        raise Failure(f"objects: {error}", USAGE) from error
    except ObjectError as error:
        raise Failure(f"cannot open the object store {settings.objects_url}: {error}") from error
