"""Random schedules in bad weather: no commit that was acknowledged is lost, nothing has two owners, and
epochs and generations never go back. A seed replays its run."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.coordinator.players import play

from dray_simulation.kernel.loop import run


@pytest.mark.parametrize("seed", range(12))
def test_the_promises_hold(seed: int) -> None:
    done = run(play(seed, seconds=60.0))
    assert done["commits"] > 20
    assert done["epoch"] > 0
    assert done["generation"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1200))
def test_the_promises_hold_for_long(seed: int) -> None:
    run(play(seed, seconds=300.0))
