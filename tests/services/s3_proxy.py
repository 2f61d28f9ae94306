"""A real HTTP proxy in front of an S3 server, which answers badly when a test says so.

It passes the bytes of a request on as they are, so that their signature stays good.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum

LONGEST_HEADER = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """Say this. The server is not asked; or it is, and did what this denies."""

    status: str
    code: str
    after: bool = False

    def encoded(self, method: str) -> bytes:
        body = f"<Error><Code>{self.code}</Code><Message>Injected.</Message></Error>".encode()
        body = body if self.code else b""
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


@dataclass(frozen=True)
class Late:
    """Ask the server after so many seconds."""

    seconds: float


class Bent(Enum):
    """The server's answer, and not as it was."""

    WHOLE = "200, as if no range had been asked for"
    FLIPPED = "a bit in the middle of the body is another"
    SHORT = "the body lacks its last bytes, and the headers say that all is well"
    OTHER_RANGE = "the body lacks its last bytes, and the headers say so"
    TORN = "the connection ends in the middle of the body"
    CHUNKED = "in chunks, without a length"
    ENDLESS = "without a length: the end of the connection is its end"
    DRIPPING = "a byte a second"
    STUCK = "the body begins, and nothing follows"
    EMPTY = "a listing without objects"
    HALF = "a listing without every second object"
    PAGE = "a page that says 200, as of a hotel's network; the server is not asked"
    SENT = "a bit of the request's body is another"


MISSING = Answer("404 Not Found", "NoSuchKey")
BARE_MISSING = Answer("404 Not Found", "")

Fault = Answer | Cut | Silence | Late | Bent


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
    matches: Callable[[Request], bool] = lambda _: True
    """Only such requests meet the faults."""
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
        request = Request(method, target, headers, asyncio.get_running_loop().time())
        self.requests.append(request)
        fault = self._fault(request)
        if fault is Bent.SENT:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if isinstance(fault, Late):
            await asyncio.sleep(fault.seconds)
        if isinstance(fault, Silence):
            await reader.read()  # until the client gives up
            return False
        if isinstance(fault, Answer):
            if fault.after:
                await self._ask(head, body)
            writer.write(fault.encoded(method))
            await writer.drain()
            return True
        if isinstance(fault, Cut) and not fault.after:
            return False
        answer = PAGE if fault is Bent.PAGE else await self._ask(head, body)
        if isinstance(fault, Cut):
            return False
        if fault is Bent.DRIPPING:
            await self._drip(answer, writer)
            return False
        if fault is Bent.STUCK:
            writer.write(answer[: answer.index(b"\r\n\r\n") + 5])
            await writer.drain()
            await reader.read()  # until the client gives up
            return False
        writer.write(bent(answer, fault) if isinstance(fault, Bent) else answer)
        await writer.drain()
        return False

    async def _drip(self, answer: bytes, writer: asyncio.StreamWriter) -> None:
        for byte in answer:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(1)

    def _fault(self, request: Request) -> Fault | None:
        if not self.matches(request):
            return None
        return self.faults.popleft() if self.faults else self.always

    async def _ask(self, head: bytes, body: bytes) -> bytes:
        """One connection per request, closed by the server: so its answer needs no parsing."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream_port)
        try:
            writer.write(head.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n" + body)
            await writer.drain()
            return await reader.read()
        finally:
            writer.close()


PAGE = (
    b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: "5f3-18c"\r\nContent-Length: 20\r\n'
    b"Connection: close\r\n\r\n<html>Welcome</html>"
)


def bent(answer: bytes, how: Bent) -> bytes:
    head, _, body = answer.partition(b"\r\n\r\n")
    match how:
        case Bent.FLIPPED if body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 0x10]) + body[middle + 1 :]
        case Bent.SHORT:
            body = body[:-10]
            head = _with_length(head, body)
        case Bent.OTHER_RANGE:
            body = body[:-10]
            head = re.sub(rb"(?i)(content-range: bytes \d+-)(\d+)", _ten_less, _with_length(head, body))
        case Bent.WHOLE:
            head = re.sub(rb"(?i)\r\ncontent-range:[^\r]*", b"", head).replace(b" 206 ", b" 200 ")
        case Bent.TORN:
            body = body[: len(body) // 2]
        case Bent.CHUNKED:
            head = re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"\r\nTransfer-Encoding: chunked", head)
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        case Bent.ENDLESS:
            head = re.sub(rb"(?i)\r\ncontent-length:[^\r]*", b"", head)
        case Bent.EMPTY:
            body = _LISTED.sub(b"", body)
            head = _with_length(head, body)
        case Bent.HALF:
            numbers = itertools.count()
            body = _LISTED.sub(lambda found: found[0] if next(numbers) % 2 else b"", body)
            head = _with_length(head, body)
    return head + b"\r\n\r\n" + body


_LISTED = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)


def _with_length(head: bytes, body: bytes) -> bytes:
    return re.sub(rb"(?i)(\r\ncontent-length:)[^\r]*", rb"\1 %d" % len(body), head)


def _ten_less(found: re.Match[bytes]) -> bytes:
    return found[1] + b"%d" % (int(found[2]) - 10)


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
