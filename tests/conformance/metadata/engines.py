"""The engines that keep the metadata contract. A new one, a real server included, is one entry here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.conformance.metadata import etcd_engines
from tests.conformance.metadata.oxia_engines import cluster_engine, standalone_engine

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import MetadataStore
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.sqlite import SqliteSettings, SqliteStore


class Engine(Protocol):
    shortest_ttl: float
    """The shortest life of a session that the engine allows, in seconds."""

    async def open(self) -> MetadataStore:
        """One more client of the same data, as another broker would be."""

    async def abandon(self, store: MetadataStore) -> None:
        """Let the client vanish as a process that died."""


class MemoryEngine:
    shortest_ttl = 0.5

    def __init__(self, directory: Path, runtime: SystemRuntime) -> None:
        self._runtime = runtime
        self._state = MemoryState()

    async def open(self) -> MetadataStore:
        return MemoryStore(self._runtime, self._state)

    async def abandon(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.abandon()


class SqliteEngine:
    shortest_ttl = 1.0

    def __init__(self, directory: Path, runtime: SystemRuntime) -> None:
        self._path = directory / "metadata.sqlite"
        self._runtime = runtime

    async def open(self) -> MetadataStore:
        settings = SqliteSettings(watch_interval=0.005, upkeep_interval=0.02)
        store = SqliteStore(self._path, self._runtime, settings)
        await store.open()
        return store

    async def abandon(self, store: MetadataStore) -> None:
        assert isinstance(store, SqliteStore)
        await store.abandon()


ENGINES: dict[str, Callable[[Path, SystemRuntime], Engine]] = {
    "memory": MemoryEngine,
    "sqlite": SqliteEngine,
    "oxia": standalone_engine,
    "oxia-cluster": cluster_engine,
    "etcd": etcd_engines.standalone_engine,
    "etcd-cluster": etcd_engines.cluster_engine,
}
