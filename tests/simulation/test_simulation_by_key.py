"""Compaction by key in every weather: readers end with the same state, and what breaks that is noticed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.simulation.cleaning_mutations import MUTATIONS, noticed_in
from tests.simulation.noticing import first_noticed

from dray_simulation.campaign import campaign, fresh_seed
from dray_simulation.cluster.run import ClusterReport, simulate_cluster
from dray_simulation.kinds import by_key

SEEDS = 4
SEARCH = 40
SOAK_SEEDS = 300
BY_CHANCE = [name for name, noticed in MUTATIONS.items() if noticed.seed is not None]


def simulate(seed: int) -> ClusterReport:
    return simulate_cluster(seed, by_key(seed))


def test_readers_end_with_the_same_state_and_enough_happens() -> None:
    """A simulation in which nothing happens proves nothing."""
    counts: Counter[str] = sum((simulate(seed).counts for seed in range(SEEDS)), start=Counter())
    expected = {
        "compacted by key": 300,
        "tombstones gone": 5,
        "clean points": 10,
        "cleaning rounds": 3,
        "read over holes": 50,
        "policies switched": 10,
    }
    assert {what: counts[what] for what, least in expected.items() if counts[what] < least} == {}


@pytest.mark.parametrize("name", BY_CHANCE)
def test_chance_notices(name: str) -> None:
    noticed = MUTATIONS[name]
    assert noticed.seed is not None
    found = first_noticed(noticed.mutation, simulate, noticed.seed, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {noticed.seed} on"


def test_every_mutation_is_noticed_by_something() -> None:
    assert {*BY_CHANCE, *noticed_in("by key"), *noticed_in("rounds")} == set(MUTATIONS)


@pytest.mark.soak
def test_readers_end_with_the_same_state_for_long() -> None:
    base = fresh_seed()
    assert campaign(range(base, base + SOAK_SEEDS), kinds=["keys"]).failed == []
