"""`drayd console`: a cluster in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dray.cli.options import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    CommandConfigOption,
    ConfigOption,
    DataDirOption,
    RunsOption,
    client_security,
    load_config,
    parse_bootstrap,
)
from dray.daemons.console.process import serve_console


def console(
    *,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    command_config: CommandConfigOption = None,
    stores: Annotated[
        bool,
        typer.Option(
            "--stores/--no-stores",
            help="Read the cluster's own stores too, as the config names them: where every offset lies.",
        ),
    ] = False,
    writable: Annotated[
        bool,
        typer.Option("--writable", help="Let people change things. Without, no address changes anything."),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="Where browsers connect. \\[127.0.0.1:9640]",
            show_default=False,
        ),
    ] = None,
    runs: RunsOption = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show a cluster in the browser: Dray's, or any Kafka's with --bootstrap.

    With nothing but [bold]--bootstrap[/] it works on any Kafka. With [bold]--stores[/] it also reads the
    metadata store of a Dray cluster, and shows where every offset lies, and the tables. It only reads, unless
    told [bold]--writable[/]. With [bold]console.auth: sasl[/] in the config people log in with their
    own user of the cluster, with [bold]oidc[/] at an OpenID provider. [bold]drayd up[/] starts one by itself.

    [dim]Examples:[/]

    drayd console --bootstrap kafka.example:9092

    drayd console --stores --config /etc/dray.yaml
    """
    loaded = load_config(
        config, data_dir, console_listen=listen, console_command_config=command_config, console_runs=runs
    )
    settings = loaded.settings
    security = client_security(_path(settings.console.command_config))
    addresses = parse_bootstrap(bootstrap)
    serve_console(settings, addresses, security, stores=stores, writable=writable, again=loaded.again)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
