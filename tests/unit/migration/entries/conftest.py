from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from dray_simulation.kernel.loop import SimulationLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual time": SimulationLoop}
