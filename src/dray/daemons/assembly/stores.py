"""The stores that a config names, opened. A fault is one line."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.broker.cluster.identity import ClusterInfo, decode_cluster
from dray.broker.cluster.levels import LevelTooNew, check_level
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.foreign_stores import foreign_addresses
from dray.daemons.assembly.store_settings import object_secrets
from dray.daemons.config import Settings
from dray.kafka.records import uninitialised
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.metadata.servers import ServersSettings
from dray.metadata.sqlite.schema import DamagedFile, no_matter
from dray.migration.entries.segments import ForeignStore, open_foreign_stores
from dray.objects import ObjectError, ObjectStore
from dray.objects.factory import open_store as open_object_store


@dataclass(frozen=True, slots=True)
class SqliteFile:
    path: Path
    on_damage: Callable[[str], None] = no_matter
    """Told of a file that turns out to be damaged after it was opened."""


class InMemory:
    """Forgets everything when it is closed."""


async def open_metadata_store(
    engine: SqliteFile | InMemory | ServersSettings, runtime: Runtime
) -> MetadataStore:
    """A store that is ready. Engines are imported when they are asked for: most processes need one of them,
    and some cost a second. A `MetadataError` or an `OSError` says why there is none."""
    if isinstance(engine, InMemory):
        from dray.metadata.memory import MemoryStore

        return MemoryStore(runtime)
    if isinstance(engine, SqliteFile):
        from dray.metadata.sqlite import SqliteStore

        engine.path.parent.mkdir(parents=True, exist_ok=True)
        sqlite = SqliteStore(engine.path, runtime, on_damage=engine.on_damage)
        await sqlite.open()
        return sqlite
    return await engine.opened(runtime)


_log = structlog.get_logger(__name__)

_FIRST_LOOK_SECONDS: Final = 10.0
_PROFILES: Final = ("AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


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


def warn_of_readable_files(settings: Settings) -> None:
    """One line for each directory of stored data that other accounts of the machine may enter: one that was
    there before, since a new one is for its owner alone."""
    for directory in _private_directories(settings):
        with suppress(OSError):
            if directory.stat().st_mode & _FOR_OTHERS:
                _log.warning(
                    "other accounts of this machine may read what is stored here, "
                    f"records and the keys of users: chmod 700 {directory}",
                    directory=str(directory),
                )


def _private_directories(settings: Settings) -> list[Path]:
    top = Path(settings.data_dir)
    found = [settings.metadata_path.parent] if settings.metadata.engine == "sqlite" else []
    scheme, _, place = settings.objects_url.partition(":")
    if scheme == "file":
        objects = Path(place.removeprefix("//"))
        found.append(top if objects.is_relative_to(top) else objects)
    return list(dict.fromkeys(found))


class NoCluster(Failure):
    """No broker was ever started on these stores."""


async def read_cluster(stores: Stores) -> ClusterInfo:
    try:
        record = await stores.metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    if record is None:
        raise NoCluster("there is no cluster on these stores yet: start one with drayd up")
    return decode_readable(record.value)


def decode_readable(value: bytes) -> ClusterInfo:
    """The cluster's record, of a cluster whose level this build reads."""
    cluster = decode_cluster(value)
    try:
        check_level(cluster.level)
    except LevelTooNew as error:
        raise Failure(str(error), USAGE) from error
    return cluster


async def open_stores(
    settings: Settings,
    runtime: Runtime,
    *,
    waits: bool = False,
    on_damage: Callable[[str], None] = no_matter,
) -> Stores:
    """`waits`: an object store that is only slow or overloaded is no failure. The caller waits for it.
    `on_damage` is told of a metadata file that turns out to be damaged later."""
    metadata = await open_metadata(settings, runtime, on_damage)
    try:
        objects = await _open_objects(settings, runtime, _FIRST_LOOK_SECONDS if waits else None)
        return Stores(metadata, objects, await _open_foreign(settings, runtime))
    except BaseException:
        with suppress(OSError):
            await metadata.close()
        raise


async def _open_foreign(settings: Settings, runtime: Runtime) -> dict[str, ForeignStore]:
    try:
        return await open_foreign_stores(foreign_addresses(settings), runtime)
    except ValueError as error:
        raise Failure(str(error), USAGE) from error


async def open_metadata(
    settings: Settings, runtime: Runtime, on_damage: Callable[[str], None] = no_matter
) -> MetadataStore:
    path = settings.metadata_path
    try:
        if settings.metadata.engine == "memory":
            return await open_metadata_store(InMemory(), runtime)
        if (servers := settings.metadata.servers) is not None:
            return await open_metadata_store(servers, runtime)
    except (OSError, MetadataError) as error:
        raise Failure(f"cannot open the metadata store: {error}") from error
    try:
        return await open_metadata_store(SqliteFile(path, on_damage), runtime)
    except OSError as error:
        raise Failure(f"cannot open the metadata file {path}: {error.strerror}") from error
    except DamagedFile as error:
        raise Failure(f"the metadata file {error}") from error
    except MetadataError as error:
        raise Failure(f"cannot open the metadata file {path}: {error}") from error


def warn_of_unread_profiles(settings: Settings, environment: Mapping[str, str]) -> None:
    """Credentials that other tools of AWS find, and the client of the object store does not: it would
    silently ask the machine's role instead."""
    found = [name for name in _PROFILES if environment.get(name)]
    if (
        settings.objects_url.startswith("s3:")
        and found
        and "AWS_ACCESS_KEY_ID" not in environment
        and not object_secrets(settings)
    ):
        _log.warning(
            f"{found[0]} is not read: give the credentials in objects.secrets or objects.secrets_directory"
        )


def _say_what_is_kept(store: ObjectStore) -> None:
    from dray.objects.remote.store import keeps_no_versions  # it needs a client for three clouds

    if keeps_no_versions(store):
        _log.warning(
            "the bucket keeps no versions: what another program deletes in it cannot be put back",
            advice="give it versions, with a lifecycle rule that ends noncurrent ones after some days",
        )


async def _open_objects(settings: Settings, runtime: Runtime, patience: float | None) -> ObjectStore:
    try:
        store = await open_object_store(
            settings.objects_url,
            settings.objects.options,
            runtime,
            object_secrets(settings),
            allocate=uninitialised,
            check=True,
            patience=patience,
        )
        if patience is not None and settings.objects_url.startswith("s3:"):
            _say_what_is_kept(store)
        return store
    except ValueError as error:
        raise Failure(f"objects: {error}", USAGE) from error
    except ObjectError as error:
        raise Failure(f"cannot open the object store {settings.objects_url}: {error}") from error
