"""Rules about clocks, each taken out of the code: the guard, the time of a suspended machine, the fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation import cluster_mutations as cluster
from tests.simulation.clock_schedules import LATE

from dray.broker.cluster.clock_guard import ClockGuard
from dray.broker.cluster.clock_judge import ClockJudge
from dray.broker.groups.coordinator.fence import Fence
from dray.metadata.sessions import KeptSession
from dray_simulation.kernel.runtime import ProcessClock

Patch = Callable[[pytest.MonkeyPatch], None]


def every_clock_is_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClockGuard, "now_ms", lambda self: self._runtime.wall_ms())


def no_clock_is_compared_with(patch: pytest.MonkeyPatch) -> None:
    """Each process holds its clock against itself only."""
    patch.setattr(ClockJudge, "_others", lambda *_: [])


def commits_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    """The offsets are written by their versions, and that is all."""
    kept = Fence.moved

    async def look(_: Fence) -> None:
        return

    def moved(self: Fence, outcome: Any) -> bool:
        kept(self, outcome)
        return True

    patch.setattr(Fence, "moved", moved)
    patch.setattr(Fence, "look", look)


def clocks_that_stood_still_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KeptSession, "_may_have_been_away", lambda _: False)


def the_time_of_a_suspended_machine_does_not_count(patch: pytest.MonkeyPatch) -> None:
    """As with CLOCK_MONOTONIC of Linux, and without a look at the wall clock."""
    clocks_that_stood_still_are_believed(patch)
    kept = ProcessClock.suspend

    def suspend(self: ProcessClock, now: float, seconds: float) -> None:
        kept(self, now, seconds)
        self.stand_still(now, seconds, wall_too=False)

    patch.setattr(ProcessClock, "suspend", suspend)


IN_CLUSTERS: dict[str, tuple[Patch, int]] = {
    "every clock is believed": (every_clock_is_believed, 0),
    "no clock is compared with": (no_clock_is_compared_with, 0),
}

IN_SCHEDULES: dict[str, tuple[Patch, str]] = {
    "commits are not fenced": (commits_are_not_fenced, "all clocks stood still"),
    "clocks that stood still are believed": (clocks_that_stood_still_are_believed, "the host paused it"),
    "the time of a suspended machine does not count": (
        the_time_of_a_suspended_machine_does_not_count,
        "it was suspended",
    ),
    # Of whole clusters, which clients seldom notice there since commits are fenced.
    "a zombie coordinator answers": (cluster.a_zombie_coordinator_answers, "it was suspended"),
    "offsets are written without a version": (cluster.offsets_are_written_without_a_version, LATE),
}
