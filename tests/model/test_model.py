"""The protocol holds in random schedules, and each of its rules is needed."""

from __future__ import annotations

from itertools import product

import pytest

from tests.model.rules import AHEAD, CLEANING, MUTATIONS, SEVERAL, WITH_CARRYING
from tests.model.schedule import STEPS, campaign, run
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
    "car-beside": 0,
    "car-after": 0,
    "car-file-bare": 0,
    "car-seal-bare": 0,
    "car-fallback": 47,
    "car-again": 175,
    "car-id": 4,
    "car-no-fold": 0,
    "car-no-snap": 0,
    "pack-no-stage": 1,
    "pack-unsure": 5,
    "pack-aim-late": 49,
    "pack-again": 98,
    "pack-no-job": 0,
    "pack-stale": 119,
    "pack-drop": 3,
    "pack-moved": 260,
    "pack-seal": 70,
    "pack-no-fence": 1239,
    "pack-job-blind": 145,
    "pack-index-job": 668,
    "pack-no-snap": 13,
    "pack-abandon": 13,
    "pack-abandon-ref": 16,
    "pack-swap-any": 163,
    "pack-unseen": 15,
    "pack-no-cover": 1486,
    "pack-stg-any": 100_133,
    "ahead-other": 2,
    "ahead-twice": 2,
    "ahead-unsure": 117,
    "ahead-no-recheck": 3,
    "clean-tombstone": 0,
    "clean-young": 141,
    "clean-unseen": 2,
    "clean-not-start": 0,
    "round-first": 45,
    "round-emptied": 11,
    "several-number": 13,
    "several-other": 5,
    "several-spared": 5,
    "several-spent": 0,
}
# Rules that only matter in longer schedules.
STEPS_OF = {"pack-stg-any": 1500} | dict.fromkeys(CLEANING, 1500)


def test_no_schedule_breaks_a_promise() -> None:
    result = campaign(range(500_000, 500_400))
    assert not result.broken, result.first
    # Schedules in which nothing happens would prove nothing.
    for what in ("acknowledged", "acknowledged again", "crashes", "orphans", "fenced", "abandoned"):
        assert result.counts[what] > 50, result.counts


def test_no_schedule_with_carried_entries_breaks_a_promise() -> None:
    result = campaign(range(600_000, 600_250), carries=True)
    assert not result.broken, result.first
    for what in ("acknowledged", "acknowledged again", "crashes", "orphans", "packs", "orphaned packs"):
        assert result.counts[what] > 50, result.counts


def test_no_schedule_with_marks_staged_ahead_breaks_a_promise() -> None:
    for carries in (False, True):
        result = campaign(range(700_000, 700_120), carries=carries, ahead=True)
        assert not result.broken, result.first
        for what in ("acknowledged", "crashes", "orphans", "fenced", "marks used", "marks dropped"):
            assert result.counts[what] > 50, result.counts


def test_no_schedule_with_compaction_by_key_breaks_a_promise() -> None:
    result = campaign(range(700_000, 700_060), cleans=True, steps=1500)
    assert not result.broken, result.first
    for what in ("acknowledged", "crashes", "rounds", "rounds over"):
        assert result.counts[what] > 50, result.counts


def test_no_schedule_with_files_written_ahead_breaks_a_promise() -> None:
    for carries in (False, True):
        result = campaign(range(800_000, 800_120), carries=carries, several=True)
        assert not result.broken, result.first
        for what in ("acknowledged", "abandoned", "files ahead", "files ahead of no use"):
            assert result.counts[what] > 25, result.counts


@pytest.mark.parametrize("rule", MUTATIONS)
def test_every_rule_is_needed(rule: str) -> None:
    with pytest.raises((Violation, KeyError, IndexError)):
        run(BREAKS_AT[rule], [rule], STEPS_OF.get(rule, STEPS))


@pytest.mark.parametrize("rule", MUTATIONS)
def test_with_the_rule_that_schedule_holds(rule: str) -> None:
    steps = STEPS_OF.get(rule, STEPS)
    run(
        BREAKS_AT[rule],
        steps=steps,
        carries=rule in WITH_CARRYING,
        ahead=rule in AHEAD,
        cleans=rule in CLEANING,
        several=rule in SEVERAL,
    )


@pytest.mark.soak
def test_no_schedule_breaks_a_promise_in_long_runs() -> None:
    for carries, ahead, cleans, several in product((False, True), repeat=4):
        seeds = range(1_000_000, 1_010_000)
        result = campaign(seeds, carries=carries, ahead=ahead, cleans=cleans, several=several)
        assert not result.broken, result.first
