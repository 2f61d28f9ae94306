"""One run as data: who did what when, and the promise that broke. For programs that draw it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dray.simulation.cluster.conditions import ClusterConditions
from dray.simulation.cluster.run import RunFailed, simulate_cluster
from dray.simulation.kernel.trace import TraceStep


@dataclass(frozen=True, slots=True)
class RecordedRun:
    seed: int
    broken: str | None
    """The promise, in the words of its check; None where all were kept."""
    seconds: float
    """Of simulated time."""
    fingerprint: str
    counts: Mapping[str, int]
    faults: Mapping[str, int]
    steps: Sequence[TraceStep]
    """The last of them, in order: a run keeps only so many."""


def record_run(seed: int, conditions: ClusterConditions | None = None) -> RecordedRun:
    steps: list[TraceStep] = []
    try:
        report = simulate_cluster(seed, conditions, recorded=steps)
    except RunFailed as failure:
        return RecordedRun(seed, repr(failure.__cause__), failure.at, "", {}, {}, steps)
    ended = steps[-1].at if steps else 0.0
    return RecordedRun(seed, None, ended, report.fingerprint, dict(report.counts), dict(report.faults), steps)
