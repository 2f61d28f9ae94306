"""Polls that go by what a watch told miss nothing in random schedules, and each rule of that is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.hearing import RULES, run_hearing
from tests.model.store import Violation

BREAKS_AT = {
    "no-mark": 2,
    "late-mark": 7,
    "mark-ahead": 3,
    "told-too-early": 0,
    "no-era": 0,
    "no-barrier": 8,
    "read-before": 4,
    "forgotten": 188,
    "strangers": 23,
}


def test_no_schedule_of_hearing_breaks_a_promise() -> None:
    counts: Counter[str] = Counter()
    for seed in range(300_000, 300_100):
        counts += run_hearing(seed).counts
    for what in ("eras", "marks", "answered unasked", "asked"):
        assert counts[what] > 500, counts


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_hearing_is_needed(rule: str) -> None:
    with pytest.raises(Violation):
        run_hearing(BREAKS_AT[rule], [rule])


@pytest.mark.parametrize("rule", RULES)
def test_with_the_rule_that_schedule_of_hearing_holds(rule: str) -> None:
    run_hearing(BREAKS_AT[rule])


@pytest.mark.soak
def test_no_schedule_of_hearing_breaks_a_promise_in_long_runs() -> None:
    for seed in range(1_200_000, 1_203_000):
        run_hearing(seed)
