"""A TCP proxy on loopback that can cut, freeze and delay what goes through it: the network's bad days.

It runs on an event loop in a thread of its own, so a test may drive it from blocking code or from another
loop. What it does to connections it does to those that are open and to those that come later, until it is set
otherwise:

- `cut()`: open connections are reset, new ones too. `mend()` lets new ones through again.
- `freeze()`: nothing moves in either direction and nothing is lost, as when a peer is stopped or a switch
  drops every packet; new connections are accepted and stay silent. `thaw()` lets everything go on.
- `delay(seconds)`: every piece of data arrives that much later, in order.

A `tap` sees what goes through: there is one for each connection, and it is called with every piece right
before it is passed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from typing import Protocol, Self, TypeVar

PIECE = 64 * 1024

T = TypeVar("T")
Tell = Callable[[bytes], None]


class Tap(Protocol):
    def towards_target(self, piece: bytes) -> None: ...
    def back(self, piece: bytes) -> None: ...


class TcpProxy:
    """Forwards its own port to another. Start it by entering it; `address` is what clients are given."""

    def __init__(self, port: int, host: str = "127.0.0.1", tap: Callable[[], Tap] | None = None) -> None:
        self.target = (host, port)
        self.tap = tap
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy to {port}", daemon=True)
        self._relays: set[_Relay] = set()
        self._server: asyncio.Server | None = None
        self._cut = False
        self._delay = 0.0
        self._moving = asyncio.Event()
        self._moving.set()
        self.accepted = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    # --- the bad days

    def cut(self) -> None:
        def apply() -> None:
            self._cut = True
            for relay in list(self._relays):
                relay.reset()

        self._call(apply)

    def mend(self) -> None:
        def apply() -> None:
            self._cut = False

        self._call(apply)

    def freeze(self) -> None:
        self._call(self._moving.clear)

    def thaw(self) -> None:
        self._call(self._moving.set)

    def delay(self, seconds: float) -> None:
        def apply() -> None:
            self._delay = seconds

        self._call(apply)

    @property
    def open_connections(self) -> int:
        return self._call(lambda: len(self._relays))

    # --- the proxy

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(60)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _call(self, action: Callable[[], T]) -> T:
        """Done when this returns: a test need not wonder whether its cut is in effect."""

        async def act() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(60)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        assert self._server is not None
        self._server.close()
        for relay in list(self._relays):
            relay.reset()
        self._moving.set()
        if self._relays:
            await asyncio.wait([asyncio.ensure_future(relay.gone.wait()) for relay in self._relays])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        relay = _Relay(self, reader, writer)
        self._relays.add(relay)
        try:
            await relay.run()
        finally:
            self._relays.discard(relay)
            relay.gone.set()

    def target_of(self, client: asyncio.StreamWriter) -> tuple[str, int]:
        """Where a client's connection goes: here, everybody's to the same place."""
        return self.target

    async def pass_through(self) -> None:
        """Held while frozen."""
        await self._moving.wait()

    @property
    def is_cut(self) -> bool:
        return self._cut

    @property
    def delay_seconds(self) -> float:
        return self._delay


class _Relay:
    """One client's connection and its twin towards the target."""

    def __init__(self, proxy: TcpProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._near = (reader, writer)
        self._far: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._ended = asyncio.Event()
        self.gone = asyncio.Event()

    def reset(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            if self._proxy.is_cut:
                return
            await self._unless_ended(self._proxy.pass_through())
            if self._ended.is_set():
                return
            with contextlib.suppress(OSError):
                self._far = await asyncio.open_connection(*self._proxy.target_of(self._near[1]))
            if self._far is None:
                return
            tap = self._proxy.tap() if self._proxy.tap is not None else None
            towards = None if tap is None else tap.towards_target
            back = None if tap is None else tap.back
            tasks = [
                asyncio.create_task(self._pump(self._near[0], self._far[1], towards)),
                asyncio.create_task(self._pump(self._far[0], self._near[1], back)),
                asyncio.create_task(self._until_ended()),
            ]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not self._ended.is_set():
                # One side hung up: the other way may still have something to say.
                await asyncio.wait(tasks[2:] + [task for task in tasks[:2] if not task.done()], timeout=1.0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in [self._near[1]] + ([self._far[1]] if self._far else []):
                _abort(writer)

    async def _until_ended(self) -> None:
        await self._ended.wait()

    async def _unless_ended(self, waiting: object) -> None:
        first = asyncio.ensure_future(waiting)  # type: ignore[call-overload]
        second = asyncio.ensure_future(self._ended.wait())
        await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
        first.cancel()
        second.cancel()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tell: Tell | None
    ) -> None:
        """A queue stands between reading and writing: a delay shifts the data and does not thin it."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        forwarding = asyncio.create_task(self._forward(pieces, writer, tell))
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError):
                while True:
                    piece = await reader.read(PIECE)
                    await pieces.put((loop.time() + self._proxy.delay_seconds, piece))
                    if not piece:
                        break
            await forwarding
        finally:
            forwarding.cancel()

    async def _forward(
        self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, tell: Tell | None
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                due, piece = await pieces.get()
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                await self._proxy.pass_through()
                if not piece:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                if tell is not None:
                    tell(piece)
                writer.write(piece)
                await writer.drain()


def _abort(writer: asyncio.StreamWriter) -> None:
    """A reset and not an orderly end: what a cut looks like to both ends."""
    connection = writer.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
