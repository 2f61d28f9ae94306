"""`drayd up` and `drayd broker`: a node, for as long as nobody asks it to stop."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from dray.cli.process import FileLock
    from dray.config import Settings


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
    from dray.cli.serving import serve

    serve(settings, _directory_lock(settings), banner=sys.stdout.isatty())


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
    from dray.cli.serving import serve

    serve(settings, _broker_lock(settings), banner=False)


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
