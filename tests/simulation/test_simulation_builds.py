"""Two builds in one cluster, and brokers that must give up their id: nothing is lost, or it is noticed."""

from __future__ import annotations

import pytest
from tests.simulation.builds_mutations import MUTATIONS, an_automatic_id_is_claimed_for_ever
from tests.simulation.noticing import first_noticed

from dray.simulation.campaign import fresh_seed
from dray.simulation.cluster.builds import two_builds
from dray.simulation.cluster.identities import automatic_ids
from dray.simulation.cluster.run import ClusterReport, simulate_cluster

SEEDS = 8
SEARCH = 40
SOAK_SEEDS = 200


def run_two_builds(seed: int) -> ClusterReport:
    return simulate_cluster(seed, two_builds(seed))


def run_automatic_ids(seed: int) -> ClusterReport:
    return simulate_cluster(seed, automatic_ids(seed))


def test_two_builds_lose_nothing_of_each_other() -> None:
    reports = [run_two_builds(seed) for seed in range(1, SEEDS + 1)]
    for report in reports:
        assert report.counts["unreadable values"] > 0, "older processes met none"
    for what in ("commits", "acknowledged", "table commits", "topics deleted"):
        assert any(report.counts[what] for report in reports), what


def test_one_seed_is_one_run_of_two_builds() -> None:
    assert run_two_builds(3) == run_two_builds(3)


@pytest.mark.parametrize("name", MUTATIONS)
def test_deletions_for_want_of_reading_are_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, run_two_builds, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


def test_brokers_with_automatic_ids_never_share_one() -> None:
    for seed in range(SEEDS):
        run_automatic_ids(seed)


def test_an_id_that_is_claimed_for_ever_is_noticed() -> None:
    assert first_noticed(an_automatic_id_is_claimed_for_ever, run_automatic_ids, 5, SEARCH) is not None


@pytest.mark.soak
def test_two_builds_lose_nothing_of_each_other_for_long() -> None:
    base = fresh_seed()
    for seed in range(base, base + SOAK_SEEDS):
        run_two_builds(seed)
        run_automatic_ids(seed)
