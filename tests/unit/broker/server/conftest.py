from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a test's coroutine on each kind of event loop; nothing here should take two minutes."""

    def bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(coroutine, 120)

        return uvloop.run(within()) if request.param == "uvloop" else asyncio.run(within())

    return bounded
