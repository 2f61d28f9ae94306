"""`drayd migrator`: the process that mirrors linked topics, and switches them when it is asked to."""

from __future__ import annotations

from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, load_config
from dray.daemons.migrator.process import migrate


def migrator(
    *,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where /healthz, /readyz and /metrics are served, such as 127.0.0.1:9642. \\[off]",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Move topics here that Kafka clusters still own: mirror them, and switch them when it is asked for.

    [bold]drayd migrate link[/] and [bold]drayd migrate switch[/] ask for it.

    It runs beside the brokers, on the same stores and with the same config; [bold]drayd up[/] starts one by
    itself where upstream.clusters is set. Any number of them may run, and any may be killed: what one left
    half done, another carries on.

    [dim]Example:[/] drayd migrator --config /etc/dray.yaml --http 127.0.0.1:9642
    """
    loaded = load_config(config, data_dir, migrator_http=http)
    migrate(loaded.settings, loaded.again)
