"""`drayd config`: the effective config, whether it can be used, and the reference page."""

from __future__ import annotations

from typing import Annotated

import typer

from dray.cli.options import (
    BrokerIdOption,
    ConfigOption,
    DataDirOption,
    HttpOption,
    ListenOption,
    load_config,
)
from dray.daemons.config.render import reference as reference_page
from dray.daemons.config.render import show as show_config

app = typer.Typer(
    help="Look at the configuration: defaults, then a YAML file, then DRAY_... variables, then flags.",
    no_args_is_help=True,
)


@app.command("show")
def show(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    broker_id: BrokerIdOption = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value came from.")] = False,
) -> None:
    """Print the effective config as YAML, secrets masked. The output is itself a config file.

    [dim]Example:[/] drayd config show --config dray.yaml --origin
    """
    print(
        show_config(load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id), origin),
        end="",
    )


@app.command("check")
def check(
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    broker_id: BrokerIdOption = None,
) -> None:
    """Look whether a process could start with this config, and start none: exit code 2 and a line if not.

    Stores, certificates and other files are not looked at.

    [dim]Example:[/] drayd config check --config dray.yaml
    """
    from dray.daemons.broker.process import check_settings

    check_settings(load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id).settings)
    print("a process can start with this config")


@app.command("reference")
def reference() -> None:
    """Print every setting, its default and what is allowed, as Markdown (docs/configuration.md)."""
    print(reference_page(), end="")
