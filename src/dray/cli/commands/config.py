"""`drayd config`: the effective config, and the reference page. Also how every command loads it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dray.daemon.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.config import Loaded

app = typer.Typer(
    help="Look at the configuration: defaults, then a YAML file, then DRAY_... variables, then flags.",
    no_args_is_help=True,
)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="DRAY_CONFIG", metavar="FILE", help="YAML config file.", show_default=False
    ),
]
DataDirOption = Annotated[
    str | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Where this process keeps its files. \\[./dray-data]",
        show_default=False,
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT",
        help="Where Kafka clients connect. \\[127.0.0.1:9092]",
        show_default=False,
    ),
]
HttpOption = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Where /healthz, /readyz and /metrics are served, or 'off'. \\[127.0.0.1:9644]",
        show_default=False,
    ),
]
BrokerIdOption = Annotated[
    str | None,
    typer.Option(
        "--broker-id", metavar="ID", help="The broker's id, or 'auto'. \\[auto]", show_default=False
    ),
]


def load_config(
    file: Path | None,
    data_dir: str | None = None,
    *,
    listen: str | None = None,
    http: str | None = None,
    broker_id: str | None = None,
    spark_master: str | None = None,
    compactor: bool | None = None,
    compactor_http: str | None = None,
) -> Loaded:
    """The effective config of a command, or its one-line failure."""
    from dray.config import ConfigError, FlagValue, load

    given: Iterable[tuple[str, str, str | None]] = (
        ("--data-dir", "data_dir", data_dir),
        ("--listen", "broker.listen", listen),
        ("--http", "broker.http", http),
        ("--http", "compaction.http", compactor_http),
        ("--broker-id", "broker.id", broker_id),
        ("--spark-master", "spark.master", spark_master),
        ("--compactor", "compaction.enabled", None if compactor is None else str(compactor).lower()),
    )
    flags = [FlagValue(flag, key, text) for flag, key, text in given if text is not None]
    try:
        return load(file, os.environ, flags)
    except ConfigError as error:
        raise Failure(str(error), USAGE) from error


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
    from dray.config.render import show as show_config

    print(
        show_config(load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id), origin),
        end="",
    )


@app.command("reference")
def reference() -> None:
    """Print every setting, its default and what is allowed, as Markdown (docs/configuration.md)."""
    from dray.config.render import reference as reference_page

    print(reference_page(), end="")
