from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from log_harness import World

from dray.log import Log


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    made.runtime.close()


@pytest.fixture
async def log(world: World) -> AsyncIterator[Log]:
    made = world.log()
    await made.start()
    yield made
    await made.stop()
