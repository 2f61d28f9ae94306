"""`drayd admin level`: which formats the cluster may store, who reads them, and the way back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dray.broker.cluster.levels import BASE, LEVELS, NEWEST
from dray.cli.lazy import LazyModule
from dray.cli.options import ConfigOption, DataDirOption, ExecuteOption, JsonOption, load_config, to_be_done
from dray.cli.output import print_json, print_table, say
from dray.daemons.assembly.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.daemons.recovery import levels
    from dray.daemons.recovery.levels import LevelView
else:
    levels = LazyModule("dray.daemons.recovery.levels")

NOT_SAID = "it has not said"
_HOW = "raise --config FILE, or lower --to N --config FILE"

app = typer.Typer(
    help="Show the cluster's level: which formats it may store. It rises by itself a day after every process "
    "can read the next one; it is to be lowered before one goes back to an older build.",
    invoke_without_command=True,
)


@app.callback()
def show(
    context: typer.Context,
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    json: JsonOption = False,
) -> None:
    """Show the level, what each process reads, and what it would take to go down.

    [dim]Example:[/] drayd admin level --config /etc/dray.yaml
    """
    if context.invoked_subcommand is not None:
        if "COMMANDLINE" in {
            getattr(context.get_parameter_source(each), "name", "") for each in context.params
        }:
            raise Failure(f"give the options behind the command: drayd admin level {_HOW}", USAGE)
        return
    view = levels.look_at_level(load_config(config, data_dir).settings)
    if json:
        print_json(_as_plain(view))
        return
    print(f"cluster {view.cluster_id} is at level {view.level.number}{_beside(view)}")
    print_table(["level", "allows", "here"], [(*each, _here(each.number, view)) for each in LEVELS])
    print_table(
        ["process", "reads levels up to", "writes"],
        [
            (each.name, each.reads or NOT_SAID, "" if each.writes is None else f"level {each.writes}")
            for each in view.readers
        ],
    )
    _print_way_down(view)


@app.command("raise")
def raise_(*, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Raise the level at once, to the highest that every process reads. It ends a lowering too.

    [dim]Example:[/] drayd admin level raise --config /etc/dray.yaml
    """
    level = levels.raise_level(load_config(config, data_dir).settings)
    print(f"the cluster is at level {level.number}: builds that do not read it no longer start")


@app.command("lower")
def lower(
    *,
    to: Annotated[int, typer.Option("--to", metavar="N", help="The level that the older build reads.")],
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    execute: ExecuteOption = False,
) -> None:
    """Undo what is stored above a level, so that builds which read no more can be started.

    Brokers go on serving, and do the work: they stop writing those formats, and rewrite what is left. Ended
    in the middle, it goes on from there when it is run again; [bold]drayd admin level raise[/] takes it back.

    [dim]Example:[/] drayd admin level lower --to 1 --config /etc/dray.yaml --execute
    """
    settings = load_config(config, data_dir).settings
    view = levels.look_at_level(settings)
    levels.check_lowering(view.level, to)
    _print_way_down(view, to)
    if not to_be_done(execute):
        return
    levels.lower_level(settings, to, say)
    print(f"the cluster is at level {to}, and stays there until drayd admin level raise")
    print(f"it is safe to start builds that read level {to} now, {_but(view)}")


def _beside(view: LevelView) -> str:
    level = view.level
    if level.ceiling is not None:
        return ", and stays there" if level.ceiling == level.number else f", on the way to {level.ceiling}"
    if level.next is not None:
        return f": every process reads level {level.next}, to which it is raised by itself a day later"
    return ""


def _here(number: int, view: LevelView) -> str:
    if number <= view.level.writes:
        return "yes"
    behind = [each.name for each in view.readers if not each.can_read(number)]
    return f"no: not read by {', '.join(behind)}" if behind else "no: read by all"


def _print_way_down(view: LevelView, to: int = BASE) -> None:
    if to < view.level.number:
        counts = [(name.replace("_", " "), count) for name, count in asdict(view.carried).items()]
        print_table([f"to be undone for level {to}", "now"], counts)
    if view.kept:
        print("no command undoes these, at any level; a build that does not read one refuses its topic:")
        rows = [(what, levels.READ_SINCE[what], ", ".join(topics)) for what, topics in view.kept.items()]
        print_table(["stored", "read by", "topics"], rows)


def _but(view: LevelView) -> str:
    return "if they read what is listed above" if view.kept else "whichever: nothing else is stored"


def _as_plain(view: LevelView) -> dict[str, Any]:
    return {
        "cluster_id": view.cluster_id,
        "level": view.level.number,
        "ceiling": view.level.ceiling,
        "next": view.level.next,
        "next_since_ms": view.level.since_ms,
        "newest": NEWEST,
        "read_by_all": view.read_by_all,
        "processes": [
            {"name": each.name, "reads": each.reads, "writes": each.writes} for each in view.readers
        ],
        "to_be_undone": asdict(view.carried),
        "kept": {what: list(topics) for what, topics in view.kept.items()},
    }
