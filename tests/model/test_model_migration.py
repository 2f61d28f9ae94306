"""A stream that began elsewhere keeps its promises in random schedules, and each rule of that is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.migration import RULES, run_migration
from tests.model.store import Violation

BREAKS_AT = dict.fromkeys(RULES, 0) | {"append-classic": 2, "switch-any": 3}


def test_no_schedule_of_a_migration_breaks_a_promise() -> None:
    counts: Counter[str] = Counter()
    for seed in range(800_000, 800_100):
        counts += run_migration(seed).counts
    for what in ("switches", "mirrored", "appended behind the boundary", "acknowledged again", "crashes"):
        assert counts[what] > 50, counts


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_a_migration_is_needed(rule: str) -> None:
    with pytest.raises((Violation, KeyError, IndexError)):
        run_migration(BREAKS_AT[rule], [rule])


@pytest.mark.parametrize("rule", RULES)
def test_with_the_rule_that_schedule_of_a_migration_holds(rule: str) -> None:
    run_migration(BREAKS_AT[rule])


@pytest.mark.soak
def test_no_schedule_of_a_migration_breaks_a_promise_in_long_runs() -> None:
    for seed in range(1_000_000, 1_010_000):
        run_migration(seed)
