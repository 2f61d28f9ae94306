"""`drayd compactor`: the process that turns the log into files and tables."""

from __future__ import annotations

from typing import Annotated

import typer

from dray.cli.options import ConfigOption, DataDirOption, load_config
from dray.daemons.compactor.process import compact


def compactor(
    *,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Seal and compact everything there is, whatever its age, then end. For cron and for tests.",
        ),
    ] = False,
    spark_master: Annotated[
        str | None,
        typer.Option(
            "--spark-master",
            metavar="URL",
            help="Spark's master: local\\[*], spark://..., yarn, k8s://..., or sc://... for Connect. Under "
            "spark-submit the session is there already, and is used.",
            show_default=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Where /healthz, /readyz and /metrics are served, such as 127.0.0.1:9643. \\[off]",
            show_default=False,
        ),
    ] = None,
    data_dir: DataDirOption = None,
    config: ConfigOption = None,
) -> None:
    """Compact the log into Parquet files, and commit those to the topics' Iceberg tables, on Spark.

    It runs beside the brokers, on the same stores and with the same config; [bold]drayd up[/] starts one by
    itself. Any number of them may run, and any may be killed: what one left half done, another carries on.

    Needs Java 17 or newer, and the pipeline's packages ([bold]make setup-pipeline[/]).

    [dim]Examples:[/]

    drayd compactor --config /etc/dray.yaml

    drayd compactor --once --data-dir ./dray-data
    """
    loaded = load_config(config, data_dir, spark_master=spark_master, compactor_http=http)

    compact(loaded.settings, once=once, again=loaded.again)
