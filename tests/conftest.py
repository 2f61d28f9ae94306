"""What every test shares: the order, the one server of client tests, the logs of servers where a test fails.

Hypothesis judges no time: tests run beside others, and what is slow then says nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.integration.left_out import ON_SERVERS, why_left_out
from tests.services.distribution import Scheduling, in_order
from tests.services.fixtures import bootstrap, first_broker, server_of_all
from tests.services.java import start_java_quickly
from tests.services.leftovers import collected_once, logging_as_it_was
from tests.services.process import ServerProcess
from tests.services.target import ON_CLUSTER

__all__ = ["bootstrap", "collected_once", "first_broker", "logging_as_it_was", "server_of_all"]

# What is shared by test modules, and asserts: shown as a test shows it.
pytest.register_assert_rewrite("tests.unit.tables.iceberg.suite")

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("markexpr") != "soak":
        start_java_quickly()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = [item.nodeid.partition("::")[0] for item in items]
    places = {path: place for place, path in enumerate(in_order(files))}
    items.sort(key=lambda item: places[item.nodeid.partition("::")[0]])
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
