"""The stores a config names, opened; whatever is wrong with them is one line."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dray.cli.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.config import Settings
    from dray.metadata.contract import MetadataStore
    from dray.objects import ObjectStore
    from dray.runtime import Runtime


@dataclass(frozen=True)
class Stores:
    metadata: MetadataStore
    objects: ObjectStore

    async def close(self) -> None:
        try:
            await self.objects.close()
        finally:
            await self.metadata.close()


async def open_stores(settings: Settings, runtime: Runtime) -> Stores:
    metadata = await _open_metadata(settings, runtime)
    try:
        return Stores(metadata, await _open_objects(settings, runtime))
    except BaseException:
        with suppress(OSError):
            await metadata.close()
        raise


async def _open_metadata(settings: Settings, runtime: Runtime) -> MetadataStore:
    from dray.metadata.contract import MetadataError

    if settings.metadata.engine == "memory":
        from dray.metadata.memory import MemoryStore

        return MemoryStore(runtime)
    from dray.metadata.sqlite import SqliteStore

    path = settings.metadata_path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(path, runtime)
        await store.open()
        return store
    except OSError as error:
        raise Failure(f"cannot open the metadata file {path}: {error.strerror}") from error
    except MetadataError as error:
        raise Failure(f"cannot open the metadata file {path}: {error}") from error


async def _open_objects(settings: Settings, runtime: Runtime) -> ObjectStore:
    from dray.objects import ObjectError
    from dray.objects.factory import open_store
    from dray.records import uninitialised

    secrets = {name: secret.get_secret_value() for name, secret in settings.objects.secrets.items()}
    try:
        return await open_store(
            settings.objects_url,
            settings.objects.options,
            runtime,
            secrets,
            allocate=uninitialised,
            check=True,
        )
    except ValueError as error:
        raise Failure(f"objects: {error}", USAGE) from error
    except ObjectError as error:
        raise Failure(f"cannot open the object store {settings.objects_url}: {error}") from error
