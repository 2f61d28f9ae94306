"""A live move keeps its promises in random schedules, and each of its rules is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.moving import RULES, run_move
from tests.model.store import Violation

BREAKS_AT = dict.fromkeys(RULES, 0) | {
    "mirror-no-recheck": 2,
    "mirror-head-only": 139,
    "mirror-uncommitted": 44,
    "mirror-diverged": 129,
    "snapshot-early": 12,
    "switch-again": 1,
    "switch-any": 4,
    "no-probe": 3,
    "end-before-fence": 6,
    "end-once": 155,
    "no-snapshot": 24,
    "aim-late": 55,
    "wanted-unasked": 184,
    "back-unsaid": 4,
    "back-no-void": 46,
    "back-decided": 45,
}


def test_no_schedule_of_a_move_breaks_a_promise() -> None:
    counts: Counter[str] = Counter()
    for seed in range(900_000, 900_030):
        counts += run_move(seed).counts
    for what in ("switches", "mirrored", "appended behind the boundary", "lifted", "elections"):
        assert counts[what] > 10, counts


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_of_a_move_is_needed(rule: str) -> None:
    with pytest.raises((Violation, KeyError, IndexError)):
        run_move(BREAKS_AT[rule], [rule])


@pytest.mark.parametrize("rule", RULES)
def test_with_the_rule_that_schedule_of_a_move_holds(rule: str) -> None:
    run_move(BREAKS_AT[rule])


@pytest.mark.soak
def test_no_schedule_of_a_move_breaks_a_promise_in_long_runs() -> None:
    for seed in range(1_100_000, 1_103_000):
        run_move(seed)
