"""How a command asks a broker: the options that all such commands have, and a connection for its work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dray.cli.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.client import KafkaConnection

T = TypeVar("T")

BootstrapOption = Annotated[
    str,
    typer.Option("--bootstrap", "-b", envvar="DRAY_BOOTSTRAP", metavar="HOST:PORT", help="A broker to ask."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_SECONDS = 60


def ask(bootstrap: str, work: Callable[[KafkaConnection], Awaitable[T]]) -> T:
    """Connect, do it, disconnect; whatever goes wrong on the way is one line."""
    import asyncio

    from dray.client import ClientError

    host, port = parse_bootstrap(bootstrap)

    async def run() -> T:
        async with connect(host, port) as connection:
            return await work(connection)

    try:
        return asyncio.run(asyncio.wait_for(run(), TIMEOUT_SECONDS))
    except ClientError as error:
        raise unreachable(error) from error
    except TimeoutError as error:
        raise Failure(f"{host}:{port} gave no answer within {TIMEOUT_SECONDS} s") from error


@asynccontextmanager
async def connect(host: str, port: int) -> AsyncIterator[KafkaConnection]:
    from dray.client import KafkaConnection

    async with await KafkaConnection.connect(host, port, client_id="drayd-admin") as connection:
        await connection.negotiate()
        yield connection


def unreachable(error: Exception) -> Failure:
    """A client's failure, in the words of the system instead of its numbers, and with what to try."""
    import os

    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError) and cause.errno is not None:
        where = str(error).partition(": ")[0]
        return Failure(f"{where}: {os.strerror(cause.errno)}; is a broker running there? (drayd up)")
    return Failure(str(error))


def parse_bootstrap(bootstrap: str) -> tuple[str, int]:
    """The first of what may be Kafka's comma-separated list."""
    from dray.config.kinds import HostPort

    first = bootstrap.partition(",")[0].strip()
    try:
        address = HostPort().parse(first)
    except ValueError as error:
        raise Failure(f"--bootstrap = {first!r}: must be {HostPort().allowed()}", USAGE) from error
    return address.host, address.port
