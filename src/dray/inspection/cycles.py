"""What compactors did: their cycles, from how their counters grew between two looks at their metrics.

Cycles that found nothing to do are counted together, so that an hour of them does not push out the last that
did something.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client.metrics_core import Metric

KEPT: Final = 200
_PREFIX: Final = "dray_compaction_"
_WANTED: Final = (
    "dray_compaction_cycles_total",
    "dray_compaction_cycle_seconds_sum",
    "dray_compaction_phase_seconds_sum",
    "dray_compaction_files_total",
    "dray_compaction_records_total",
    "dray_compaction_input_bytes_total",
    "dray_compaction_output_bytes_total",
    "dray_compaction_jobs_total",
    "dray_compaction_table_commits_total",
    "dray_compaction_troubles_total",
    "dray_compaction_removed_total",
)

CycleNumbers = Mapping[tuple[str, str], float]
"""By the name of a counter and its one label's value."""


@dataclass(frozen=True)
class CompactionCycle:
    compactor: str
    """The address of its metrics."""
    ended_ms: int
    """When it was over, to the pace of the looks."""
    outcome: str
    """done, troubled or interrupted"""
    cycles: int
    """How many ended so since the look before."""
    seconds: float
    files: int
    records: int
    read_bytes: int
    written_bytes: int
    commits: Mapping[str, int]
    jobs: Mapping[str, int]
    troubles: Mapping[str, int]
    removed: Mapping[str, int]
    phases: Mapping[str, float]
    """Seconds of each."""

    @property
    def idle(self) -> bool:
        worked = self.files or self.commits or self.jobs or self.troubles or self.removed
        return not worked and self.outcome == "done"


def cycle_numbers(families: Iterable[Metric]) -> CycleNumbers:
    found: dict[tuple[str, str], float] = {}
    for family in families:
        if not family.name.startswith(_PREFIX):
            continue
        for sample in family.samples:
            if sample.name in _WANTED:
                found[sample.name.removeprefix(_PREFIX), next(iter(sample.labels.values()), "")] = (
                    sample.value
                )
    return found


@dataclass
class CycleHistory:
    cycles: deque[CompactionCycle] = field(default_factory=lambda: deque(maxlen=KEPT))
    """Oldest first."""
    _before: dict[str, CycleNumbers] = field(default_factory=dict)

    def take(self, numbers: Mapping[str, CycleNumbers], now_ms: int) -> None:
        for address, after in numbers.items():
            before = self._before.get(address)
            if before is not None:
                self._note(address, before, after, now_ms)
        self._before = dict(numbers)

    def _note(self, address: str, before: CycleNumbers, after: CycleNumbers, now_ms: int) -> None:
        if any(after.get(series, 0) < value for series, value in before.items()):
            before = {}  # it was started again, and counts from zero
        grown = {series: value - before.get(series, 0) for series, value in after.items()}

        def by_label(name: str) -> dict[str, float]:
            return {label: value for (series, label), value in grown.items() if series == name and value}

        def whole(name: str) -> int:
            return round(grown.get((f"{name}_total", ""), 0))

        ended = {outcome: round(value) for outcome, value in by_label("cycles_total").items()}
        if not ended:
            return
        outcome = next(each for each in ("troubled", "interrupted", *ended) if each in ended)
        counts = {
            name: {label: round(value) for label, value in by_label(f"{name}_total").items()}
            for name in ("table_commits", "jobs", "troubles", "removed")
        }
        cycle = CompactionCycle(
            address,
            now_ms,
            outcome,
            sum(ended.values()),
            grown.get(("cycle_seconds_sum", ""), 0.0),
            whole("files"),
            whole("records"),
            whole("input_bytes"),
            whole("output_bytes"),
            counts["table_commits"],
            counts["jobs"],
            counts["troubles"],
            counts["removed"],
            by_label("phase_seconds_sum"),
        )
        last = self.cycles[-1] if self.cycles else None
        if last is not None and last.idle and cycle.idle and last.compactor == cycle.compactor:
            self.cycles[-1] = replace(
                cycle, cycles=last.cycles + cycle.cycles, seconds=last.seconds + cycle.seconds
            )
        else:
            self.cycles.append(cycle)
