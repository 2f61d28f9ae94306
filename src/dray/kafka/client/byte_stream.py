"""The bytes of a connection, read into the buffers of their readers.

An answer to a fetch may have many megabytes. asyncio's own reader copies each byte twice more, into a buffer
that grows and out of it again; here the socket is read into the answer itself.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Iterable
from contextlib import suppress
from socket import SO_RCVLOWAT, SOL_SOCKET
from typing import Any, Final, Self, cast

from dray.kafka.records import uninitialised

_UNREAD_BYTES: Final = 64 << 10

_LOW_WATER: Final = 512 << 10
"""While so much is awaited, the event loop is woken for no less."""


class ByteStream(asyncio.BufferedProtocol):
    """Use `open`. One reader at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._socket: Any
        self._is_encrypted: bool
        self._unread = memoryview(bytearray(_UNREAD_BYTES))  # what came before it was asked for
        self._start = self._end = 0
        self._wanted: memoryview | None = None  # what is asked for, and is not there yet
        self._filled = 0
        self.received = 0
        """Bytes that have come so far: whether the other side still says anything."""
        self._reader: asyncio.Future[None] | None = None
        self._writers: list[asyncio.Future[None]] = []  # that wait for room
        self._is_full = False
        self._low_water = 1
        self._is_reading = True
        self._has_ended = False
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure: Exception | None = None

    @classmethod
    async def open(cls, host: str, port: int, ssl: tls.SSLContext | None) -> Self:
        _, stream = await asyncio.get_running_loop().create_connection(cls, host, port, ssl=ssl)
        return stream

    # --- reading

    async def readexactly(self, size: int) -> memoryview:
        """The caller's own. Raises `IncompleteReadError` where the other side has ended, and `OSError`."""
        if self._wanted is not None:
            raise RuntimeError("another reader waits")
        wanted = memoryview(uninitialised(size))
        there = min(size, self._end - self._start)
        wanted[:there] = self._unread[self._start : self._start + there]
        self._start += there
        if self._start == self._end:
            self._start = self._end = 0
        if there < size:
            await self._fill(wanted, there)
        return wanted

    async def _fill(self, wanted: memoryview, filled: int) -> None:
        self._wanted, self._filled = wanted, filled
        if len(wanted) - filled >= _LOW_WATER:
            self._wake_from(_LOW_WATER)
        try:
            while self._filled < len(wanted):
                if self._failure is not None:
                    raise self._failure
                if self._has_ended:
                    raise asyncio.IncompleteReadError(bytes(wanted[: self._filled]), len(wanted))
                self._resume()
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
        finally:
            self._wanted = self._reader = None
            self._wake_from(1)

    def wake_for_any(self) -> None:
        """Whatever has come is read now, and not only when it is worth it: `received` tells then."""
        self._wake_from(1)

    def _wake_from(self, size: int) -> None:
        """How much must have come for the event loop to be woken: it costs as much for little."""
        if size == self._low_water or self._is_encrypted:
            return
        self._low_water = size
        with suppress(OSError):
            self._socket.setsockopt(SOL_SOCKET, SO_RCVLOWAT, size)

    def _resume(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # --- writing

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        self._transport.writelines(parts)

    async def drain(self) -> None:
        """Until there is room. Raises `OSError` where the connection is lost."""
        if self._failure is not None:
            raise self._failure
        if self._has_ended and self._closed.done():
            raise ConnectionResetError("the connection was lost")
        if self._is_full:
            waiting = asyncio.get_running_loop().create_future()
            self._writers.append(waiting)
            try:
                await waiting
            finally:
                self._writers.remove(waiting)

    def close(self) -> None:
        self._transport.close()

    def abort(self) -> None:
        """End it at once, whatever is unsent."""
        self._transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._closed)
        if self._failure is not None:
            raise self._failure

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._socket = transport.get_extra_info("socket")
        self._is_encrypted = transport.get_extra_info("sslcontext") is not None

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if self._wanted is not None and self._filled < len(self._wanted):
            return self._wanted[self._filled :]
        return self._unread[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.received += nbytes
        if self._wanted is not None and self._filled < len(self._wanted):
            self._filled += nbytes
            left = len(self._wanted) - self._filled
            if left < self._low_water:
                self._wake_from(max(1, left))
            if not left:
                self._wake()
            return
        self._end += nbytes
        if self._end == len(self._unread):  # until it is asked for
            self._is_reading = False
            self._transport.pause_reading()

    def eof_received(self) -> None:
        self._has_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = True
        self._failure = exc
        if not self._closed.done():
            self._closed.set_result(None)
        self._wake()
        for waiting in self._writers:
            if not waiting.done():
                waiting.set_exception(exc or ConnectionResetError("the connection was lost"))

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        for waiting in self._writers:
            if not waiting.done():
                waiting.set_result(None)
