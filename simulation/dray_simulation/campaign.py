"""Many runs, on as many processors as are given, until they are done, time is up, or one fails."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import SystemRandom

import structlog

from dray_simulation.cluster.run import ClusterReport, RunFailed, simulate_cluster
from dray_simulation.kinds import EVERY_KIND, kind_of

_AHEAD = 2  # runs per processor that wait for their turn


@dataclass(slots=True)
class CampaignCoverage:
    """The coverage of all runs together."""

    seeds: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    operations: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    processor_seconds: float = 0.0
    failed: list[int] = field(default_factory=list)

    def add(self, outcome: RunOutcome) -> None:
        self.seeds += 1
        self.kinds[outcome.kind] += 1
        self.processor_seconds += outcome.seconds
        if outcome.report is None:
            self.failed.append(outcome.seed)
            return
        self.operations += outcome.report.counts["operations"]
        self.counts += outcome.report.counts
        self.by_kind += outcome.report.operations
        self.errors += outcome.report.errors
        self.faults += outcome.report.faults

    @property
    def operations_per_second(self) -> float:
        """Of one processor."""
        return self.operations / self.processor_seconds if self.processor_seconds else 0.0


@dataclass(frozen=True, slots=True)
class RunOutcome:
    seed: int
    seconds: float
    report: ClusterReport | None  # None: it failed
    kind: str = "weather"


def fresh_seed() -> int:
    """One that has not been tried yet, most likely."""
    return SystemRandom().randrange(1 << 40)


def run_seed(seed: int, kinds: Sequence[str] = EVERY_KIND) -> RunOutcome:
    began = time.process_time()
    report: ClusterReport | None = None
    kind = kind_of(seed, kinds)
    with suppress(RunFailed):  # the caller runs it again, and looks at it
        report = simulate_cluster(seed, kind.choose(seed))
    return RunOutcome(seed, time.process_time() - began, report, kind.name)


def campaign(
    seeds: Sequence[int],
    *,
    seconds: float = float("inf"),
    jobs: int = 1,
    progress: Callable[[CampaignCoverage], None] = lambda _: None,
    kinds: Sequence[str] = EVERY_KIND,
) -> CampaignCoverage:
    """Stops at the first failure."""
    coverage = CampaignCoverage()
    for outcome in _outcomes(seeds, jobs, time.monotonic() + seconds, kinds):
        coverage.add(outcome)
        progress(coverage)
        if coverage.failed:
            break
    return coverage


def _outcomes(seeds: Sequence[int], jobs: int, deadline: float, kinds: Sequence[str]) -> Iterator[RunOutcome]:
    if jobs == 1:
        be_quiet()
        for seed in seeds:
            if time.monotonic() >= deadline:
                return
            yield run_seed(seed, kinds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=be_quiet) as pool:
        remaining = iter(seeds)
        under_way: set[Future[RunOutcome]] = set()
        try:
            while True:
                while len(under_way) < jobs * _AHEAD and time.monotonic() < deadline:
                    following = next(remaining, None)
                    if following is None:
                        break
                    under_way.add(pool.submit(run_seed, following, kinds))
                if not under_way:
                    return
                done, under_way = wait(under_way, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in under_way:
                future.cancel()


def be_quiet() -> None:
    """A simulated broker warns of every fault that is done to it: thousands of lines that say nothing."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
