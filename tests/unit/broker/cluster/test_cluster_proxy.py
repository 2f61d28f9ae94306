"""The proxy that fault tests rely on does what it says: cut, freeze and delay."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.services.proxy import TcpProxy


@pytest.fixture
async def echo_port() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1024):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes) -> bytes:
    writer.write(text)
    return await asyncio.wait_for(reader.readexactly(len(text)), 60)


async def test_what_goes_in_comes_out(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy:
        streams = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*streams, b"hello") == b"hello"
        big = bytes(range(256)) * 4096
        assert await ask(*streams, big) == big
        streams[1].write_eof()
        assert await asyncio.wait_for(streams[0].read(), 60) == b""
        streams[1].close()


async def test_a_cut_resets_what_is_open_and_what_comes(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(reader, writer, b"before") == b"before"
        await asyncio.to_thread(proxy.cut)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 60)
        try:
            late = await asyncio.open_connection("127.0.0.1", proxy.port)
            assert await asyncio.wait_for(late[0].read(1), 60) == b""
        except ConnectionResetError:
            pass
        await asyncio.to_thread(proxy.mend)
        streams = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(*streams, b"after") == b"after"


async def test_frozen_data_is_late_and_not_lost(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await ask(reader, writer, b"before") == b"before"
        await asyncio.to_thread(proxy.freeze)
        writer.write(b"during")
        newcomer = await asyncio.open_connection("127.0.0.1", proxy.port)
        newcomer[1].write(b"new")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        await asyncio.to_thread(proxy.thaw)
        assert await asyncio.wait_for(reader.readexactly(6), 60) == b"during"
        assert await asyncio.wait_for(newcomer[0].readexactly(3), 60) == b"new"


async def test_delayed_data_arrives_later_and_in_order(echo_port: int) -> None:
    with TcpProxy(echo_port) as proxy:
        streams = await asyncio.open_connection("127.0.0.1", proxy.port)
        await asyncio.to_thread(proxy.delay, 0.05)
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await ask(*streams, b"slow") == b"slow"
        assert loop.time() - began >= 0.1  # there and back
