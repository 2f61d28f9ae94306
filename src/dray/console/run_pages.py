"""Pages of runs: cycles of the compactors, replays of this console, and runs of the simulator from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.routing import Route

from dray.console.forms import named
from dray.console.rendering import Content
from dray.inspection.records.producing import Replays, ReplayView
from dray.inspection.storage.scrape import CompactionCycle, ScrapeHistory
from dray.inspection.storage.simulated_runs import SimulatedRun, run_in, runs_in

if TYPE_CHECKING:
    from dray.console.app import Console


@dataclass(frozen=True)
class RunsView:
    cycles: Sequence[CompactionCycle] | None
    """Newest first; None where the processes' numbers are not known."""
    compactors: int
    replays: Sequence[ReplayView]
    simulated: Sequence[SimulatedRun] | None
    """None where no directory of runs is named."""


def routes(
    console: Console, history: ScrapeHistory | None, replays: Replays, directory: Path | None
) -> list[Route]:
    runtime = console.brokers.runtime

    async def listing(_request: Request) -> Content:
        cycles = None if history is None else list(reversed(history.cycles.cycles))
        newest = None if history is None else history.newest
        compactors = 0 if newest is None else len(newest.cycles)
        simulated = None if directory is None else await runtime.in_thread(runs_in, directory)
        return Content(RunsView(cycles, compactors, replays.views(), simulated))

    found = [*console.pages.page("/runs", "runs.html", listing)]
    if directory is not None:
        place = directory

        async def run(request: Request) -> Content:
            return Content(await runtime.in_thread(run_in, place, named(request)))

        found += console.pages.page("/runs/{name}", "run.html", run)
    return found
