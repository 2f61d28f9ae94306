"""Every test runs on every engine twice: with one client, and with two on the same data."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.conformance.metadata.engines import ENGINES, Engine

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import MetadataStore


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture(
    params=[(name, clients) for name in ENGINES for clients in (1, 2)], ids=lambda p: f"{p[0]}-{p[1]}"
)
def setting(request: pytest.FixtureRequest, tmp_path: Path, runtime: SystemRuntime) -> tuple[Engine, int]:
    name, clients = request.param
    return ENGINES[name](tmp_path, runtime), clients


@pytest.fixture
def engine(setting: tuple[Engine, int]) -> Engine:
    return setting[0]


@pytest.fixture
async def store(engine: Engine) -> AsyncIterator[MetadataStore]:
    """The client that a test acts with."""
    store = await engine.open()
    yield store
    await store.close()


@pytest.fixture
async def other(setting: tuple[Engine, int], store: MetadataStore) -> AsyncIterator[MetadataStore]:
    """The client that a test looks with: the same one, or a second one."""
    engine, clients = setting
    if clients == 1:
        yield store
    else:
        other = await engine.open()
        yield other
        await other.close()
