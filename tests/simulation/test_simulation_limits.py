"""Clusters at the limits of their engine, with errors that no code expects: they live, and it is noticed when
they would not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.loop_mutations import MUTATIONS
from tests.simulation.noticing import first_noticed

from dray_simulation.campaign import fresh_seed
from dray_simulation.cluster.conditions import Role
from dray_simulation.cluster.limits import ETCD, NARROW, at_limits
from dray_simulation.cluster.run import ClusterReport, simulate_cluster

SEEDS = 6
SEARCH = 30
SOAK_SEEDS = 200


def simulate(seed: int) -> ClusterReport:
    return simulate_cluster(seed, at_limits(seed))


@pytest.fixture(scope="module")
def reports() -> dict[int, ClusterReport]:
    return {seed: simulate(seed) for seed in range(SEEDS)}


def test_clusters_live_through_unexpected_errors(reports: dict[int, ClusterReport]) -> None:
    assert len(reports) == SEEDS


def test_the_runs_hold_what_they_should(reports: dict[int, ClusterReport]) -> None:
    chosen = {seed: at_limits(seed) for seed in reports}
    assert sum(report.faults["unexpected error"] for report in reports.values()) > 50
    assert sum(report.faults["poisoned call"] for report in reports.values()) > 10
    assert any(conditions.limits == NARROW for conditions in chosen.values())
    for seed, report in reports.items():
        if chosen[seed].poisons_a_stream:
            assert report.counts["index swaps"], f"seed {seed}"


def test_25000_producers_of_one_stream_on_the_limits_of_etcd() -> None:
    """Retention, DeleteRecords and compaction of the stream go on."""
    conditions = replace(
        at_limits(4),
        limits=ETCD,
        silent_producers=25_000,
        snapshot_every=20,
        roles=(Role.IDEMPOTENT_PRODUCER, Role.ADMINISTRATOR, Role.READER),
        unexpected_errors=0.0,
        poisons_a_stream=False,
        partitions=2,
        seconds=3.0,
        disasters=(),
        fills_up=False,
    )
    assert simulate_cluster(4, conditions).counts["acknowledged"]


@pytest.mark.parametrize("name", MUTATIONS)
def test_it_is_noticed(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.soak
def test_clusters_live_for_long() -> None:
    base = fresh_seed()
    for seed in range(base, base + SOAK_SEEDS):
        simulate(seed)
