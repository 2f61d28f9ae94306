"""The log with compactors in every weather: it keeps its promises, and what would break them is noticed."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.compaction_mutations import FOUND_BY_CHANCE, MUTATIONS
from tests.simulation.compaction_schedules import SCHEDULES, Schedule
from tests.simulation.log.compaction_run import SECONDS, simulate_compaction
from tests.simulation.log.conditions import LogConditions
from tests.simulation.noticing import check_schedule_notices, first_noticed

from dray_simulation.kernel.loop import run

SEEDS = 12
SEARCH = 60
SOAK_SEEDS = 500


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_log_and_its_tables_keep_their_promises(seed: int) -> None:
    simulate_compaction(seed)


def test_the_simulation_covers_what_it_should() -> None:
    """A simulation in which nothing happens proves nothing."""
    seen = sum(
        (simulate_compaction(seed).counts for seed in (*range(1, 6), 11, 53, 90, 108, 162)),
        start=simulate_compaction(0).counts,
    )
    expected = {
        "acknowledged": 50,
        "consumed": 300,
        "table commits": 20,
        "job INDEX_SWAPPED": 20,
        "compactor crashes": 5,
        "compactor pauses": 5,
        "records deleted": 5,
        "cycles after deletions": 1,
        "tables out": 5,
        "jobs without their table": 5,
        "tables caught up": 5,
    }
    assert {what: seen[what] for what in expected if seen[what] < expected[what]} == {}


def test_one_seed_is_one_run() -> None:
    assert simulate_compaction(3) == simulate_compaction(3)


def test_the_log_and_its_tables_keep_their_promises_over_stores_that_lie() -> None:
    """One answer in ten about an object is bad, to compactors too: no consumer is told of damage, since there
    is none, no table gets a wrong row, and compaction goes on."""
    told, done = Counter[str](), Counter[str]()
    for seed in range(6):
        conditions = LogConditions.choose(seed)
        conditions.weather.lying = 0.1
        done += simulate_compaction(seed, SECONDS, conditions).counts
        told += conditions.weather.counts
    assert min(told[f"object told {how}"] for how in ("missing", "short", "flipped")) > 0
    assert told["object left out of a list"] > 0
    assert done["table commits"] >= 10


@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_chance_notices(name: str) -> None:
    first = FOUND_BY_CHANCE[name]
    found = first_noticed(MUTATIONS[name], simulate_compaction, first, SEARCH)
    assert found is not None, f"not noticed by the seeds from {first} on"


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.__name__)
def test_schedule(schedule: Schedule) -> None:
    run(schedule())


@pytest.mark.parametrize(
    ("schedule", "name"),
    [(schedule, name) for schedule, names in SCHEDULES.items() for name in names],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_schedule_notices(schedule: Schedule, name: str) -> None:
    check_schedule_notices(MUTATIONS[name], lambda: run(schedule()))


def test_every_mutation_is_noticed_by_something() -> None:
    noticed = {*FOUND_BY_CHANCE, *[name for names in SCHEDULES.values() for name in names]}
    assert noticed == set(MUTATIONS)


@pytest.mark.soak
def test_they_keep_their_promises_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_compaction(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
