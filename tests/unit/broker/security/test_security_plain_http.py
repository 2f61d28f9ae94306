"""Requests without TLS: for a server on this machine, and only where that was said."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from dray.base.https import HttpsFailed, ask_https, parse_address


@pytest.mark.parametrize(
    "url", ["http://login.example/", "http://127.0.0.1.evil.example/", "http://10.0.0.1/"]
)
def test_plain_http_is_for_this_machine_alone(url: str) -> None:
    with pytest.raises(ValueError, match="https"):
        parse_address(url, plain_here=True)
    with pytest.raises(ValueError, match="https"):
        parse_address("http://127.0.0.1/")
    assert not parse_address("http://127.0.0.1:80/x", plain_here=True).encrypted


async def test_a_server_that_speaks_no_tls_is_asked_without_it_only_where_that_was_said() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(3) == b"GET":
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    context = ssl.create_default_context()
    plain = parse_address(f"http://127.0.0.1:{port}/", plain_here=True)
    assert await ask_https(plain, context, most_bytes=10, seconds=60) == b"ok"
    encrypted = parse_address(f"https://127.0.0.1:{port}/", plain_here=True)
    with pytest.raises(HttpsFailed):
        await ask_https(encrypted, context, most_bytes=10, seconds=60)
    server.close()
