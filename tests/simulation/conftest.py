from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from tests.services.leftovers import nothing_left_behind

__all__ = ["nothing_left_behind"]


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """A simulated broker warns of every fault that is done to it: thousands of lines that say nothing."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
