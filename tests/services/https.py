"""A server over HTTPS that gives one answer, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dray.base.https import HttpsAddress, parse_address
from tests.services.authorities import Authority


def trust(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def json_answer(document: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(document) + document


@asynccontextmanager
async def answering(authority: Authority, answer: bytes, asked: list[bytes]) -> AsyncIterator[HttpsAddress]:
    """It answers every request with these bytes, and hangs behind HANG."""
    pair = authority.issue("CN=keys", ("127.0.0.1",))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        asked.append(head + await reader.readexactly(int(length or 0)))
        writer.write(answer)
        if not answer.endswith(b"HANG"):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        yield parse_address(f"https://127.0.0.1:{port}/keys?x=1")
    finally:
        server.close()
