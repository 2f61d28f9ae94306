"""Machines whose clocks are wrong: nothing expires before its time, and no commit is lost."""

from __future__ import annotations

import pytest
from tests.simulation.clock_mutations import IN_CLUSTERS, IN_SCHEDULES
from tests.simulation.clock_schedules import WAYS, run_schedule
from tests.simulation.noticing import check_schedule_notices, first_noticed

from dray_simulation.cluster.conditions import ClusterConditions
from dray_simulation.cluster.run import ClusterReport, simulate_cluster
from dray_simulation.kernel.runtime import EPOCH_MS, ProcessClock

SEEDS = 6
SEARCH = 20


def simulate(seed: int) -> ClusterReport:
    return simulate_cluster(seed, ClusterConditions.choose(seed).with_clocks())


def test_clusters_with_a_wrong_clock_keep_their_promises() -> None:
    reports = [simulate(seed) for seed in range(SEEDS)]
    for what in ("clock jumped", "host paused a broker"):
        assert sum(report.faults[what] for report in reports), what


@pytest.mark.parametrize("way", WAYS)
def test_a_coordinator_that_was_away_loses_nothing(way: str) -> None:
    run_schedule(way)


@pytest.mark.parametrize("name", IN_CLUSTERS)
def test_a_cluster_notices(name: str) -> None:
    mutation, first = IN_CLUSTERS[name]
    found = first_noticed(mutation, simulate, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


@pytest.mark.parametrize("name", IN_SCHEDULES)
def test_a_schedule_notices(name: str) -> None:
    mutation, way = IN_SCHEDULES[name]
    check_schedule_notices(mutation, lambda: run_schedule(way))


def test_the_clocks_of_a_process() -> None:
    clock = ProcessClock(ahead=10.0, drift=0.5)
    assert clock.wall_ms(4.0) == EPOCH_MS + 16_000
    assert clock.monotonic(4.0) == 4.0
    clock.jump(100.0)
    assert clock.wall_ms(4.0) == EPOCH_MS + 116_000
    clock.mend(4.0)
    clock.stand_still(5.0, 2.0, wall_too=False)
    assert [clock.monotonic(now) for now in (5.0, 6.0, 7.0, 8.0)] == [5.0, 5.0, 5.0, 6.0]
    assert clock.wall_ms(8.0) == EPOCH_MS + 8_000
    clock.stand_still(9.0, 1.0, wall_too=True)
    assert clock.wall_ms(11.0) == EPOCH_MS + 10_000
    clock.mend(11.0)
    assert clock.wall_ms(11.0) == EPOCH_MS + 11_000
