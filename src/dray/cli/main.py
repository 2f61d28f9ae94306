"""The entry point: the tree of commands, and the one place where a failure becomes a line and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any, Final

import typer

from dray.cli.lazy import CommandEntry, LazyGroup
from dray.daemon.failures import Failure

RUN: Final = "Run"
MANAGE: Final = "Manage"


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
        "admin",
        "app",
        "Manage topics and groups, and look at the cluster. Speaks the Kafka protocol, so it works on Apache "
        "Kafka too.",
        MANAGE,
    ),
    "config": CommandEntry(
        "config",
        "app",
        "Look at the configuration: defaults, then a YAML file, then DRAY_... variables, then flags.",
        MANAGE,
    ),
    "migrate": CommandEntry(
        "migrate",
        "app",
        "Bring topics of Kafka here: from a running cluster, or from what one left in tiered storage.",
        MANAGE,
    ),
    "query": CommandEntry(
        "query", "query", "Ask the topics' tables with SQL: a topic's name is a table's name.", MANAGE
    ),
    "simulate": CommandEntry(
        "simulate",
        "simulate",
        "Run simulated clusters, each from one seed, until they are done, time is up, or a promise is "
        "broken.",
        MANAGE,
    ),
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


class RootGroup(LazyGroup):
    entries = COMMANDS


def load_command(name: str) -> Any:
    """The command itself, its module imported."""
    return COMMANDS[name].load(name)


app = typer.Typer(
    name="drayd",
    cls=RootGroup,
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
