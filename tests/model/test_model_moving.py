"""A live move keeps its promises in random schedules, and each of its rules is needed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.model.moving import RULES, run_move
from tests.model.store import Violation

BREAKS_AT = dict.fromkeys(RULES, 0) | {
    "mirror-any": 4,
    "mirror-late": 2,
    "mirror-beside": 2,
    "mirror-no-recheck": 2,
    "mirror-drop": 8,
    "mirror-head-only": 759,
    "mirror-diverged": 112,
    "snapshot-early": 46,
    "switch-again": 4,
    "switch-any": 6,
    "no-probe": 42,
    "end-before-fence": 5,
    "end-once": 4159,
    "no-snapshot": 7,
    "aim-late": 55,
    "wanted-unasked": 5,
    "back-unsaid": 40,
    "back-no-void": 84,
    "back-decided": 5,
    "seed-none": 3,
    "seed-any": 3009,
    "seed-unsure": 135,
}


def test_no_schedule_of_a_move_breaks_a_promise() -> None:
    counts: Counter[str] = Counter()
    for seed in range(900_000, 900_030):
        counts += run_move(seed).counts
    for what in ("switches", "mirrored", "appended behind the boundary", "lifted", "elections", "taken over"):
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
