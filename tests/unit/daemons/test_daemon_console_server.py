"""Connections of a console: who holds many, says little, or reads nothing."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn
from tests.services.authorities import Authority

from dray.base.runtime import SystemRuntime
from dray.broker.server.tls.encryption import Encryption
from dray.broker.server.tls.listener import ServerCertificate
from dray.daemons.console import server as console_server
from dray.daemons.console.server import ConsoleDoor

ASKED = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """A page as long as its path says."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(int(scope["path"][1:])):
        await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
    await send({"type": "http.response.body", "body": b"end"})


@asynccontextmanager
async def serving(
    encryption: Callable[[], Encryption] | None = None,
) -> AsyncIterator[tuple[ConsoleDoor, int]]:
    door = ConsoleDoor(SystemRuntime(threads=1), encryption=encryption)
    config = uvicorn.Config(
        cast(Any, app), http=cast(Any, door), ws="none", lifespan="off", log_config=None, port=0
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    try:
        yield door, server.servers[0].sockets[0].getsockname()[1]
    finally:
        door.handshakes.end()
        for connection in list(door.connections):
            connection.transport.abort()
        await server.shutdown()


async def until(true: Any) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110 - plain state of the server
            await asyncio.sleep(0.005)


async def connected(port: int, address: str = "127.0.0.1") -> Any:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0), limit=4096)


async def test_an_answer_that_nobody_reads_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_server, "UNREAD_SECONDS", 0.1)
    async with serving() as (door, port):
        _, writer = await connected(port)
        writer.write(ASKED % b"50")
        await until(lambda: len(door.connections) == 1)
        await until(lambda: len(door.connections) == 0)
        writer.close()


async def test_an_answer_that_is_read_slowly_gets_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_server, "UNREAD_SECONDS", 5.0)
    monkeypatch.setattr(console_server, "REQUEST_SECONDS", 0.1)
    async with serving() as (_, port):
        reader, writer = await connected(port)
        writer.write(ASKED % b"20")
        last = b""
        async with asyncio.timeout(60):
            while not last.endswith(b"end\r\n0\r\n\r\n"):
                part = await reader.read(1 << 16)
                assert part, "it was closed before its end"
                last = (last + part)[-20:]
        writer.close()


async def test_a_request_that_came_during_another_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was cut off as one that does not come."""
    monkeypatch.setattr(console_server, "UNREAD_SECONDS", 60.0)
    async with serving() as (door, port):
        reader, writer = await connected(port)
        writer.write(ASKED % b"0" + ASKED % b"50")
        assert (await reader.readuntil(b"end")).startswith(b"HTTP/1.1 200 ")
        await until(lambda: any(each.flow.write_paused for each in door.connections))
        assert [each._asking for each in door.connections] == [None]
        writer.close()


@pytest.mark.parametrize(
    "said", [b"", b"GET / HT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab"]
)
async def test_a_request_that_does_not_come_whole_has_an_end(
    monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(console_server, "REQUEST_SECONDS", 0.2)
    async with serving() as (door, port):
        _, writer = await connected(port)
        writer.write(said)
        await until(lambda: len(door.connections) == 1)
        await until(lambda: not door.connections)
        writer.close()


async def test_who_holds_many_gives_them_up_and_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_server, "CONNECTIONS", 8)
    monkeypatch.setattr(console_server, "OF_AN_ADDRESS", 6)
    async with serving() as (door, port):
        reader, writer = await connected(port)
        crowd = [await connected(port, "127.0.0.9") for _ in range(30)]
        await until(lambda: door.connections.count_of("127.0.0.9") == 6)
        others = [await connected(port, f"127.0.0.{number}") for number in range(2, 5)]
        await until(lambda: door.connections.count_of("127.0.0.9") == 4)
        for one, other in [(reader, writer), *others]:
            other.write(ASKED % b"0")
            assert (await one.readuntil(b"end")).startswith(b"HTTP/1.1 200 ")
        for _, other in [(reader, writer), *others, *crowd]:
            other.close()


# --- over TLS


async def test_handshakes_that_do_not_come_keep_nobody_out_and_have_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any number of them had a minute each, and all file descriptors of the console."""
    monkeypatch.setattr(console_server, "CONNECTIONS", 8)
    authority = Authority(tmp_path)
    own = authority.issue("CN=console", ("127.0.0.1",))
    trust = ssl.create_default_context(cafile=str(authority.file))
    async with serving(ServerCertificate(own.certificate, own.key).encryption) as (door, port):
        crowd = [await connected(port, "127.0.0.2") for _ in range(30)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, limit=4 << 20)
        await until(lambda: len(door.handshakes) <= 8)
        writer.write(ASKED % b"3")
        assert (await reader.readuntil(b"end")).count(b"\0") == 3 << 20
        writer.write(ASKED % b"0")
        assert b"HTTP/1.1 200" in await reader.readuntil(b"end")
        writer.close()
        door.handshakes.seconds = 0.1
        late, _ = await connected(port)
        assert await late.read() == b""
        for _, each in crowd:
            each.close()
        await until(lambda: len(door.handshakes) == 0)
