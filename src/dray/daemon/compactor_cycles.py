"""Whether a compactor's cycles come through: what its `/readyz` rests on once Spark is warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from dray.compaction.summary import CompactionObserver, CycleSummary, Phase

FAILED_CYCLES: Final = 3
"""So many failed cycles in a row count as a fault. One or two may be passing trouble: a store was away for a
moment."""

STILL_SECONDS: Final = 1800.0
"""A cycle may take hours on a backlog, but something moves in it all the time: a unit, a table, a phase."""


class CycleHealth(CompactionObserver):
    """A cycle failed if it was interrupted, or if something stood still in it and no job came to its end. A
    table or a partition that stands still while others go on is no failed cycle: the metrics show it.

    `interval_seconds` is the pause between cycles, in which nothing moves.
    """

    def __init__(self, monotonic: Callable[[], float], interval_seconds: float) -> None:
        self._monotonic = monotonic
        self._still_seconds = interval_seconds + STILL_SECONDS
        self._moved = monotonic()
        self._failed = 0
        self._reason = ""

    def fault(self) -> str | None:
        """Why the compactor does not do its work; None if it does."""
        if self._failed >= FAILED_CYCLES:
            return f"the last {self._failed} cycles failed: {self._reason}"
        still = self._monotonic() - self._moved
        if still > self._still_seconds:
            return f"nothing has moved for {still:.0f} s in a cycle that has not ended"
        return None

    def progress(self, phase: Phase, done: int, total: int) -> None:  # noqa: ARG002 - all that counts is when
        self._moved = self._monotonic()

    def took(self, phase: Phase, seconds: float) -> None:  # noqa: ARG002
        self._moved = self._monotonic()

    def committed(self, seconds: float, outcome: str) -> None:  # noqa: ARG002
        self._moved = self._monotonic()

    def interrupted(self) -> None:
        self._ended("interrupted; the log of the compactor says by what")

    def finished(self, summary: CycleSummary) -> None:
        if summary.troubles and not summary.finished:
            first = summary.troubles[0]
            self._ended(
                f"{len(summary.troubles)} stood still and none moved, such as {first.topic}: {first.reason}"
            )
        else:
            self._ended(None)

    def _ended(self, reason: str | None) -> None:
        self._moved = self._monotonic()
        self._failed = 0 if reason is None else self._failed + 1
        self._reason = reason or ""
