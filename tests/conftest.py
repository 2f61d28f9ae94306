"""What every test shares: the order, the one server of client tests, the logs of servers where a test fails.

Hypothesis judges no time: tests run beside others, and what is slow then says nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.integration.left_out import ON_SERVERS, why_left_out
from tests.services.fixtures import bootstrap, first_broker, server_of_all
from tests.services.process import ServerProcess
from tests.services.target import ON_CLUSTER

__all__ = ["bootstrap", "first_broker", "server_of_all"]

# What is shared by test modules, and asserts: shown as a test shows it.
pytest.register_assert_rewrite("tests.unit.iceberg.suite")

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

HOME = Path(__file__).parent
FIRST = (*ON_SERVERS, "simulation", "conformance")
"""Where several processes share the tests, the long files come first, so that the many small ones of the
others fill the gaps at the end. The contracts come last of these: their servers stay up from then on."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        directory = item.path.relative_to(HOME).parts[0]
        return FIRST.index(directory) if directory in FIRST else len(FIRST)

    items.sort(key=rank)
    for item in items if ON_CLUSTER else ():
        if item.path.parent.name in ON_SERVERS and (reason := why_left_out(item.path.stem, item.name)):
            # Skipped, and not deselected: the reason is in the report of the run.
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in ServerProcess.running:
            report.sections.append((f"log of {server.name}, pid {server.pid}", server.log_tail()))
    return report
