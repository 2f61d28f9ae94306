"""A real HTTP proxy in front of an S3 server, which answers badly when a test says so.

It passes the bytes of a request on as they are, so that their signature stays good.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

LONGEST_HEADER = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """Say this, and do not ask the server."""

    status: str
    code: str

    def encoded(self, method: str) -> bytes:
        body = f"<Error><Code>{self.code}</Code><Message>Injected.</Message></Error>".encode()
        head = (
            f"HTTP/1.1 {self.status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + (b"" if method == "HEAD" else body)


SLOW_DOWN = Answer("503 Slow Down", "SlowDown")
INTERNAL_ERROR = Answer("500 Internal Server Error", "InternalError")


@dataclass(frozen=True)
class Cut:
    """Close the connection: before the server heard of it, or after it has done what was asked."""

    after: bool


@dataclass(frozen=True)
class Silence:
    """Never answer; the server is not asked."""


Fault = Answer | Cut | Silence


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    at: float


@dataclass
class S3Proxy:
    upstream_port: int
    port: int = 0
    faults: deque[Fault] = field(default_factory=deque)
    """What happens to the next requests, one by one; then all goes well again."""
    always: Fault | None = None
    requests: list[Request] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await self._one_request(reader, writer):
                pass
        writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode().rstrip().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Request(method, target, headers, asyncio.get_running_loop().time()))
        fault = self.faults.popleft() if self.faults else self.always
        if isinstance(fault, Silence):
            await reader.read()  # until the client gives up
            return False
        if isinstance(fault, Answer):
            writer.write(fault.encoded(method))
            await writer.drain()
            return True
        if isinstance(fault, Cut) and not fault.after:
            return False
        answer = await self._ask(head, body)
        if isinstance(fault, Cut):
            return False
        writer.write(answer)
        await writer.drain()
        return False

    async def _ask(self, head: bytes, body: bytes) -> bytes:
        """One connection per request, closed by the server: so its answer needs no parsing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        try:
            writer.write(head.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def s3_proxy(upstream_port: int) -> AsyncIterator[S3Proxy]:
    proxy = S3Proxy(upstream_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0, limit=LONGEST_HEADER)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for _ in range(3):
            await asyncio.sleep(0)
