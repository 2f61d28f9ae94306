from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest

from dray_simulation.kernel.loop import SimulationLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Whole compactors run on virtual time; what only reads and writes files runs on the real one."""
    if "compaction_cluster" in vars(item.module):  # type: ignore[attr-defined]
        return {"virtual time": SimulationLoop}
    return {"real time": asyncio.new_event_loop}
