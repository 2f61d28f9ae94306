"""Brokers that answer what was laid out for them, and a clock on which sleep takes no time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dray.base.runtime import SystemRuntime
from dray.kafka.protocol import (
    RequestHeader,
    Response,
    encode_response_header,
    frame_message,
    parse_request_header,
)


class Clock(SystemRuntime):
    """Sleep takes no time but on this clock."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedBroker:
    """Answers each request with what was laid out for its class: an answer, a function of the request, an
    error, or a list of these, the last of which is given again and again. It counts its connections."""

    def __init__(self, highest: int = 99, **answers: Any) -> None:
        self.answers = {
            name: list(value) if isinstance(value, list) else [value] for name, value in answers.items()
        }
        self.highest = highest
        self.seen: list[Any] = []
        self.versions: list[int | None] = []
        self.open = 0

    async def request(self, message: Any, version: int | None = None) -> Any:
        self.seen.append(message)
        self.versions.append(version)
        answers = self.answers[type(message).__name__]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(message) if callable(answer) else answer

    def version_for(self, _: int) -> int:
        return self.highest

    async def close(self) -> None:
        pass


class ScriptedConnection:
    """One of a scripted broker's connections."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self.request = broker.request
        self.version_for = broker.version_for
        broker.open += 1

    async def close(self) -> None:
        self._broker.open -= 1


# --- a broker on a socket


Write = Callable[[bytes], None]
Handler = Callable[[RequestHeader, memoryview, Write], Awaitable[None]]


class FrameBroker:
    """Reads frames and gives each to `handler`, with a way to write bytes back."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.requests: list[RequestHeader] = []
        self.asked = asyncio.Event()
        self.client_gone = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = memoryview(await reader.readexactly(size))
                header, position = parse_request_header(frame)
                self.requests.append(header)
                self.asked.set()
                await self.handler(header, frame[position:], writer.write)
                if writer.is_closing():
                    break
        self.client_gone.set()
        writer.close()


@contextlib.asynccontextmanager
async def running(handler: Handler) -> AsyncIterator[FrameBroker]:
    broker = FrameBroker(handler)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.port = server.sockets[0].getsockname()[1]
    async with server:
        yield broker


def answer(header: RequestHeader, response: Response, version: int | None = None) -> bytes:
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    return b"".join(frame_message(head, response.encode(header.api_version if version is None else version)))
