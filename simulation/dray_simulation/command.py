"""`drayd simulate`: whole clusters on simulated time, in bad weather, held to every promise."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dray.cli.output import print_json
from dray.daemons.assembly.failures import USAGE, Failure
from dray_simulation.campaign import CampaignCoverage, be_quiet, campaign, fresh_seed
from dray_simulation.cluster.run import RecordedRun, record_run
from dray_simulation.kinds import EVERY_KIND, KINDS, RunKind, kind_of
from dray_simulation.shrink import fails, shrink


def simulate(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs.")] = 100,
    minutes: Annotated[float, typer.Option(min=0.01, help="Start no more runs after so long.")] = 60.0,
    first: Annotated[
        int | None, typer.Option("--from", min=0, help="The first seed; any if not given.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this one seed, and nothing else.")] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=1024, help="Processes to run on.")] = 1,
    trace: Annotated[int, typer.Option(min=0, help="Lines of the trace to print of a failure.")] = 60,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help=f"Only runs of this kind; repeatable. One of {', '.join(EVERY_KIND)}.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="With --seed: print the run as JSON, who did what when.")
    ] = False,
) -> None:
    """Run simulated clusters, each from one seed, until they are done, time is up, or a promise is broken.

    Three real brokers and twelve clients share a simulated network, object store and metadata store that fail
    in every way that real ones do. A failure is shrunk to what it needs, and can be replayed by its seed.

    Runs are of nine kinds, in turn: [bold]weather[/] (stores, network and processes that fail),
    [bold]clocks[/] (a machine whose clock is wrong, or jumps), [bold]builds[/] (two builds, one of which
    cannot read what the other stores), [bold]ids[/] (brokers that take the lowest id that is free),
    [bold]keys[/] (a topic that is compacted by key all the time, by several compactors), [bold]limits[/]
    (narrow engines, and mistakes that no code foresees), [bold]moves[/] (a live Kafka topic that moves here
    while clients write to it), [bold]revocations[/] (users and ACLs that come and go, and who is served
    until when) and [bold]lies[/] (an object store whose answers are wrong: damaged, short, missing).

    [dim]Examples:[/]

    drayd simulate --seeds 1000 --minutes 5

    drayd simulate --kind clocks --kind builds --jobs 4
    """
    chosen = tuple(kinds or EVERY_KIND)
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        raise Failure(f"--kind = {unknown[0]!r}: must be one of {', '.join(EVERY_KIND)}", USAGE)
    if json:
        if seed is None:
            raise Failure("--json prints one run: give its --seed", USAGE)
        be_quiet()
        _print_run(record_run(seed, kind_of(seed, chosen).choose(seed)))
        return
    if seed is not None:
        wanted: Sequence[int] = [seed]
    else:
        base = fresh_seed() if first is None else first
        wanted = range(base, base + seeds)
    console = _console()
    console.print(f"seeds {wanted[0]} to {wanted[-1]}, on {jobs} processor{'s' if jobs > 1 else ''}")
    with _Bar(console, len(wanted)) as bar:
        coverage = campaign(wanted, seconds=minutes * 60, jobs=jobs, progress=bar.show, kinds=chosen)
    _print_coverage(console, coverage)
    if coverage.failed:
        [failed] = coverage.failed
        kind = kind_of(failed, chosen)
        _explain(console, failed, kind, trace)
        raise Failure(
            f"a promise was broken; see it again with: drayd simulate --seed {failed} --kind {kind.name}"
        )


def _print_run(recorded: RecordedRun) -> None:
    """Print a run, and fail as a run that is not printed does."""
    steps = [{"at": step.at, "who": step.who, "what": step.what} for step in recorded.steps]
    print_json(
        {
            "seed": recorded.seed,
            "broken": recorded.broken,
            "seconds": recorded.seconds,
            "fingerprint": recorded.fingerprint,
            "counts": dict(recorded.counts),
            "faults": dict(recorded.faults),
            "steps": steps,
        }
    )
    if recorded.broken is not None:
        raise Failure(f"a promise was broken: {recorded.broken}")


def _console() -> Console:
    return Console(highlight=False)


class _Bar:
    """How far the runs have come."""

    def __init__(self, console: Console, total: int) -> None:
        columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(
            *columns, TextColumn("{task.fields[speed]}"), console=console, disable=not console.is_terminal
        )
        self._task = self._progress.add_task("runs", total=total, speed="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, coverage: CampaignCoverage) -> None:
        speed = f"{coverage.operations_per_second:,.0f} operations/s a processor"
        self._progress.update(self._task, completed=coverage.seeds, speed=speed)


def _print_coverage(console: Console, coverage: CampaignCoverage) -> None:
    counts, operations = coverage.counts, coverage.by_kind
    console.print(
        f"{coverage.seeds} runs, {coverage.operations:,} operations "
        f"({coverage.operations_per_second:,.0f}/s a processor), {coverage.faults.total():,} faults, "
        f"{counts['rebalances']:,} rebalances, {counts['index swaps']:,} index swaps"
    )
    console.print(f"kinds: {_listed(coverage.kinds)}")
    console.print(f"operations: {_listed(operations)}")
    console.print(f"faults: {_listed(coverage.faults)}")
    shown = {what: count for what, count in counts.items() if not what.startswith("! ")}
    console.print(f"seen: {_listed(shown)}")


def _listed(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{what.removesuffix('Request')} {count:,}" for what, count in ordered)


def _explain(console: Console, seed: int, kind: RunKind, trace: int) -> None:
    """Run it again, find out how little it takes, and tell."""
    be_quiet()
    failure = fails(kind.choose(seed))
    if failure is None:
        console.print(f"seed {seed} fails in another process only: this is a fault of the simulation itself")
        return
    console.print(f"seed {seed}, a run of the kind {kind.name}, failed: {failure.__cause__}")
    with console.status("shrinking"):
        shrunk = shrink(failure)
    console.print(f"the least that fails, after {shrunk.attempts} attempts:")
    for line in shrunk.describe():
        console.print(f"  {line}", markup=False)
    cause = shrunk.failure.__cause__
    console.print(f"it ends with: {cause!r}", markup=False)
    for line in shrunk.failure.trace[-trace:] if trace else []:
        console.print(f"  {line}", markup=False)
    if cause is not None and trace:
        console.print("".join(traceback.format_exception(cause)).rstrip(), markup=False)
