"""Whole clusters in every weather: they keep their promises, and what would break them is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from tests.simulation.cluster_mutations import MUTATIONS
from tests.simulation.noticing import first_noticed
from typer.testing import CliRunner

from dray.cli.main import app
from dray_simulation import command as simulate
from dray_simulation.campaign import CampaignCoverage, RunOutcome, campaign, fresh_seed
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import ClusterConditions, Role
from dray_simulation.cluster.run import (
    LEAST_FAULTS,
    LEAST_OPERATIONS,
    LEAST_REBALANCES,
    LEAST_SWAPS,
    ClusterReport,
    RunFailed,
    simulate_cluster,
)
from dray_simulation.kinds import EVERY_KIND, KINDS
from dray_simulation.shrink import SmallestFailure, shrink

SEEDS = 10
# Seeds at which something was found once. Schedules move when code does, so each has a test of its own too.
FOUND_SOMETHING_ONCE = (201, 100148)
# A mutation is noticed within so many seeds from where its search starts.
SEARCH = 60
SOAK_SEEDS = 400
SOAK_SEARCH = 200


@pytest.fixture(scope="module")
def reports() -> dict[int, ClusterReport]:
    return {seed: simulate_cluster(seed) for seed in (*range(SEEDS), *FOUND_SOMETHING_ONCE)}


def test_clusters_keep_their_promises(reports: dict[int, ClusterReport]) -> None:
    assert len(reports) == SEEDS + len(FOUND_SOMETHING_ONCE)


def test_every_run_holds_enough(reports: dict[int, ClusterReport]) -> None:
    for seed, report in reports.items():
        told = f"seed {seed}"
        assert report.counts["operations"] >= LEAST_OPERATIONS, told
        assert report.counts["rebalances"] >= LEAST_REBALANCES, told
        assert report.counts["index swaps"] >= LEAST_SWAPS, told
        assert report.faults.total() - report.faults["hint lost"] >= LEAST_FAULTS, told


def test_the_runs_cover_what_they_should(reports: dict[int, ClusterReport]) -> None:
    """A simulation in which nothing happens proves nothing."""
    coverage = CampaignCoverage()
    for seed, report in reports.items():
        coverage.add(RunOutcome(seed, 1.0, report))
    for what in ("broker crashed", "broker stood still", "connection cut", "member crashed", "reads stale"):
        assert coverage.faults[what], what
    for what in ("write: the reply was lost", "write: the request timed out", "write arrived twice"):
        assert coverage.faults[what], what
    for what in ("acknowledged", "consumed", "commits", "rebalances", "records deleted", "topics deleted"):
        assert coverage.counts[what], what
    for what in (
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "ConsumerGroupHeartbeat",
        "OffsetFetch",
        "ListOffsets",
    ):
        assert coverage.by_kind[f"{what}Request"], what


def test_one_seed_is_one_run_of_a_cluster(reports: dict[int, ClusterReport]) -> None:
    assert simulate_cluster(7) == reports[7]
    assert reports[8].fingerprint != reports[7].fingerprint


def test_one_seed_is_one_run_of_a_cluster_in_another_process_too(reports: dict[int, ClusterReport]) -> None:
    """Where the hashes of strings, and so the order of sets, are others."""
    program = "from dray_simulation.cluster.run import simulate_cluster as s; print(s(7).fingerprint)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "5"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == reports[7].fingerprint


# --- every rule, taken away


@pytest.mark.parametrize("name", MUTATIONS)
def test_clients_notice(name: str) -> None:
    mutation, first = MUTATIONS[name]
    found = first_noticed(mutation, simulate_cluster, first, SEARCH)
    assert found is not None, f"not noticed by {SEARCH} seeds from {first} on"


# --- a failure, told


def test_a_failure_is_shrunk_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS["answers without waiting for the log"][0](monkeypatch)
    with pytest.raises(RunFailed) as failed:
        simulate_cluster(0)
    assert isinstance(failed.value.__cause__, Violation)
    shrunk = shrink(failed.value)
    conditions = shrunk.failure.conditions
    assert len(conditions.clients()) < len(ClusterConditions.choose(0).clients())
    assert len(conditions.disasters) <= 1
    assert any("brokers" in line for line in shrunk.describe())
    assert shrunk.failure.trace


def test_the_command_line_tells_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    MUTATIONS["answers without waiting for the log"][0](monkeypatch)
    result = CliRunner().invoke(app, ["simulate", "--seed", "0", "--trace", "5"])
    assert result.exit_code == 1
    assert "the least that fails" in result.output
    assert "drayd simulate --seed 0 --kind weather" in str(result.exception)


def test_the_command_line_says_what_was_covered() -> None:
    result = CliRunner().invoke(app, ["simulate", "--seeds", "2", "--from", "3"])
    assert result.exit_code == 0, result.output
    assert "2 runs" in result.output
    assert "rebalances" in result.output


def test_a_campaign_takes_every_kind_of_run_in_turn() -> None:
    coverage = campaign(range(len(EVERY_KIND)))
    assert coverage.kinds == dict.fromkeys(EVERY_KIND, 1)
    assert coverage.failed == []
    assert coverage.counts["unreadable values"], "two builds met"
    assert coverage.faults["clock jumped"]


def test_the_help_lists_every_kind_and_another_is_refused() -> None:
    help_text = CliRunner().invoke(app, ["simulate", "--help"], env={"COLUMNS": "200"}).output
    for kind in KINDS.values():
        assert kind.name in help_text
        assert kind.what.split(",")[0] in " ".join(help_text.split())
    result = CliRunner().invoke(app, ["simulate", "--kind", "earthquakes"])
    assert "must be one of weather, clocks" in str(result.exception)


def test_a_failure_is_found_again_by_its_seed_and_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever kinds the campaign was of, and without what shrinking takes."""
    monkeypatch.setattr(simulate, "shrink", lambda failure: SmallestFailure(failure, 0))
    MUTATIONS["answers without waiting for the log"][0](monkeypatch)
    result = CliRunner().invoke(
        app, ["simulate", "--from", "1", "--kind", "ids", "--kind", "clocks", "--trace", "0"]
    )
    assert "drayd simulate --seed 1 --kind clocks" in str(result.exception)


def test_time_ends_a_campaign() -> None:
    assert campaign(range(1000), seconds=0.0).seeds == 0


def test_one_broker_and_two_clients() -> None:
    """The least cluster: where everything else can be ruled out."""
    conditions = replace(
        ClusterConditions.choose(5),
        brokers=1,
        roles=(Role.IDEMPOTENT_PRODUCER, Role.READER),
        disasters=(),
        fills_up=False,
    )
    assert simulate_cluster(5, conditions).counts["acknowledged"] > 10


# --- many more


@pytest.mark.soak
def test_clusters_keep_their_promises_for_long() -> None:
    base = fresh_seed()
    coverage = campaign(range(base, base + SOAK_SEEDS), jobs=os.cpu_count() or 1)
    assert coverage.failed == []


@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS)
def test_clients_notice_from_anywhere(name: str) -> None:
    base = fresh_seed()
    found = first_noticed(MUTATIONS[name][0], simulate_cluster, base, SOAK_SEARCH)
    assert found is not None, f"not noticed by the seeds from {base} on"
