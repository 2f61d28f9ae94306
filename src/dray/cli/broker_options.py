"""How a command asks a broker: the options that all such commands have, and a connection for its work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dray.daemon.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.client import KafkaConnection

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_SECONDS = 60


def ask(bootstrap: str, work: Callable[[KafkaConnection], Awaitable[T]]) -> T:
    """Connect, do it, disconnect; whatever goes wrong on the way is one line."""
    import asyncio

    from dray.client import ClientError

    addresses = parse_bootstrap(bootstrap)

    async def run() -> T:
        for host, port in addresses[:-1]:
            try:
                opened = await _open(host, port)
            except ClientError:
                continue  # the next one may live
            return await _with(opened, work)
        return await _with(await _open(*addresses[-1]), work)

    try:
        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))
    except ClientError as error:
        raise unreachable(error) from error
    except TimeoutError as error:
        raise Failure(f"{bootstrap} gave no answer within {TIMEOUT_SECONDS} s") from error


@asynccontextmanager
async def connect(host: str, port: int) -> AsyncIterator[KafkaConnection]:
    async with await _open(host, port) as connection:
        await connection.negotiate()
        yield connection


async def _open(host: str, port: int) -> KafkaConnection:
    from dray.client import KafkaConnection

    return await KafkaConnection.connect(host, port, client_id="drayd-admin")


async def _with(opened: KafkaConnection, work: Callable[[KafkaConnection], Awaitable[T]]) -> T:
    async with opened as connection:
        await connection.negotiate()
        return await work(connection)


def unreachable(error: Exception) -> Failure:
    """A client's failure, in the words of the system instead of its numbers, and with what to try."""
    import os

    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError) and cause.errno is not None:
        where = str(error).partition(": ")[0]
        return Failure(f"{where}: {os.strerror(cause.errno)}; is a broker running there? (drayd up)")
    return Failure(str(error))


def parse_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """Kafka's comma-separated list, which may be of one."""
    from dray.config.kinds import HostPort

    found = []
    for each in map(str.strip, bootstrap.split(",")):
        try:
            address = HostPort().parse(each)
        except ValueError as error:
            raise Failure(f"--bootstrap = {each!r}: must be {HostPort().allowed()}", USAGE) from error
        found.append((address.host, address.port))
    return found
