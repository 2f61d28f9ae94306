"""Whole clusters in every weather: they keep their promises."""

from __future__ import annotations

import pytest

from dray.simulation.cluster_run import simulate_cluster

SEEDS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_cluster_keeps_its_promises(seed: int) -> None:
    simulate_cluster(seed)


def test_one_seed_is_one_run_of_a_cluster() -> None:
    first, second = simulate_cluster(7), simulate_cluster(7)
    assert first == second
    assert simulate_cluster(8).fingerprint != first.fingerprint
