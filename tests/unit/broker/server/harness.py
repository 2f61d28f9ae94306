"""What the server's tests share: a server on a loopback port, a client, and a transport of paper."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from struct import pack, unpack
from typing import Any

from tests.services import room_settings

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Connection, Listener, Server
from dray.broker.server.limits.patience import ConnectionProgress
from dray.broker.server.tls.listener import ServerCertificate
from dray.kafka.records import uninitialised

SETTINGS = room_settings.server(listeners=(Listener("PLAINTEXT", "127.0.0.1", 0),), linger_seconds=0.05)


def encrypting(certificate: ServerCertificate, **more: Any) -> Listener:
    return Listener("SSL", "127.0.0.1", 0, encryption=certificate.encryption, **more)


def frame(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that sends no signal; the test's own time limit is the bound."""
    while not condition():  # noqa: ASYNC110 - what we look at is plain state of the server
        await asyncio.sleep(0.001)


class Client:
    """A peer that speaks frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, address: tuple[str, int], **options: Any) -> Client:
        return cls(*await asyncio.open_connection(*address, **options))

    def send(self, *payloads: bytes) -> None:
        self.writer.write(b"".join(map(frame, payloads)))

    async def receive(self) -> bytes:
        (size,) = unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, payload: bytes) -> bytes:
        self.send(payload)
        return await self.receive()

    async def rest(self) -> bytes:
        """All that still comes, up to the end of the connection (however it ends)."""
        try:
            return await self.reader.read()
        except ConnectionError:
            return b""

    def reset(self) -> None:
        """Vanish as a crashed peer does, so that even its half of the connection is gone."""
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


async def echo(request: memoryview, _connection: Connection) -> tuple[memoryview]:
    return (request,)


@asynccontextmanager
async def serving(dispatch: Callable[..., Awaitable[Any]] = echo, **bounds: Any) -> Any:
    server = Server(
        dispatch,
        SystemRuntime(),
        replace(SETTINGS, **bounds),
        Metrics(process=False),
        allocate=uninitialised,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop(1)
        assert server.budget.used == 0
        assert server.answers.used == 0
        assert server.answers.waiting == 0
        assert server.connections == 0


class PaperTransport(asyncio.Transport):
    """Remembers what was done to it. `deliver` hands bytes to the protocol as a socket would."""

    def __init__(self, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__({"peername": ("10.0.0.1", 1234)})
        self.protocol = protocol
        self.written: list[bytes] = []
        self.writes = 0
        self.reading = True
        self.closed = False
        self.unsent = 0
        self.ended = False

    def deliver(self, data: bytes) -> int:
        """As much of the data as the protocol wants; returns how much that was."""
        taken = 0
        while taken < len(data) and self.reading and not self.closed:
            buffer: Any = self.protocol.get_buffer(-1)
            count = min(len(buffer), len(data) - taken)
            buffer[:count] = data[taken : taken + count]
            self.protocol.buffer_updated(count)
            taken += count
        return taken

    def writelines(self, list_of_data: Any) -> None:
        self.writes += 1
        self.written.extend(bytes(data) for data in list_of_data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.protocol.connection_lost(None)

    abort = close


def progress(**changes: Any) -> ConnectionProgress:
    quiet = ConnectionProgress(received_bytes=0, frames=1, unfinished=-1, unsent=0, busy=False, closing=False)
    return replace(quiet, **changes)
