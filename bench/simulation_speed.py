"""How many client operations of simulated clusters one processor runs per second, oracle and faults included.

    python -m bench.simulation_speed [--seeds N]

Prints processor time, since that is what a busy machine leaves alone, and what the runs held.
"""

from __future__ import annotations

import argparse

from dray_simulation.campaign import campaign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--from", dest="first", type=int, default=0)
    arguments = parser.parse_args()
    coverage = campaign(range(arguments.first, arguments.first + arguments.seeds))
    if coverage.failed:
        raise SystemExit(f"seed {coverage.failed[0]} failed: drayd simulate --seed {coverage.failed[0]}")
    print(f"{coverage.seeds} runs, {coverage.operations:,} operations in {coverage.processor_seconds:.1f} s")
    print(f"{coverage.operations_per_second:,.0f} operations per second of one processor")
    print(
        f"per run: {coverage.operations / coverage.seeds:.0f} operations, "
        f"{coverage.faults.total() / coverage.seeds:.0f} faults, "
        f"{coverage.counts['rebalances'] / coverage.seeds:.1f} rebalances, "
        f"{coverage.counts['index swaps'] / coverage.seeds:.1f} index swaps"
    )


if __name__ == "__main__":
    main()
