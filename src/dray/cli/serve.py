"""`drayd up` and `drayd broker`: a node, for as long as nobody asks it to stop."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dray.cli.configuration import (
    BrokerIdOption,
    ConfigOption,
    DataDirOption,
    HttpOption,
    ListenOption,
    load_config,
)
from dray.cli.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.cli.process import FileLock
    from dray.config import Settings
    from dray.node import Node
    from dray.telemetry.logs import LogFormat


def up(
    *,
    data_dir: DataDirOption = None,
    listen: ListenOption = None,
    http: HttpOption = None,
    config: ConfigOption = None,
    broker_id: BrokerIdOption = None,
) -> None:
    """Start everything on this machine: one broker, embedded metadata, objects in local files.

    Nothing needs to be set up before. Stop it with Ctrl-C; the data stays in the data directory.

    [dim]Examples:[/]

    drayd up

    drayd up --data-dir /var/lib/dray --listen 127.0.0.1:9093 --http off
    """
    settings = load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id).settings
    _serve(settings, _directory_lock(settings), banner=sys.stdout.isatty())


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
    settings = load_config(config, data_dir, listen=listen, http=http, broker_id=broker_id).settings
    _serve(settings, _broker_lock(settings), banner=False)


def _directory_lock(settings: Settings) -> FileLock:
    from dray.cli.process import FileLock

    directory = settings.data_dir
    return FileLock(
        Path(directory) / "lock",
        lambda holder: (
            f"drayd is already running on {directory} ({holder}): stop it, or choose another --data-dir"
        ),
    )


def _broker_lock(settings: Settings) -> FileLock | None:
    """Brokers share a directory, but not an id. With `auto`, the metadata store gives out the ids."""
    from dray.cli.process import FileLock

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


def _serve(settings: Settings, lock: FileLock | None, *, banner: bool) -> None:
    from contextlib import nullcontext

    import uvloop

    from dray.cli.process import raise_file_limit, tune_memory

    _check_topic_defaults(settings)
    tune_memory()
    raise_file_limit()
    with lock or nullcontext(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, banner=banner))


def _check_topic_defaults(settings: Settings) -> None:
    """The config knows no topics; the room that does says which of their configs there are."""
    from dray.topics.configs import check_configs
    from dray.topics.errors import TopicError

    try:
        check_configs(settings.topics.defaults)
    except TopicError as error:
        raise Failure(f"topics.defaults = {dict(settings.topics.defaults)}: {error}", USAGE) from error


async def _run(settings: Settings, *, banner: bool) -> None:
    from dray.cli.process import StopSignals, local_machine, settle_garbage_collector
    from dray.cli.stores import open_stores
    from dray.node import Node
    from dray.runtime import SystemRuntime
    from dray.telemetry import configure_logging

    runtime = SystemRuntime()
    configure_logging(_log_format(settings), settings.logging.level, runtime)
    signals = StopSignals(asyncio.get_running_loop())
    stores = await open_stores(settings, runtime)
    node = Node(settings, runtime, stores.metadata, stores.objects, machine=local_machine())
    starting = asyncio.ensure_future(_start(node, settings))
    stopping = asyncio.ensure_future(signals.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if starting.done():
            await starting
            settle_garbage_collector()
            if banner:
                _print_banner(node, settings)
            await stopping
        else:
            starting.cancel()
            await asyncio.wait({starting})
    finally:
        stopping.cancel()
        await node.stop()
        runtime.close()


async def _start(node: Node, settings: Settings) -> None:
    from dray.cluster import BrokerIdTaken
    from dray.metadata.contract import MetadataError
    from dray.objects import ObjectError
    from dray.server import AddressInUse

    try:
        await node.start()
    except AddressInUse as error:
        flag = "--listen" if error.port == settings.broker.listen.port else "--http"
        raise Failure(f"{error}: stop what listens there, or choose another {flag}") from error
    except OSError as error:
        raise Failure(f"cannot listen on {settings.broker.listen}: {error.strerror}") from error
    except BrokerIdTaken as error:
        raise Failure(str(error)) from error
    except MetadataError as error:
        raise Failure(f"the metadata store: {error}") from error
    except ObjectError as error:
        raise Failure(f"the object store: {error}") from error


def _log_format(settings: Settings) -> LogFormat:
    wanted = settings.logging.format
    console = sys.stderr.isatty() if wanted == "auto" else wanted == "console"
    return "console" if console else "json"


def _print_banner(node: Node, settings: Settings) -> None:
    from rich.console import Console

    kafka = f"{node.address[0]}:{node.address[1]}"
    console = Console(highlight=False)
    console.print(f"\n[bold]Dray is up.[/]  Kafka clients connect to [bold cyan]{kafka}[/]")
    if node.http_address is not None:
        http = f"http://{node.http_address[0]}:{node.http_address[1]}"
        console.print(f"  health and metrics  {http}/healthz  {http}/metrics")
    console.print(f"  data                {settings.data_dir}  (broker {node.broker_id})")
    console.print(f"  try it              echo hello | kcat -b {kafka} -t greetings -P")
    console.print(f"                      kcat -b {kafka} -t greetings -C -e")
    console.print("  stop                Ctrl-C\n")
