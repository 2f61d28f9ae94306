"""The log in every weather: it keeps its promises, and what would break them is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.run import SECONDS, simulate_log
from tests.simulation.log.world import Report
from tests.simulation.log_mutations import FOUND_AMONG_LIES, FOUND_BY_CHANCE, MUTATIONS
from tests.simulation.log_schedules import SCHEDULES, Schedule
from tests.simulation.noticing import check_schedule_notices, first_noticed

from dray_simulation.kernel.loop import run

SEEDS = 60
# Seeds at which the simulation found something in the real code once. What each was stands in the commit
# that mended it; schedules move when code does, so the rule itself has a mutation or a test of its own.
FOUND_SOMETHING_ONCE = (1, 4, 5, 8, 12, 13, 17, 20, 21, 22, 23, 28, 54, 701_138, 777_000_501, 5_700_000_742)
# A recorded seed is only where the search starts: any change of the code moves the schedules.
SEARCH = 200
SOAK_SEEDS = 2000
SOAK_SEARCH = 1500


@pytest.mark.parametrize("seed", sorted({*range(SEEDS), *FOUND_SOMETHING_ONCE}))
def test_the_log_keeps_its_promises(seed: int) -> None:
    simulate_log(seed)


def test_the_simulation_covers_what_it_should() -> None:
    """A simulation in which nothing happens proves nothing."""
    seen = sum((simulate_log(seed).counts for seed in range(20)), start=simulate_log(20).counts)
    expected = {
        "acknowledged": 500,
        "append errors": 200,
        "behind a failed one": 5,
        "consumed": 3000,
        "crashes": 50,
        "pauses": 50,
        "epochs": 20,
        "looked up by time": 100,
        "records deleted": 30,
        "topics deleted": 5,
    }
    assert {what: seen[what] for what in expected if seen[what] < expected[what]} == {}


def test_one_seed_is_one_run() -> None:
    first, second = simulate_log(7), simulate_log(7)
    assert first == second
    assert simulate_log(8).fingerprint != first.fingerprint


def test_one_seed_is_one_run_in_another_process_too() -> None:
    """Where the hashes of strings, and so the order of sets, are others."""
    program = "from tests.simulation.log.run import simulate_log; print(simulate_log(7).fingerprint)"
    prints = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        prints.add(done.stdout.split()[-1])
    assert prints == {simulate_log(7).fingerprint}


# --- stores that lie


def simulate_lies(seed: int, seconds: float = SECONDS) -> Report:
    """One answer in ten about an object is damaged, short, or says that it is not there; lists leave some
    out. No consumer is told of damage, since there is none, and nothing that is needed goes."""
    return simulate_log(seed, seconds, lying(seed))


def lying(seed: int) -> LogConditions:
    conditions = LogConditions.choose(seed)
    conditions.weather.lying = 0.1
    return conditions


@pytest.mark.parametrize("seed", range(8))
def test_the_log_keeps_its_promises_over_stores_that_lie(seed: int) -> None:
    simulate_lies(seed)


def test_the_stores_lie_in_every_way() -> None:
    told: Counter[str] = Counter()
    for seed in (5, 8):
        conditions = lying(seed)
        simulate_log(seed, SECONDS, conditions)
        told += conditions.weather.counts
    lies = [f"object told {how}" for how in ("missing", "hidden", "short", "flipped")]
    lies += ["object left out of a list", "object hidden from a look"]
    assert [what for what in lies if not told[what]] == []


@pytest.mark.parametrize("name", FOUND_AMONG_LIES)
def test_lies_notice(name: str) -> None:
    assert first_noticed(MUTATIONS[name], simulate_lies, FOUND_AMONG_LIES[name], SEARCH) is not None


# --- every rule, taken away


@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_chance_notices(name: str) -> None:
    first = FOUND_BY_CHANCE[name]
    found = first_noticed(MUTATIONS[name], simulate_log, first, SEARCH)
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
    noticed = {*FOUND_BY_CHANCE, *FOUND_AMONG_LIES, *[name for names in SCHEDULES.values() for name in names]}
    assert noticed == set(MUTATIONS)


# --- many more


@pytest.mark.soak
def test_the_log_keeps_its_promises_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_log(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.soak
@pytest.mark.parametrize("name", FOUND_BY_CHANCE)
def test_chance_notices_from_anywhere(name: str) -> None:
    base = SystemRandom().randrange(1 << 40)
    found = first_noticed(MUTATIONS[name], simulate_log, base, SOAK_SEARCH)
    assert found is not None, f"not noticed by the seeds from {base} on"
