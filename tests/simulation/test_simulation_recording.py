"""A run as data."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dray.cli.main import app
from dray.daemons.assembly.failures import Failure
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster import run as cluster_run
from dray_simulation.cluster.run import record_run, simulate_cluster

SEED = 7


def test_a_run_is_recorded_as_it_is_without() -> None:
    recorded = record_run(SEED)
    assert recorded.broken is None
    assert recorded.fingerprint == simulate_cluster(SEED).fingerprint, "to record changes nothing"
    assert len(recorded.steps) > 100
    assert [step.at for step in recorded.steps] == sorted(step.at for step in recorded.steps)
    assert recorded.counts["operations"] > 0


def test_a_broken_promise_is_named_with_what_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    played = cluster_run._play

    async def broken(world: object) -> None:
        await played(world)  # type: ignore[arg-type]
        raise Violation("it was promised")

    monkeypatch.setattr(cluster_run, "_play", broken)
    recorded = record_run(SEED)
    assert recorded.broken is not None
    assert "it was promised" in recorded.broken
    assert recorded.steps
    answer = CliRunner().invoke(app, ["simulate", "--seed", str(SEED), "--kind", "weather", "--json"])
    assert isinstance(answer.exception, Failure)
    printed = json.loads(answer.stdout)
    assert (printed["seed"], printed["broken"]) == (SEED, recorded.broken)
    assert set(printed["steps"][0]) == {"at", "who", "what"}


def test_one_run_at_a_time() -> None:
    answer = CliRunner().invoke(app, ["simulate", "--json"])
    assert isinstance(answer.exception, Failure)
    assert "give its --seed" in str(answer.exception)
