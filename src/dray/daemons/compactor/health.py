"""The HTTP pages of a compactor for its operators: is it alive, does it work, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from socket import gethostname
from typing import Final

from dray.base.build import build_name
from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.base.telemetry import ProcessMetrics
from dray.broker.cluster import ClockGuard, ProcessDescription
from dray.broker.cluster.clock_guard import COMPACTOR
from dray.daemons.assembly.health import HealthServer
from dray.daemons.assembly.instrumented_stores import measured
from dray.daemons.assembly.parts import clock_doubt
from dray.daemons.assembly.stores import Stores
from dray.log.life.lost_objects import lost_note
from dray.tables.compaction.summary import CompactionObserver, CycleSummary, Phase

FAILED_CYCLES: Final = 3
"""So many failed cycles in a row count as a fault. One or two may be passing trouble: a store was away for a
moment."""

STILL_SECONDS: Final = 1800.0
"""A cycle may take hours on a backlog, but something moves in it all the time: a unit, a table, a phase."""


class CycleHealth(CompactionObserver):
    """Whether the cycles come through: `/readyz` rests on it once Spark is warm. A cycle failed if it was
    interrupted, or if something stood still in it and no job came to its end. A table or a partition that
    stands still while others go on is no failed cycle: the metrics show it.

    `interval_seconds` is the pause between cycles, in which nothing moves.
    """

    def __init__(self, monotonic: Callable[[], float], interval_seconds: float) -> None:
        self._monotonic = monotonic
        self._still_seconds = interval_seconds + STILL_SECONDS
        self._moved = monotonic()
        self._failed = 0
        self._reason = ""
        self._stands: str | None = None
        self._watched: float | None = (
            None  # when the writing of files was last looked after, while it goes on
        )

    def fault(self) -> str | None:
        """Why the compactor does not do its work; None if it does."""
        if self._stands is not None:
            return f"Spark stands still: {self._stands}"
        if self._failed >= FAILED_CYCLES:
            return f"the last {self._failed} cycles failed: {self._reason}"
        still = self._monotonic() - self._moved
        if still > self._still_seconds:
            return f"nothing has moved for {still:.0f} s in a cycle that has not ended"
        return None

    def dead(self) -> str | None:
        """Why only a new process helps; None if it does not come to that. A writer that gets no further ends
        the process by itself, as long as somebody looks after it."""
        if self._watched is None or self._monotonic() - self._watched < STILL_SECONDS:
            return None
        return f"the writing of files has not been looked after for {self._monotonic() - self._watched:.0f} s"

    def stands_still(self, reason: str | None) -> None:
        self._stands = reason
        self._watched = self._monotonic()

    def progress(self, phase: Phase, done: int, total: int) -> None:  # noqa: ARG002 - all that counts is when
        self._moved = self._monotonic()

    def took(self, phase: Phase, seconds: float) -> None:  # noqa: ARG002
        self._moved = self._monotonic()
        if phase is Phase.WRITE:
            self._watched = None

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
        self._stands = self._watched = None


class _HealthObserver(CompactionObserver):
    """Why the collectors of the last cycle did not delete all that they would have."""

    held: str | None = None
    lost: str | None = None
    """The objects that it found to be gone."""

    def finished(self, summary: CycleSummary) -> None:
        if summary.collected:
            self.held = summary.held or summary.braked
            self.lost = lost_note(len(summary.lost), summary.lost[0].entry.path) if summary.lost else None


class CompactorHttp(HealthServer):
    """Serves from the very start, so that a compactor whose Spark is still starting is seen to be alive."""

    def __init__(self, stores: Stores, runtime: Runtime, metrics: ProcessMetrics) -> None:
        self.stores = measured(stores, metrics, runtime)
        """The stores, measured."""
        self.cycles: CycleHealth | None = None
        """How its cycles go; None until Spark is warm."""
        self.collection = _HealthObserver()
        """An observer that the compactor reports its cycles to."""
        self.clocks: ClockGuard | None = None
        super().__init__(
            "compactor",
            "compaction.http",
            self.stores,
            runtime,
            metrics,
            self._fault,
            notes={
                "collection": lambda: self.collection.held,
                "clock": lambda: clock_doubt(self.clocks),
                "lost": lambda: self.collection.lost,
            },
            dead=lambda: None if self.cycles is None else self.cycles.dead(),
        )
        metrics.clock_doubted.follow(lambda: float(clock_doubt(self.clocks) is not None))

    def description(self) -> ProcessDescription:
        """The description of this process for others. If it listens on every address, the machine's name is
        given."""
        http = None
        if self.is_started:
            host, port = self.address
            http = str(Address(gethostname() if host in ("0.0.0.0", "::") else host, port))
        return ProcessDescription(COMPACTOR, build_name(), http)

    def _fault(self) -> str | None:
        return "the compactor is still starting" if self.cycles is None else self.cycles.fault()
