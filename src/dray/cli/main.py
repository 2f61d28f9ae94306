"""The entry point: the tree of commands, and the one place where a failure becomes a line and a code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dray.cli.commands import admin, bench, compactor, demo, query, simulate
from dray.cli.commands import config as configuration
from dray.cli.commands import up as serve
from dray.daemon.failures import Failure

app = typer.Typer(
    name="drayd",
    help="Dray: a Kafka-compatible streaming system whose brokers keep nothing.\n\n"
    "Start with [bold]drayd up[/]: a broker on 127.0.0.1:9092 with its data in ./dray-data. "
    "Then any Kafka client works.",
    epilog="Exit codes: 0 done, 1 it failed while running, 2 the command line or the config is wrong.",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("up", rich_help_panel="Run")(serve.up)
app.command("broker", rich_help_panel="Run")(serve.broker)
app.command("compactor", rich_help_panel="Run")(compactor.compactor)
app.command("demo", rich_help_panel="Run")(demo.demo)
app.add_typer(admin.app, name="admin", rich_help_panel="Manage")
app.add_typer(configuration.app, name="config", rich_help_panel="Manage")
app.command("query", rich_help_panel="Manage")(query.query)
app.command("bench", rich_help_panel="Manage")(bench.bench)
app.command("simulate", rich_help_panel="Manage")(simulate.simulate)


@app.command("version", rich_help_panel="Manage")
def version(json: Annotated[bool, typer.Option("--json", help="As a JSON object.")] = False) -> None:
    """Print the version of Dray, and of the Python under it."""
    import platform
    from importlib.metadata import version as installed

    if json:
        from dray.cli.output import print_json

        print_json({"dray": installed("dray"), "python": platform.python_version()})
    else:
        print(f"drayd {installed('dray')} (Python {platform.python_version()})")


def main(arguments: Sequence[str] | None = None) -> None:
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="drayd")
    except Failure as failure:
        print(f"drayd: {failure}", file=sys.stderr)
        sys.exit(failure.code)
    except BrokenPipeError:
        # Whoever read our output has seen enough; do not complain again when Python flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
