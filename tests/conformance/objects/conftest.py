"""The engines that keep the object contract. A new one, a real S3 server included, is one entry here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import LocalStore as ObstoreLocalStore
from obstore.store import MemoryStore as ObstoreMemoryStore
from tests.services.azurite import CONTAINER, AzuriteProcess
from tests.services.google import BUCKET as GOOGLE_BUCKET
from tests.services.google import GoogleStore
from tests.services.s3 import BUCKET, S3Process

from dray.base.runtime import SystemRuntime
from dray.objects import LocalStore, MemoryObjects, ObjectStore, open_store
from dray.objects.remote.store import RemoteSettings, RemoteStore

# Small, so that a small object is a large one.
_SETTINGS = RemoteSettings(
    multipart_threshold=256 * 1024, part_size=64 * 1024, coalesce=4096, exit_grace_seconds=0
)

Opener = Callable[[Path, SystemRuntime], Awaitable[ObjectStore]]


async def _local(folder: Path, runtime: SystemRuntime) -> ObjectStore:
    return await LocalStore.open(folder / "objects", runtime)


async def _memory(folder: Path, runtime: SystemRuntime) -> ObjectStore:
    return MemoryObjects(runtime)


async def _obstore_memory(folder: Path, runtime: SystemRuntime) -> ObjectStore:
    return RemoteStore(ObstoreMemoryStore(), runtime, _SETTINGS)


async def _obstore_local(folder: Path, runtime: SystemRuntime) -> ObjectStore:
    return RemoteStore(ObstoreLocalStore(folder / "objects", mkdir=True), runtime, _SETTINGS)


ENGINES: dict[str, Opener] = {
    "local": _local,
    "memory": _memory,
    "obstore-memory": _obstore_memory,
    "obstore-local": _obstore_local,
}


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Process]:
    with S3Process(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzuriteProcess]:
    with AzuriteProcess(tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture(scope="session")
def google() -> Iterator[GoogleStore]:
    with GoogleStore() as server:
        yield server


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


SERVERS = {
    "s3": ("s3_server", f"s3://{BUCKET}"),
    "azure": ("azurite", f"az://{CONTAINER}"),
    "google": ("google", f"gs://{GOOGLE_BUCKET}"),
}


@pytest.fixture(params=[*ENGINES, *SERVERS])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, runtime: SystemRuntime
) -> AsyncIterator[ObjectStore]:
    if request.param in SERVERS:
        # One server for all tests, and a prefix for each.
        fixture, url = SERVERS[request.param]
        server: S3Process | AzuriteProcess | GoogleStore = request.getfixturevalue(fixture)
        store = await open_store(f"{url}/{uuid4().hex}", server.options(), runtime, server.secrets())
    else:
        store = await ENGINES[request.param](tmp_path, runtime)
    yield store
    await store.close()
