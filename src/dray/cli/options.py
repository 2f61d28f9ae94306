"""The options that commands share, and what they lead to: a config, or a connection to a broker."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer

from dray.base.config.kinds import HostPort
from dray.base.runtime import SystemRuntime
from dray.cli.output import say
from dray.daemons.assembly.failures import USAGE, Failure
from dray.kafka.client import ClientError, Cluster, RequestFailed
from dray.kafka.client.properties import ClientSecurity, PropertiesRefused, read_security

if TYPE_CHECKING:
    from dray.daemons.config import LoadedConfig, Settings

T = TypeVar("T")

BootstrapOption = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="DRAY_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Brokers to ask; the first that answers is asked.",
    ),
]
CommandConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="DRAY_COMMAND_CONFIG",
        metavar="FILE",
        help="How to connect: a properties file of Kafka's clients, with security.protocol and the like.",
        show_default=False,
    ),
]
RunsOption = Annotated[
    Path | None,
    typer.Option(
        "--runs",
        metavar="DIR",
        help="Show simulated clusters in the console: files that `drayd simulate --seed N --json` wrote.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
ExecuteOption = Annotated[bool, typer.Option("--execute", help="Do it: without, it is only shown.")]
"""The one habit of all that cannot be taken back."""

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_SECONDS = 60


def ask(bootstrap: str, command_config: Path | None, work: Callable[[Cluster], Awaitable[T]]) -> T:
    """Connect, do it, disconnect; whatever goes wrong on the way is one line."""
    addresses = parse_bootstrap(bootstrap)
    security = client_security(command_config)

    async def run() -> T:
        runtime = SystemRuntime(threads=1)
        try:
            dial = security.dialer("drayd-admin", runtime)
            async with Cluster(addresses, dial, runtime) as cluster:
                return await work(cluster)
        finally:
            runtime.close()

    try:
        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))
    except RequestFailed as error:
        raise Failure(str(error)) from error
    except ClientError as error:
        raise unreachable(error) from error
    except TimeoutError as error:
        raise Failure(f"{bootstrap} gave no answer within {TIMEOUT_SECONDS} s") from error


def unreachable(error: Exception) -> Failure:
    """A client's failure, in the words of the system instead of its numbers, and with what to try."""
    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError) and cause.errno is not None:
        where = str(error).partition(": ")[0]
        return Failure(f"{where}: {os.strerror(cause.errno)}; is a broker running there? (drayd up)")
    return Failure(str(error))


def client_security(file: Path | None) -> ClientSecurity:
    """How a command connects to brokers, as its `--command-config` says."""
    if file is None:
        return ClientSecurity()
    try:
        return read_security(file)
    except PropertiesRefused as error:
        raise Failure(f"--command-config = {str(file)!r}: {error}", USAGE) from error


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Kafka's comma-separated list, which may be of one."""
    found = []
    for each in map(str.strip, bootstrap.split(",")):
        try:
            address = HostPort().parse(each)
        except ValueError as error:
            raise Failure(f"--bootstrap = {each!r}: must be {HostPort().allowed()}", USAGE) from error
        found.append((address.host, address.port))
    return found


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
    migrator_http: str | None = None,
    console: bool | None = None,
    console_listen: str | None = None,
    console_command_config: Path | None = None,
    console_runs: Path | None = None,
) -> LoadedConfig:
    """The effective config of a command, or its one-line failure."""
    # It brings the settings of all rooms, and so the rooms: who asks a broker does without.
    from dray.daemons.config import ConfigError, FlagValue, load

    given: Iterable[tuple[str, str, str | None]] = (
        ("--data-dir", "data_dir", data_dir),
        ("--listen", "broker.listen", listen),
        ("--http", "broker.http", http),
        ("--http", "compaction.http", compactor_http),
        ("--http", "upstream.http", migrator_http),
        ("--broker-id", "broker.id", broker_id),
        ("--spark-master", "spark.master", spark_master),
        ("--compactor", "compaction.enabled", None if compactor is None else str(compactor).lower()),
        ("--no-console", "console.enabled", None if console is None else str(console).lower()),
        ("--console", "console.listen", console_listen),
        ("--command-config", "console.command_config", _text(console_command_config)),
        ("--runs", "console.runs", _text(console_runs)),
    )
    flags = [FlagValue(flag, key, text) for flag, key, text in given if text is not None]
    try:
        loaded = load(file, os.environ, flags)
    except ConfigError as error:
        raise Failure(str(error), USAGE) from error
    for warning in loaded.warnings:
        print(f"drayd: {warning}", file=sys.stderr)
    return loaded


class Way(NamedTuple):
    """How a command reaches users, ACLs and quotas: straight in the metadata store where its options name
    one, else through a broker."""

    bootstrap: str
    command_config: Path | None
    config: Path | None
    data_dir: str | None

    @property
    def is_direct(self) -> bool:
        return self.config is not None or self.data_dir is not None

    def run(self, through_broker: Callable[[Cluster], Awaitable[T]], directly: Callable[[Settings], T]) -> T:
        if self.is_direct:
            return directly(load_config(self.config, self.data_dir).settings)
        return ask(self.bootstrap, self.command_config, through_broker)


def parse_time(text: str, option: str) -> int:
    """Milliseconds since the epoch, never below it: to brokers, negative times mean something else. A time
    without a zone is UTC, as for Kafka's own tool."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Failure(
            f"{option} = {text!r}: must be a time such as 2026-01-31T18:00:00.000 (UTC), "
            "2026-01-31T18:00:00+01:00 or 2026-01-31",
            USAGE,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def to_be_done(execute: bool) -> bool:
    """Whether what was shown is to be done; if not, how it is."""
    if not execute:
        say("nothing was done: add --execute to do this")
    return execute


def _text(file: Path | None) -> str | None:
    return None if file is None else str(file)
