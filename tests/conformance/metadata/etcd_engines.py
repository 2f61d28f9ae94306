"""Real etcd servers as engines: one alone, and three. Each is started once and shared.

A server starts in a moment, but not in the moment that a test takes. So every test gets a prefix of its
own on the shared one.
"""

from __future__ import annotations

import atexit
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from tests.services.etcd import EtcdCluster, EtcdProcess

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import MetadataStore
from dray.metadata.etcd import EtcdSettings
from dray.metadata.etcd.store import EtcdStore

GIVEN = os.environ.get("DRAY_TEST_ETCD")
"""Endpoints of servers that another process starts, and kills."""


@cache
def standalone() -> list[str]:
    directory = TemporaryDirectory()
    server = EtcdProcess(Path(directory.name))
    atexit.register(directory.cleanup)
    atexit.register(server.kill)
    server.start()
    return [server.address]


@cache
def cluster() -> list[str]:
    if GIVEN:
        return GIVEN.split(",")
    directory = TemporaryDirectory()
    servers = EtcdCluster(Path(directory.name))
    atexit.register(directory.cleanup)
    atexit.register(servers.kill)
    servers.start()
    return servers.addresses


class EtcdEngine:
    # Where leaders are killed, a session has to outlive an election.
    shortest_ttl = 3.0 if GIVEN else 1.0

    def __init__(self, endpoints: list[str], runtime: SystemRuntime) -> None:
        self._runtime = runtime
        self._settings = EtcdSettings(endpoints=endpoints, prefix=f"{uuid4().hex}/")

    async def open(self) -> MetadataStore:
        store = EtcdStore(self._settings, self._runtime)
        await store.open()
        return store

    async def abandon(self, store: MetadataStore) -> None:
        assert isinstance(store, EtcdStore)
        await store.abandon()


def standalone_engine(directory: Path, runtime: SystemRuntime) -> EtcdEngine:
    return EtcdEngine(standalone(), runtime)


def cluster_engine(directory: Path, runtime: SystemRuntime) -> EtcdEngine:
    return EtcdEngine(cluster(), runtime)
