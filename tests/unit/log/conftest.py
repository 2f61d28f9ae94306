from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest
from tests.unit.log.harness import World

from dray.log import Log
from dray.log.parquet import writer
from dray.log.read import parquet_reader
from dray.tables.compaction.writing import sources
from dray_simulation.kernel.loop import SimulationLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every test of this room runs on virtual time: it waits for nothing, and says so when it is stuck."""
    return {"virtual time": SimulationLoop}


@pytest.fixture
async def world() -> World:
    return World()


@pytest.fixture
async def log(world: World) -> AsyncIterator[Log]:
    made = world.log()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE_BYTES", 1500)
    monkeypatch.setattr(writer, "GROUP_BYTES", 1500)
    monkeypatch.setattr(writer, "MOST_GROUP_BYTES", 3000)
    monkeypatch.setattr(parquet_reader, "BATCH_BYTES", 400)
