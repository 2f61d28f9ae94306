"""Run the model by hand.

python -m tests.model 10000                    every rule in place
python -m tests.model 1000 no-fence            without one
python -m tests.model 300 --all                without each, one after the other
python -m tests.model 10000 --carries          every rule in place, with carried appends and packers
python -m tests.model 10000 --ahead            every rule in place, with marks staged ahead
python -m tests.model 10000 --cleans           every rule in place, with compaction by key
python -m tests.model 10000 --several          every rule in place, with files written ahead of their jobs
"""

from __future__ import annotations

import argparse

from tests.model.rules import MUTATIONS
from tests.model.schedule import STEPS, campaign


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model", description="Random schedules of the commit protocol."
    )
    parser.add_argument("schedules", type=int)
    parser.add_argument("without", nargs="*", choices=[*MUTATIONS, []], help="rules to take out")
    parser.add_argument("--all", action="store_true", help="take out each rule in turn")
    parser.add_argument("--carries", action="store_true", help="with carried appends and packers")
    parser.add_argument("--ahead", action="store_true", help="with marks staged ahead of their objects")
    parser.add_argument("--cleans", action="store_true", help="with compaction by key")
    parser.add_argument("--several", action="store_true", help="with files written ahead of their jobs")
    parser.add_argument("--steps", type=int, default=STEPS, help="of a schedule")
    parser.add_argument("--stop-at", type=int, help="so many broken schedules of a rule")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.seed, options.seed + options.schedules)
    for without in [[name] for name in MUTATIONS] if options.all else [options.without]:
        result = campaign(
            seeds,
            without,
            options.stop_at,
            options.steps,
            carries=options.carries or None,
            ahead=options.ahead or None,
            cleans=options.cleans or None,
            several=options.several or None,
        )
        kinds = [f"{kind} ({n}, first {result.first[kind]})" for kind, n in result.broken.most_common()]
        broken = f"{result.broken.total():5} of {result.schedules} broken: {', '.join(kinds) or 'none'}"
        print(f"{' '.join(without) or 'every rule in place':20} {broken}", flush=True)


main()
