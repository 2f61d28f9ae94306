"""`drayd up` and `drayd broker`: a node, until a signal stops it.

`up` starts one broker in this process (`daemons/broker/process.py`) or several as children
(`daemons/supervisor/fleet.py`), and beside them what `daemons/supervisor/children.py` lists.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from dray.cli.options import (
    BrokerIdOption,
    ConfigOption,
    DataDirOption,
    HttpOption,
    ListenOption,
    RunsOption,
    client_security,
    load_config,
)
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.process import FileLock
from dray.daemons.broker.process import serve
from dray.daemons.config import Settings
from dray.daemons.supervisor.fleet import serve_fleet
from dray.kafka.client.properties import PLAINTEXT

BrokersOption = Annotated[
    int,
    typer.Option(
        "--brokers",
        "-n",
        min=1,
        max=64,
        metavar="N",
        help="How many brokers to start, each a process of its own. The ports and ids of the further ones "
        "count up from those of the first.",
    ),
]


def up(
    *,
    data_dir: DataDirOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    config: ConfigOption = None,
    broker_id: BrokerIdOption = None,
    brokers: BrokersOption = 1,
    compactor: Annotated[
        bool | None,
        typer.Option(
            "--compactor/--no-compactor",
            help="Run a compactor too, which makes tables of the topics. \\[as compaction.enabled says]",
            show_default=False,
        ),
    ] = None,
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Run no console beside the brokers.")
    ] = False,
    console: Annotated[
        str | None,
        typer.Option(
            "--console",
            metavar="HOST:PORT",
            help="Where the console is, on this machine. \\[127.0.0.1:9640]",
            show_default=False,
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="How the console connects to the brokers: a properties file of Kafka's clients. It uses the "
            "first of broker.listeners with that security.protocol.",
            show_default=False,
        ),
    ] = None,
    runs: RunsOption = None,
) -> None:
    """Start everything on this machine: brokers, embedded metadata, objects in local files.

    Nothing needs to be set up before. Stop it with Ctrl-C; the data stays in the data directory.

    A broker uses one core. With [bold]--brokers 3[/] there are three, at 127.0.0.1:9092, 9093 and 9094, with
    HTTP at 9644, 9645 and 9646: a cluster on one machine. Clients may start at any of them. One that dies is
    started again, and its clients go on with the others.

    Recent records stay in memory: an eighth of it, and 512 MiB at most for all brokers together.
    [bold]log.tail_cache_bytes[/] says otherwise, for each of them.

    Where Java 17 and the pipeline's packages are there ([bold]make setup-pipeline[/]), a compactor runs as
    well, and every topic is an Iceberg table a few minutes later.

    The console connects as any client does: [bold]--command-config[/] says how, where clients have to log in.

    [dim]Examples:[/]

    drayd up

    drayd up --brokers 3

    drayd up --data-dir /var/lib/dray --listen 127.0.0.1:9093 --http off
    """
    loaded = load_config(
        config,
        data_dir,
        listen=listen,
        http=http,
        broker_id=broker_id,
        compactor=compactor,
        console=False if no_console else None,
        console_listen=console,
        console_command_config=command_config,
        console_runs=runs,
    )
    settings = console_connected(loaded.settings)
    lock, banner = _directory_lock(settings), sys.stdout.isatty()
    if brokers > 1:
        serve_fleet(settings, brokers, config, lock, banner=banner, again=loaded.again)
    else:
        serve(settings.for_one_of(1), lock, banner=banner, again=loaded.again, compacts=True, config=config)


def broker(
    *,
    data_dir: DataDirOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    config: ConfigOption = None,
    broker_id: BrokerIdOption = None,
) -> None:
    """Start one broker, for service managers: it only logs, and stops gracefully on SIGTERM.

    Several brokers may share the same stores, each with its own id and addresses.

    [dim]Example:[/] drayd broker --config /etc/dray.yaml --broker-id 3
    """
    loaded = load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id)

    serve(loaded.settings, _broker_lock(loaded.settings), banner=False, again=loaded.again)


def console_connected(settings: Settings) -> Settings:
    """With the listener that the console connects to: the one named, or the first with the protocol of its
    properties. Settings that do not fit together are one line, before anything is started."""
    console, listeners = settings.console, settings.broker.listeners
    file = console.command_config
    if console.listener is not None or (file is None and settings.broker.listen is not None):
        return settings
    protocol = PLAINTEXT if file is None else client_security(Path(file)).protocol
    name = next((each for each, at in listeners.items() if at.protocol == protocol and at.port), None)
    if name is None and protocol != PLAINTEXT:
        raise Failure(
            f"--command-config = {console.command_config!r}: has security.protocol = {protocol}, and none of "
            "broker.listeners with a port of its own",
            USAGE,
        )
    return replace(settings, console=replace(console, listener=name))


def _directory_lock(settings: Settings) -> FileLock:
    directory = settings.data_dir
    return FileLock(
        Path(directory) / "lock",
        lambda holder: (
            f"drayd is already running on {directory} ({holder}): stop it, or choose another --data-dir"
        ),
    )


def _broker_lock(settings: Settings) -> FileLock | None:
    """Brokers share a directory, but not an id. With `auto`, the metadata store gives out the ids."""
    number = settings.broker.id
    if number is None:
        return None
    return FileLock(
        Path(settings.data_dir) / f"broker-{number}.lock",
        lambda holder: (
            f"broker {number} is already running on {settings.data_dir} ({holder}): "
            "stop it, or choose another --broker-id"
        ),
    )
