"""A live topic that moves here from a classic source, in every weather: nothing is lost, nothing is there
twice, and broken rules are noticed."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.move_mutations import MUTATIONS, TRAPPED
from tests.simulation.noticing import first_noticed

from dray_simulation.cluster.run import ClusterReport, simulate_cluster
from dray_simulation.kinds import TRAPS, any_move
from dray_simulation.moves.run import moving_topics

SEEDS = 12
FOUND_SOMETHING_ONCE = (498,)
SEARCH = 10
SOAK_SEEDS = 400
TRAP_SEEDS = (1, 4)
TRAP_SEEDS_OF = {
    "overtaken": (2, 5),  # not in every run is the mirror overtaken
    "slow_fence": (1, 4, 99100028),  # a fence that came up while it was being lifted lost its mark
}


def simulate_move(seed: int) -> ClusterReport:
    return simulate_cluster(seed, moving_topics(seed))


def test_a_live_topic_moves_without_loss() -> None:
    seen: Counter[str] = Counter()
    for seed in (*range(SEEDS), *FOUND_SOMETHING_ONCE):
        seen += simulate_move(seed).counts
    expected = {
        "acknowledged by the source": 500,
        "acknowledged by Dray": 50,
        "consumed": 500,
        "pieces mirrored": 50,
        "partitions switched": 5,
        "transactions aborted": 20,
        "! migrator crashed": 10,
        "! migrator stood still": 10,
        "! leader of the source changed": 10,
    }
    assert {what: seen[what] for what in expected if seen[what] < expected[what]} == {}


def test_one_seed_is_one_run_of_a_move() -> None:
    assert simulate_move(3) == simulate_move(3)


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_move_without_a_rule_is_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate_move, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.parametrize("name", TRAPS)
def test_nothing_is_lost_at_the_worst_moment(name: str) -> None:
    seen: Counter[str] = Counter()
    for seed in TRAP_SEEDS_OF.get(name, TRAP_SEEDS):
        seen += simulate_cluster(seed, TRAPS[name](seed)).counts
    assert seen["partitions switched"] or name == "slow_fence"
    if name == "slow_fence":
        assert seen["lifted"] > len(TRAP_SEEDS)
    if name == "silent_producers":
        assert seen["retries of what is gone"]
    if name == "late_lift":
        assert seen["! migrator stood still before it lifted"]
    if name == "overtaken":
        assert seen["holes"]
    if name == "forgotten_consumers":
        assert seen["consumers left behind"]
        assert seen["groups at Dray"]


@pytest.mark.parametrize("name", TRAPPED)
def test_a_trap_notices_that_a_rule_is_gone(name: str) -> None:
    mutation, trap, first = TRAPPED[name]
    found = first_noticed(mutation, lambda seed: simulate_cluster(seed, trap(seed)), first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.soak
def test_live_topics_move_without_loss_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_cluster(seed, any_move(seed))
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
