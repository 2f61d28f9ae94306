from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from tests.unit.server.harness import TlsLibrary


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a test's coroutine on each kind of event loop; nothing here should take two minutes."""

    def bounded(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def within() -> Any:
            return await asyncio.wait_for(coroutine, 120)

        return uvloop.run(within()) if request.param == "uvloop" else asyncio.run(within())

    return bounded


@pytest.fixture(params=["bundled", "system"])
def tls_library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each test of TLS with both libraries that can encrypt."""
    monkeypatch.setattr(TlsLibrary, "bundled", request.param == "bundled")
    return str(request.param)
