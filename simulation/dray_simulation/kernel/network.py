"""Connections in memory: bytes arrive late, in pieces and in order, or the connection breaks.

The two ends are asyncio transports, so the real server's protocol does not know that there is no socket.
Bytes are delivered in the context of the process that receives them: one that stands still reads nothing
until it goes on, and one that is dead never does.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, cast

from dray_simulation.kernel.loop import PROCESS, Process

Factory = Callable[[], asyncio.BaseProtocol]

_HIGH_WATER: Final = 64 * 1024
_END: Final = b""  # what is sent last: no more follows


@dataclass(slots=True)
class NetworkWeather:
    """Chances are per piece that is sent; times are in seconds."""

    random: Random
    slowest: float = 0.004
    broken: float = 0.001  # the connection is reset, and what is on its way is lost
    silent: float = 0.0005  # nothing gets through any more, without any error
    split: float = 0.1  # a piece arrives in two
    counts: Counter[str] = field(default_factory=Counter)

    def calm(self) -> None:
        self.broken = self.silent = 0.0


class SimulatedNetwork:
    def __init__(self, weather: NetworkWeather) -> None:
        self.weather = weather
        self._listeners: dict[tuple[str, int], _Listener] = {}
        self._connections: dict[_Transport, None] = {}  # ordered: the server's ends of those that are open
        self._last_port = 30_000

    def listen(self, factory: Factory, host: str, port: int) -> _Listener:
        place = (host, port)
        known = self._listeners.get(place)
        if known is not None and not known.gone:
            raise OSError(98, f"{host}:{port} is in use")
        listener = self._listeners[place] = _Listener(factory, place, PROCESS.get(), copy_context())
        return listener

    async def connect(
        self, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(self._latency())
        listener = self._listeners.get((host, port))
        if listener is None or listener.gone:
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        self._last_port += 1
        near = _Transport(self, factory(), copy_context(), (host, port))
        far = _Transport(self, listener.factory(), listener.context, ("client", self._last_port))
        near.peer, far.peer = far, near
        self._connections[far] = None
        near.protocol.connection_made(near)
        far.begin()
        return near, near.protocol

    def cut_some(self, random: Random) -> bool:
        """Break a connection. False if there is none."""
        if not self._connections:
            return False
        random.choice(list(self._connections)).cut()
        return True

    def cut_process(self, process: Process) -> None:
        """A process is gone: its peers find that out, and what it sent last may be lost."""
        for connection in [one for one in self._connections if one.context.get(PROCESS) is process]:
            connection.cut()

    def forget(self, connection: _Transport) -> None:
        self._connections.pop(connection, None)

    def _latency(self) -> float:
        return self.weather.random.random() * self.weather.slowest

    def arrival(self) -> float:
        return asyncio.get_running_loop().time() + self._latency()


class _Listener:
    """It is to its users what asyncio's servers are."""

    def __init__(
        self, factory: Factory, place: tuple[str, int], process: Process | None, context: Context
    ) -> None:
        self.factory = factory
        self.context = context
        self._place = place
        self._process = process
        self._closed = False

    @property
    def gone(self) -> bool:
        return self._closed or (self._process is not None and self._process.dead)

    @property
    def sockets(self) -> Sequence[_Listener]:
        return (self,)

    def getsockname(self) -> tuple[str, int]:
        return self._place

    def close(self) -> None:
        self._closed = True


class _Transport(asyncio.Transport):
    """One end. Pieces that it was given are on their way to the peer, in order."""

    peer: _Transport

    def __init__(
        self,
        network: SimulatedNetwork,
        protocol: asyncio.BaseProtocol,
        context: Context,
        peer_name: tuple[str, int],
    ) -> None:
        super().__init__({"peername": peer_name})
        self.protocol: Any = protocol
        self.context = context
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._under_way: deque[bytes] = deque()  # from here to the peer
        self._received: deque[bytes] = deque()  # from the peer, not yet taken by the protocol
        self._unsent = 0
        self._high_water = _HIGH_WATER
        self._full = False
        self._reading = True
        self._ended = False  # no more is sent from here
        self._closing = False
        self._lost = False
        self._silent = False

    def begin(self) -> None:
        self._loop.call_soon(self._made, context=self.context)

    def _made(self) -> None:
        if not self._lost:
            self.protocol.connection_made(self)

    # --- sending

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        if self._closing or self._ended or self._is_dead():
            return
        weather = self._network.weather
        data = b"".join(list_of_data)
        if not data:
            return
        chance = weather.random.random()
        if (chance := chance - weather.broken) < 0:
            weather.counts["connection reset"] += 1
            self.cut()
            return
        if chance - weather.silent < 0:
            weather.counts["connection silent"] += 1
            self._silent = self.peer._silent = True
        if len(data) > 1 and weather.random.random() < weather.split:
            cut = weather.random.randrange(1, len(data))
            self._send(data[:cut])
            data = data[cut:]
        self._send(data)

    def _send(self, piece: bytes) -> None:
        if self._silent:
            return
        self._under_way.append(piece)
        self._unsent += len(piece)
        if self._unsent > self._high_water and not self._full:
            self._full = True
            self.protocol.pause_writing()
        # Whichever comes first brings the first piece: the order stays.
        self._loop.call_at(self._network.arrival(), self._arrive, context=self.peer.context)

    def _arrive(self) -> None:
        if self._under_way and not self.peer._lost:
            self.peer._received.append(self._under_way.popleft())
            self.peer._take()

    def _taken(self, size: int) -> None:
        self._unsent -= size
        if self._full and self._unsent <= self._high_water // 4 and not self._lost:
            self._full = False
            self.protocol.resume_writing()

    # --- receiving

    def _take(self) -> None:
        while self._received and self._reading and not self._lost:
            piece = self._received.popleft()
            if piece == _END:
                self._peer_ended()
                return
            taken = self._feed(piece)
            if taken < len(piece):
                self._received.appendleft(piece[taken:])
            peer = self.peer
            self._loop.call_soon(peer._taken, taken, context=peer.context)

    def _feed(self, piece: bytes) -> int:
        protocol = self.protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)
            return len(piece)
        taken = 0
        while taken < len(piece) and self._reading and not self._lost:
            buffer = cast(memoryview, protocol.get_buffer(-1))
            size = min(len(buffer), len(piece) - taken)
            buffer[:size] = piece[taken : taken + size]
            taken += size
            protocol.buffer_updated(size)
        return taken

    def _peer_ended(self) -> None:
        if not self.protocol.eof_received():
            self.close()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            if self._received:
                self._loop.call_soon(self._take, context=self.context)

    def is_reading(self) -> bool:
        return self._reading

    # --- ending

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._ended and not self._closing:
            self._ended = True
            self._send(_END)

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._closing = True
            self._loop.call_soon(self._lose, None, context=self.context)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self._under_way.clear()
            self._loop.call_soon(self._lose, None, context=self.context)
            self._reset_peer()

    def cut(self) -> None:
        """Both ends learn that the connection is no more."""
        self._under_way.clear()
        self._closing = True
        self._loop.call_soon(self._lose, ConnectionResetError("the connection was cut"), context=self.context)
        self._reset_peer()

    def _reset_peer(self) -> None:
        peer = self.peer
        if not peer._lost:
            error = ConnectionResetError("the connection was reset")
            self._loop.call_at(self._network.arrival(), peer._lose, error, context=peer.context)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self._received.clear()
            self._network.forget(self)
            if not self._is_dead():
                self.protocol.connection_lost(error)

    def is_closing(self) -> bool:
        return self._closing

    # --- the rest

    def _is_dead(self) -> bool:
        process = self.context.get(PROCESS)
        return process is not None and process.dead

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:  # noqa: ARG002
        self._high_water = _HIGH_WATER if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._unsent
