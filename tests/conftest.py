"""What every test shares: the logs of the servers that were up, shown where a test fails, and how hypothesis
judges time: not at all, since tests run beside others, and what is slow then says nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.services.process import ServerProcess

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for server in ServerProcess.running:
            report.sections.append((f"log of {server.name}, pid {server.pid}", server.log_tail()))
    return report
