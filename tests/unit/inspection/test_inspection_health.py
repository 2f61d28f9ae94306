"""Whether a cluster is well, in sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dray.inspection.health import (
    SILENT_MS,
    HealthCheck,
    broker_check,
    compactor_check,
    log_checks,
    partition_check,
    store_checks,
    worst,
)
from dray.inspection.storage.costs import OperationRow, Prices, StoresView

NOW = 10_000_000


def stores(*rows: OperationRow, seconds: float = 60.0) -> StoresView:
    return StoresView(seconds, 1, (), rows, (), 0.0, 0.0, 0.0, None, None, 0.0, Prices())


@pytest.mark.parametrize(
    ("check", "state", "said"),
    [
        (broker_check(1, ()), "good", "1 serves"),
        (broker_check(3, ()), "good", "3 serve"),
        (broker_check(3, ["b:1"]), "bad", "b:1 gives no answer"),
        (partition_check(0, 0), "good", "none yet"),
        (partition_check(7, 0), "good", "all have a leader"),
        (partition_check(7, 2), "bad", "2 of 7 have no leader"),
        (compactor_check([], NOW), "unsure", "none runs"),
        (compactor_check([NOW], NOW), "good", "1 runs"),
        (compactor_check([NOW, NOW - SILENT_MS - 1, NOW - 5], NOW), "good", "2 run"),
        (compactor_check([NOW - SILENT_MS - 1], NOW), "bad", "silent for more than two minutes"),
    ],
)
def test_what_is_said(check: HealthCheck, state: str, said: str) -> None:
    assert check.state == state
    assert said in check.said


def test_stores_that_fail_are_told_from_those_that_answer_and_those_that_rest() -> None:
    fast, slow = OperationRow("get", 1.0, 0.4, 0), OperationRow("put", 1.0, 12.34, 0)
    objects, metadata = store_checks(stores(fast, slow))
    assert (objects.what, objects.state, objects.said) == (
        "Object store",
        "good",
        "answers, slowest requests 12 ms",
    )
    assert (metadata.state, metadata.said) == ("good", "not asked in the last minute")
    for failures, state, said in (
        (1, "unsure", "1 request"),
        (6, "unsure", "6 requests"),
        (7, "bad", "7 requests"),
    ):
        objects, _ = store_checks(stores(fast, OperationRow("put", 1.0, None, failures)))
        assert (objects.state, objects.said) == (state, f"{said} failed in the last minute")
    assert store_checks(stores(seconds=0.0)) == [], "nothing was measured yet"


def test_what_is_lost_and_tables_that_are_left_are_said_where_there_are_any() -> None:
    assert log_checks(stores()) == []
    [log, tables] = log_checks(replace(stores(), lost=1, left_tables=4))
    assert (log.what, log.state, log.said.partition(":")[0]) == ("Log", "bad", "an object of it is gone")
    assert (tables.state, tables.said.partition(":")[0]) == ("unsure", "4 partitions went on without theirs")


def test_the_worst_of_them_is_the_clusters() -> None:
    good, unsure, bad = (HealthCheck("", state, "") for state in ("good", "unsure", "bad"))
    assert worst([]) == worst([good, good]) == "good"
    assert worst([good, unsure]) == "unsure"
    assert worst([unsure, bad, good]) == "bad"
