"""`drayd demo`: all of Dray in a minute or two, in a directory that is thrown away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dray.cli.demo_run import run


def demo(
    *,
    seconds: Annotated[
        int, typer.Option("--seconds", min=2, max=3600, help="How long to produce.", metavar="N")
    ] = 60,
    rate: Annotated[
        int, typer.Option("--rate", min=1, max=200_000, help="Records per second, more or less.", metavar="N")
    ] = 5000,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep",
            metavar="DIR",
            help="Keep everything in this directory, which must be empty or new, to look at it afterwards.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """All of Dray in a minute or two: a broker, a stream of orders, a consumer, a table.

    A broker is started, orders are produced for a minute and consumed as they come, Spark compacts them
    into an Iceberg table, and the table is asked. Everything is in a temporary directory, on free ports.

    Needs Java 17 or newer, and the pipeline's packages ([bold]make demo[/] sets them up).

    [dim]Example:[/] drayd demo --seconds 20 --keep ./demo
    """
    run(seconds=seconds, rate=rate, keep=keep)
