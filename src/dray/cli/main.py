"""The entry point: the tree of commands, and the one place where a failure becomes a line and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

import typer

from dray.cli.lazy import CommandEntry, LazyGroup
from dray.daemons.assembly.failures import Failure

RUN: Final = "Run"
MANAGE: Final = "Manage"
SIMULATION: Final = "dray_simulation"


COMMANDS: Final = {
    "up": CommandEntry(
        "up",
        "up",
        "Start everything on this machine: brokers, embedded metadata, objects in local files.",
        RUN,
    ),
    "broker": CommandEntry(
        "up",
        "broker",
        "Start one broker, for service managers: it only logs, and stops gracefully on SIGTERM.",
        RUN,
    ),
    "compactor": CommandEntry(
        "compactor",
        "compactor",
        "Compact the log into Parquet files, and commit those to the topics' Iceberg tables, on Spark.",
        RUN,
    ),
    "migrator": CommandEntry(
        "migrator",
        "migrator",
        "Move topics here that Kafka clusters still own: mirror them, and switch them when it is asked for.",
        RUN,
    ),
    "console": CommandEntry(
        "console", "console", "Show a cluster in the browser: Dray's, or any Kafka's with --bootstrap.", RUN
    ),
    "demo": CommandEntry(
        "demo",
        "demo",
        "All of Dray in a minute or two: a broker, a stream of orders, a consumer, a table.",
        RUN,
    ),
    "admin": CommandEntry(
        "admin.group",
        "app",
        "Manage topics and groups, and look at the cluster. topics, groups, cluster, user, acl and quota "
        "speak the Kafka protocol, and work on Apache Kafka too; the others work on Dray's stores.",
        MANAGE,
    ),
    "backup": CommandEntry(
        "backup",
        "backup",
        "Copy the metadata store, while brokers run, whatever its engine: into the bucket, or a file.",
        MANAGE,
    ),
    "restore": CommandEntry(
        "backup",
        "restore",
        "Say that this metadata store, as it is or with a backup, is the cluster from now on.",
        MANAGE,
    ),
    "capacity": CommandEntry(
        "capacity",
        "command",
        "Say what a load takes: brokers, objects, metadata, storage, and the price, with all assumptions.",
        MANAGE,
    ),
    "config": CommandEntry(
        "config",
        "app",
        "Look at the configuration: defaults, then a YAML file, then DRAY_... variables, then flags.",
        MANAGE,
    ),
    "migrate": CommandEntry(
        "migrate.attach",
        "app",
        "Bring topics of Kafka here: from a running cluster, or from what one left in tiered storage.",
        MANAGE,
    ),
    "query": CommandEntry("query", "query", "Ask topics with SQL: a topic's name is a table's name.", MANAGE),
    "top": CommandEntry(
        "top",
        "top",
        "Watch a cluster in the terminal: brokers, topics and their traffic, groups and their lag.",
        MANAGE,
    ),
    "version": CommandEntry(
        "version", "version", "Print the version of Dray, and of the Python under it.", MANAGE
    ),
}
if find_spec(SIMULATION):  # a package of its own, for those who work on Dray
    COMMANDS["simulate"] = CommandEntry(
        "command",
        "simulate",
        "Run simulated clusters, each from one seed, until they are done, time is up, or a promise is "
        "broken.",
        MANAGE,
        SIMULATION,
    )


OLD_SPELLINGS: Final = {"--yes": ["--execute"], "--look": []}
"""Options of earlier builds, and what stands for them now."""


class RootGroup(LazyGroup):
    entries = COMMANDS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for old in OLD_SPELLINGS.keys() & set(args):
            new = "".join(OLD_SPELLINGS[old]) or "what is done without an option"
            print(f"drayd: {old} is {new} now", file=sys.stderr)
        return super().parse_args(ctx, [new for old in args for new in OLD_SPELLINGS.get(old, [old])])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            if place := _argument_meant(error):
                error.message += f": the {place} is given without it"
            raise


def _argument_meant(error: typer.TyperException) -> str | None:
    """The argument that somebody took for an option, as it is one of Kafka's tools (--topic NAME)."""
    option, context = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if option is None or context is None or getattr(error, "possibilities", None):
        return None
    name = option.lstrip("-")
    arguments = [each.name for each in context.command.params if each.param_type_name == "argument"]
    return name if name in arguments or f"{name}s" in arguments else None


def load_command(name: str) -> Any:
    """The command itself, its module imported."""
    return COMMANDS[name].load(name)


app = typer.Typer(
    name="drayd",
    cls=RootGroup,
    help="Dray: a Kafka-compatible streaming system whose brokers keep nothing.\n\n"
    "Start with [bold]drayd up[/]: a broker on 127.0.0.1:9092 with its data in ./dray-data. "
    "Then any Kafka client works.",
    epilog="Exit codes: 0 done, or only shown for lack of --execute; 1 it failed while running, or cannot be "
    "done; 2 the command line or the config is wrong.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Makes a group of the app though it registers no command itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    # Records and the keys of users lie in what is written: not for other accounts of the machine.
    os.umask(0o077)
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or not {"-h", "--help"}.isdisjoint(given):
        _load_help()
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="drayd")
    except Failure as failure:
        print(f"drayd: {failure}", file=sys.stderr)
        sys.exit(failure.code)
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _load_help() -> None:
    """Typer's help brings Markdown and tracebacks, which are not drawn here: a third of its modules. In their
    place stand empty ones, for as long as it is loaded."""
    empty = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
    for module, name in empty.items():
        if module in sys.modules:
            return
        sys.modules[module] = stand_in = ModuleType(module)
        setattr(stand_in, name, type(name, (), {}))
    try:
        import_module("typer.rich_utils")
    finally:
        for module in empty:
            del sys.modules[module]


if __name__ == "__main__":
    main()
