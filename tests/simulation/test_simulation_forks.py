"""Production and a copy of its metadata at one bucket: the copy deletes nothing, and knows what it is."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.fork_mutations import MUTATIONS
from tests.simulation.forks import simulate_forks
from tests.simulation.noticing import first_noticed

SEEDS = 10
SEARCH = 30
SOAK_SEEDS = 300


def test_a_drill_beside_production_deletes_nothing() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += simulate_forks(seed).counts
    assert seen["production may delete"] > 100 * SEEDS
    assert seen["copied between two steps"]
    assert seen["outages"]
    assert seen["production's processes ended"] > SEEDS
    assert not seen["drill may delete"]


def test_one_seed_is_one_run_of_forks() -> None:
    assert simulate_forks(3) == simulate_forks(3)
    assert simulate_forks(4).fingerprint != simulate_forks(3).fingerprint


@pytest.mark.parametrize("name", MUTATIONS)
def test_forks_notice(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate_forks, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.soak
def test_a_drill_beside_production_deletes_nothing_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_forks(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
