"""Real Oxia servers as engines: one alone, and three with a coordinator. Each is started once and shared.

A server starts in a moment, but not in the moment that a test takes. So every test gets domains of its own
on the shared one: what it calls 0 is a number that no other test has.
"""

from __future__ import annotations

import atexit
from collections.abc import AsyncIterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.services.oxia import OxiaCluster, OxiaStandalone

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import (
    Change,
    Limits,
    MetadataStore,
    Operation,
    Outcome,
    Session,
    StoredValue,
    check_domain,
)
from dray.metadata.oxia import OxiaSettings
from dray.metadata.oxia.store import OxiaStore

DOMAINS_OF_A_TEST = 16

numbers = count()


class ShiftedStore:
    """A store whose domain 0 is another's domain `first`."""

    def __init__(self, store: OxiaStore, first: int) -> None:
        self.store = store
        self._first = first

    def _domain(self, domain: int) -> int:
        check_domain(domain)
        return self._first + domain

    @property
    def limits(self) -> Limits:
        return self.store.limits

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self.store.get(self._domain(domain), key)

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self.store.floor(self._domain(domain), key, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self.store.ceiling(self._domain(domain), key, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        return await self.store.scan(self._domain(domain), start, end, limit)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        return await self.store.write(self._domain(domain), operations)

    async def barrier(self, domain: int) -> None:
        await self.store.barrier(self._domain(domain))

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncIterator[Change]:
        return self.store.watch(self._domain(domain), endings)

    async def mark(self, domain: int, name: str) -> None:
        await self.store.mark(self._domain(domain), name)

    async def session(self, domain: int, ttl: float) -> Session:
        return await self.store.session(self._domain(domain), ttl)

    async def close(self) -> None:
        await self.store.close()


@cache
def standalone() -> OxiaSettings:
    directory = TemporaryDirectory()
    server = OxiaStandalone(Path(directory.name), shards=2)
    server.start()
    atexit.register(directory.cleanup)
    atexit.register(server.kill)
    starting_cluster()  # it takes a while: by the time it is asked for, it may be there
    return OxiaSettings(addresses=[server.address], namespace=server.namespace)


@cache
def starting_cluster() -> OxiaCluster:
    directory = TemporaryDirectory()
    servers = OxiaCluster(Path(directory.name), sync=False)
    atexit.register(directory.cleanup)
    atexit.register(servers.stop)
    servers.spawn()
    return servers


@cache
def cluster() -> OxiaSettings:
    servers = starting_cluster()
    servers.wait_until_ready()
    return OxiaSettings(addresses=servers.addresses, namespace=servers.namespace)


class OxiaEngine:
    shortest_ttl = 2.0

    def __init__(self, settings: OxiaSettings, runtime: SystemRuntime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._first = next(numbers) * DOMAINS_OF_A_TEST

    async def open(self) -> MetadataStore:
        store = OxiaStore(self._settings, self._runtime)
        await store.open()
        return ShiftedStore(store, self._first)

    async def abandon(self, store: MetadataStore) -> None:
        assert isinstance(store, ShiftedStore)
        await store.store.abandon()


def standalone_engine(directory: Path, runtime: SystemRuntime) -> OxiaEngine:
    return OxiaEngine(standalone(), runtime)


def cluster_engine(directory: Path, runtime: SystemRuntime) -> OxiaEngine:
    return OxiaEngine(cluster(), runtime)
