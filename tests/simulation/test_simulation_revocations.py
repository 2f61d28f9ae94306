"""Users and ACLs that come and go in a cluster: who is served, and until when."""

from __future__ import annotations

from collections import Counter
from random import SystemRandom

import pytest
from tests.simulation.noticing import first_noticed
from tests.simulation.revocation_mutations import MUTATIONS

from dray_simulation.cluster.revocations import taken_rights
from dray_simulation.cluster.run import ClusterReport, simulate_cluster

SEEDS = 8
SEARCH = 20
SOAK_SEEDS = 100
SOAK_SEARCH = 60


def simulate_revocations(seed: int) -> ClusterReport:
    return simulate_cluster(seed, taken_rights(seed))


def test_nobody_is_served_later_than_the_bound() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        seen += simulate_revocations(seed).counts
    for how in ("ACL", "DENY"):
        assert seen[f"took {how} of"]
        assert seen[f"gave {how} to"]
    assert seen["gave a password to"] > seen["deleted"] > 0
    assert seen["served"] > 100
    assert seen["refused"] > 50
    assert seen["joined"] > 20
    assert seen["served after"], "for a while, where hints are lost"


def test_one_seed_is_one_run_of_revocations() -> None:
    """Whatever ran before it in the process: brokers restart here while many connections are open."""
    first = simulate_revocations(3)
    simulate_revocations(5)
    simulate_cluster(1)
    assert simulate_revocations(3) == first


@pytest.mark.parametrize("name", MUTATIONS)
def test_who_is_served_too_long_is_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate_revocations, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.soak
def test_nobody_is_served_later_than_the_bound_for_long() -> None:
    base = SystemRandom().randrange(1 << 40)
    for seed in range(base, base + SOAK_SEEDS):
        try:
            simulate_revocations(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
