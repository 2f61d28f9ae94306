"""A pytest plugin for suites that run while servers are killed: `-p tests.services.unclear`.

The contract lets a store say that it does not know (`Ambiguous`), that it cannot (`Unavailable`), and that
anything may have changed (`Change(None)`). The conformance suite expects none of these of servers that are
well. A test that ends with one of them is tried again; any other failure counts.
"""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol

TRIES = 8
HONEST = ("contract.Ambiguous", "contract.Unavailable", "Change(key=None)")


def is_honest(reports: list[pytest.TestReport]) -> bool:
    failed = [report.longreprtext for report in reports if report.failed]
    return bool(failed) and all(any(word in text for word in HONEST) for text in failed)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for attempt in range(TRIES):
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        if attempt == TRIES - 1 or not is_honest(reports):
            break
        item._initrequest()  # type: ignore[attr-defined]
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
