"""The entry point: the tree of commands, and the one place where a failure becomes a line and a code.

A command's module is imported when the command is run, so that `drayd --help` is instant.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from dray.daemon.failures import Failure

RUN: Final = "Run"
MANAGE: Final = "Manage"


class CommandEntry(NamedTuple):
    """A command before it is imported: its panel and its line in the list."""

    module: str
    attribute: str  # the function of a command, or the Typer app of a group
    panel: str
    line: str


COMMANDS: Final = {
    "up": CommandEntry(
        "up",
        "up",
        RUN,
        "Start everything on this machine: brokers, embedded metadata, objects in local files.",
    ),
    "broker": CommandEntry(
        "up",
        "broker",
        RUN,
        "Start one broker, for service managers: it only logs, and stops gracefully on SIGTERM.",
    ),
    "compactor": CommandEntry(
        "compactor",
        "compactor",
        RUN,
        "Compact the log into Parquet files, and commit those to the topics' Iceberg tables, on Spark.",
    ),
    "migrator": CommandEntry(
        "migrator",
        "migrator",
        RUN,
        "Move topics here that Kafka clusters still own: mirror them, and switch them when it is asked for.",
    ),
    "console": CommandEntry(
        "console", "console", RUN, "Show a cluster in the browser: Dray's, or any Kafka's with --bootstrap."
    ),
    "demo": CommandEntry(
        "demo",
        "demo",
        RUN,
        "All of Dray in a minute or two: a broker, a stream of orders, a consumer, a table.",
    ),
    "admin": CommandEntry(
        "admin",
        "app",
        MANAGE,
        "Manage topics and groups, and look at the cluster. Speaks the Kafka protocol, so it works on Apache "
        "Kafka too.",
    ),
    "config": CommandEntry(
        "config",
        "app",
        MANAGE,
        "Look at the configuration: defaults, then a YAML file, then DRAY_... variables, then flags.",
    ),
    "migrate": CommandEntry(
        "migrate",
        "app",
        MANAGE,
        "Bring topics of Kafka here: from a running cluster, or from what one left in tiered storage.",
    ),
    "query": CommandEntry(
        "query", "query", MANAGE, "Ask the topics' tables with SQL: a topic's name is a table's name."
    ),
    "simulate": CommandEntry(
        "simulate",
        "simulate",
        MANAGE,
        "Run simulated clusters, each from one seed, until they are done, time is up, or a promise is "
        "broken.",
    ),
    "top": CommandEntry(
        "top",
        "top",
        MANAGE,
        "Watch a cluster in the terminal: brokers, topics and their traffic, groups and their lag.",
    ),
    "version": CommandEntry(
        "version", "version", MANAGE, "Print the version of Dray, and of the Python under it."
    ),
}


class LazyGroup(TyperGroup):
    """Knows its commands by name, and imports only the one that is run."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer's signature
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=entry.line, rich_help_panel=entry.panel)
        return load_command(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def load_command(name: str) -> Any:
    """The command itself, its module imported."""
    entry = COMMANDS[name]
    found = getattr(import_module(f"dray.cli.commands.{entry.module}"), entry.attribute)
    if not isinstance(found, typer.Typer):
        lone = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
        lone.command(name)(found)
        found = lone
    found._add_completion = False  # the root has it
    command = get_command(found)
    command.name = name
    return command


app = typer.Typer(
    name="drayd",
    cls=LazyGroup,
    help="Dray: a Kafka-compatible streaming system whose brokers keep nothing.\n\n"
    "Start with [bold]drayd up[/]: a broker on 127.0.0.1:9092 with its data in ./dray-data. "
    "Then any Kafka client works.",
    epilog="Exit codes: 0 done, 1 it failed while running, 2 the command line or the config is wrong.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root() -> None:
    """Makes a group of the app though it registers no command itself."""


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="drayd")
    except Failure as failure:
        print(f"drayd: {failure}", file=sys.stderr)
        sys.exit(failure.code)
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Python's flush at exit must not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
