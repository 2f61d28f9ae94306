"""Bytes of a connection, read into the buffers of their readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest

from dray.kafka.client.byte_stream import ByteStream

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[ByteStream]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    stream = await ByteStream.open("127.0.0.1", server.sockets[0].getsockname()[1], None)
    try:
        async with asyncio.timeout(60):
            yield stream
    finally:
        stream.close()
        server.close()


def sending(data: bytes) -> Serve:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return serve


@pytest.mark.parametrize("seed", range(5))
async def test_all_bytes_come_in_their_order_whatever_is_asked_for(seed: int) -> None:
    """Small and large reads in turns, some long after their bytes have come."""
    random = Random(seed)
    data = random.randbytes(3_000_000)
    async with connected(sending(data)) as stream:
        found = b""
        while len(found) < len(data):
            size = min(random.choice([1, 4, 1000, 70_000, 600_000]), len(data) - len(found))
            if random.random() < 0.2:
                await asyncio.sleep(0.001)
            found += await stream.readexactly(size)
        assert found == data
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.readexactly(1)


async def test_the_last_bytes_of_much_come_when_they_are_there() -> None:
    """The loop is woken for little only if no more is awaited."""
    first, rest = asyncio.Event(), asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes(1 << 20))
        await first.wait()
        writer.write(b"end")
        await rest.wait()
        writer.write(b"next")

    async with connected(serve) as stream:
        reading = asyncio.ensure_future(stream.readexactly((1 << 20) + 3))
        for _ in range(60_000):
            if stream._filled >= 1 << 19:
                break
            await asyncio.sleep(0.001)
        first.set()
        assert (await reading)[-3:] == b"end"
        rest.set()
        assert await stream.readexactly(4) == b"next"


async def test_little_of_much_is_read_when_it_is_asked_whether_any_has_come() -> None:
    asked, more = asyncio.Event(), asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        writer.write(bytes(1000))
        await more.wait()

    async with connected(serve) as stream:
        reading = asyncio.ensure_future(stream.readexactly(1 << 20))
        await asyncio.sleep(0)
        assert stream._low_water > 1000
        asked.set()
        stream.wake_for_any()
        for _ in range(10_000):
            if stream.received == 1000:
                break
            await asyncio.sleep(0.001)
        assert stream.received == 1000
        reading.cancel()
        more.set()


async def test_what_is_not_asked_for_is_left_in_the_socket() -> None:
    async with connected(sending(bytes(50_000_000))) as stream:
        await stream.readexactly(4)
        for _ in range(60_000):
            if not stream._is_reading:
                break
            await asyncio.sleep(0.001)
        assert stream._end == len(stream._unread)
        assert len(await stream.readexactly(49_999_996)) == 49_999_996


async def test_an_end_within_what_is_asked_for() -> None:
    async with connected(sending(b"half")) as stream:
        with pytest.raises(asyncio.IncompleteReadError) as ended:
            await stream.readexactly(8)
        assert ended.value.partial == b"half"


async def test_a_writer_waits_for_room() -> None:
    go, ended = asyncio.Event(), asyncio.Event()
    received: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        while data := await reader.read(1 << 20):
            received.append(len(data))
        writer.close()
        ended.set()

    async with connected(serve) as stream:
        stream.writelines([bytes(30_000_000)])
        draining = asyncio.ensure_future(stream.drain())
        await asyncio.wait([draining], timeout=0.05)
        assert not draining.done()
        go.set()
        await draining
        stream.close()
        await stream.wait_closed()
        await ended.wait()
        assert sum(received) == 30_000_000


async def test_a_writer_that_waits_hears_of_the_end() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        writer.transport.abort()

    async with connected(serve) as stream:
        stream.writelines([bytes(30_000_000)])
        with pytest.raises(OSError):
            await stream.drain()
        with pytest.raises(OSError):
            await stream.drain()


async def test_an_abort_leaves_unsent_what_is_unsent() -> None:
    gone = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()  # it reads nothing
        writer.transport.abort()

    async with connected(serve) as stream:
        stream.writelines([bytes(30_000_000)])
        stream.abort()
        await stream.wait_closed()
        with pytest.raises(OSError):
            await stream.drain()
        gone.set()
