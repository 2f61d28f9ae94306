"""Opens the metadata store of an engine. Engines are imported when they are asked for: most processes need
one of them, and some cost a second."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dray.metadata.contract import MetadataStore
from dray.metadata.etcd import EtcdSettings
from dray.metadata.oxia import OxiaSettings
from dray.runtime import Runtime


@dataclass(frozen=True, slots=True)
class SqliteFile:
    path: Path


class InMemory:
    """Forgets everything when it is closed."""


async def open_store(
    engine: SqliteFile | InMemory | EtcdSettings | OxiaSettings, runtime: Runtime
) -> MetadataStore:
    """A store that is ready. A `MetadataError` or an `OSError` says why there is none."""
    if isinstance(engine, InMemory):
        from dray.metadata.memory import MemoryStore

        return MemoryStore(runtime)
    if isinstance(engine, SqliteFile):
        from dray.metadata.sqlite import SqliteStore

        engine.path.parent.mkdir(parents=True, exist_ok=True)
        sqlite = SqliteStore(engine.path, runtime)
        await sqlite.open()
        return sqlite
    if isinstance(engine, EtcdSettings):
        from dray.metadata.etcd.store import EtcdStore

        etcd = EtcdStore(engine, runtime)
        await etcd.open()
        return etcd
    from dray.metadata.oxia.store import OxiaStore

    oxia = OxiaStore(engine, runtime)
    await oxia.open()
    return oxia
