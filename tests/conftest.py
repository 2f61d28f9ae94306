"""What every test shares: the order, the logs of the servers that were up, shown where a test fails, and how
hypothesis judges time: not at all, since tests run beside others, and what is slow then says nothing."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.services.process import ServerProcess

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

HOME = Path(__file__).parent
FIRST = ("integration", "simulation", "conformance")
"""Where several processes share the tests, the long files come first, so that the many small ones of the
others fill the gaps at the end. The contracts come last of these: their servers stay up from then on."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        directory = item.path.relative_to(HOME).parts[0]
        return FIRST.index(directory) if directory in FIRST else len(FIRST)

    items.sort(key=rank)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in ServerProcess.running:
            report.sections.append((f"log of {server.name}, pid {server.pid}", server.log_tail()))
    return report
