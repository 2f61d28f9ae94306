"""The protocol holds in random schedules, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.model.rules import MUTATIONS
from tests.model.schedule import campaign, run
from tests.model.store import Violation

# A schedule that breaks without the rule. Found by `python -m tests.model 10000 RULE`.
BREAKS_AT = {
    "prev-any": 0,
    "append-again": 951,
    "idx-then-hwm": 15,
    "bare-hwm": 12,
    "staging-unsure": 23,
    "refs-in-commit": 0,
    "stg-in-commit": 0,
    "drop-undecided": 19,
    "stg-absent": 2811,
    "stg-del-any": 214,
    "no-fence": 1,
    "no-recheck": 15,
    "recheck-present": 0,
    "recheck-clock": 1,
    "check-then-hwm": 44,
    "gc-stale-live": 809,
    "no-list": 1,
    "key-first": 0,
    "bump-fence": 16,
    "stale-plan": 1884,
    "no-cover": 9,
    "cover-below": 81,
    "no-look-ahead": 9,
    "abandon-written": 4,
    "swap-any": 5,
    "delete-unseen": 11,
    "done-unseen": 4,
    "refs-apart": 0,
    "pq-order": 58,
    "pq-nojob": 0,
    "ret-delete-first": 8,
    "ret-start-any": 12,
    "no-sweep": 9,
    "no-snap": 0,
    "ret-no-snap": 0,
    "snap-first": 937,
    "snap-any": 0,
    "fold-first": 0,
}


def test_no_schedule_breaks_a_promise() -> None:
    result = campaign(range(500_000, 500_400))
    assert not result.broken, result.first
    # Schedules in which nothing happens would prove nothing.
    for what in ("acknowledged", "acknowledged again", "crashes", "orphans", "fenced", "abandoned"):
        assert result.counts[what] > 50, result.counts


@pytest.mark.parametrize("rule", MUTATIONS)
def test_every_rule_is_needed(rule: str) -> None:
    with pytest.raises((Violation, KeyError, IndexError)):
        run(BREAKS_AT[rule], [rule])


@pytest.mark.parametrize("rule", MUTATIONS)
def test_with_the_rule_that_schedule_holds(rule: str) -> None:
    run(BREAKS_AT[rule])


@pytest.mark.soak
def test_no_schedule_breaks_a_promise_in_long_runs() -> None:
    result = campaign(range(1_000_000, 1_020_000))
    assert not result.broken, result.first
