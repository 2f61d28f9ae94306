"""The engines that keep the object contract. A new one, a real S3 server included, is one entry here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import LocalStore as ObstoreLocalStore
from obstore.store import MemoryStore as ObstoreMemoryStore
from tests.services.s3 import BUCKET, S3Process

from dray.objects import LocalStore, MemoryObjects, ObjectStore, open_store
from dray.objects.remote import RemoteSettings, RemoteStore
from dray.runtime import SystemRuntime

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


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture(params=[*ENGINES, "s3"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, runtime: SystemRuntime
) -> AsyncIterator[ObjectStore]:
    if request.param == "s3":
        server: S3Process = request.getfixturevalue("s3_server")
        # One server for all tests, and a prefix for each.
        url = f"s3://{BUCKET}/{uuid4().hex}"
        store = await open_store(url, server.options(), runtime, server.secrets())
    else:
        store = await ENGINES[request.param](tmp_path, runtime)
    yield store
    await store.close()
