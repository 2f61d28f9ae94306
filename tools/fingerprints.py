"""Fingerprints of simulated runs, in `tests/frozen/fingerprints.json`: a move of code changes none of them.

`python -m tools.fingerprints` writes them anew, after a change of behaviour that is meant; `--kind` those of
some kinds alone. A run is what happened in the stores, to the instant, and how often anything happened; the
names of modules, classes and counts are no part of it. Python's random numbers, its event loop and the files
of PyArrow are: another version of these may change all fingerprints at once.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from tests.simulation.forks import simulate_forks
from tests.simulation.log.compaction_run import simulate_compaction
from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.foreign_faults import simulate_faulty_source
from tests.simulation.log.foreign_world import simulate_foreign
from tests.simulation.log.run import simulate_log
from tests.simulation.log.world import Report
from tests.simulation.shared_bucket import simulate_shared_bucket
from tests.simulation.unfinished_segments import simulate_unfinished

from dray_simulation.campaign import be_quiet
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.run import ClusterReport, RunFailed, simulate_cluster
from dray_simulation.kinds import KINDS as CLUSTER_KINDS

FILE: Final = Path(__file__).parents[1] / "tests" / "frozen" / "fingerprints.json"
SEEDS: Final = 300
FAILED: Final = "failed"
"""Stands for the fingerprint of a run that broke a promise, until that is mended."""

_A_LINE: Final = 10
"""Seeds that share a line of the file."""

Run = Callable[[int], "Report | ClusterReport | list[str]"]


def _cluster(kind: str, seed: int) -> ClusterReport:
    return simulate_cluster(seed, CLUSTER_KINDS[kind].choose(seed))


def _lies(seed: int) -> Report:
    conditions = LogConditions.choose(seed)
    conditions.weather.lying = 0.1
    return simulate_log(seed, conditions=conditions)


KINDS: Final[dict[str, Run]] = {
    **{f"cluster {kind}": partial(_cluster, kind) for kind in CLUSTER_KINDS},
    "log": simulate_log,
    "log over lies": _lies,
    "log with compactors": simulate_compaction,
    "log from elsewhere": simulate_foreign,
    "log from a store that fails": simulate_faulty_source,
    "shared bucket": simulate_shared_bucket,
    "forks": simulate_forks,
    "unfinished copies": simulate_unfinished,
}


def fingerprint(kind: str, seed: int) -> str:
    try:
        report = KINDS[kind](seed)
    except (RunFailed, Violation):
        return FAILED
    if isinstance(report, list):
        return _digest(report)
    counters: list[Counter[str]] = [report.counts]
    if isinstance(report, ClusterReport):
        counters += [report.operations, report.errors, report.faults]
    return _digest([report.fingerprint, *(sorted(filter(None, each.values())) for each in counters)])


def _digest(what: object) -> str:
    return blake2b(repr(what).encode(), digest_size=6).hexdigest()


def fingerprints(kind: str, seeds: Iterable[int], jobs: int = 1) -> Iterator[str]:
    """In the order of the seeds."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=be_quiet) as pool:
        yield from pool.map(partial(fingerprint, kind), seeds, chunksize=5)


def read() -> dict[str, list[str]]:
    """By kind, those of the seeds from 0 on."""
    kinds: dict[str, list[str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return {kind: " ".join(lines).split() for kind, lines in kinds.items()}


def write(found: dict[str, list[str]]) -> None:
    lines = {
        kind: [" ".join(each[first : first + _A_LINE]) for first in range(0, len(each), _A_LINE)]
        for kind, each in found.items()
    }
    FILE.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--kind", action="append", choices=KINDS, help="this kind alone; may be given again")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    options = parser.parse_args(arguments)
    kept = read() if FILE.exists() else {}
    for kind in options.kind or KINDS:
        began = time.monotonic()
        kept[kind] = list(fingerprints(kind, range(options.seeds), options.jobs))
        print(f"{kind}: {options.seeds} runs in {time.monotonic() - began:.0f} s", flush=True)
        for seed in (seed for seed, found in enumerate(kept[kind]) if found == FAILED):
            print(f"{kind}: the run of seed {seed} broke a promise", flush=True)
        write({kind: kept[kind] for kind in KINDS if kind in kept})


if __name__ == "__main__":
    main()
