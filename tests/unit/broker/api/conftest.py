from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.unit.broker.api.fakes import Harness, running


@pytest.fixture
async def broker() -> AsyncIterator[Harness]:
    async with running() as harness:
        yield harness
