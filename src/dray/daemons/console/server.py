"""uvicorn's connections, bounded: who holds many gives them up, and what takes too long is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from dray.base.runtime import Places, Runtime, owner_of
from dray.broker.server.shared import RateLimitedLog
from dray.broker.server.tls.encryption import Encryption
from dray.broker.server.tls.handshakes import Handshakes
from dray.broker.server.tls.layer import TlsLayer

CONNECTIONS: Final = 256
OF_AN_ADDRESS: Final = 128
REQUEST_SECONDS: Final = 15.0
"""How long a connection may take to ask for something whole, since it came or since its last answer."""
UNREAD_SECONDS: Final = 30.0
"""How long an answer may wait for a reader that takes nothing of it."""
HANDSHAKE_SECONDS: Final = 10.0
_RECEIVE_BYTES: Final = 64 << 10


class ConsoleDoor:
    """Makes connections as uvicorn asks for them. A newcomer takes the place of the idlest of the address
    that has most; uvicorn by itself refuses it, and waits for ever for a head that comes byte by byte. Nor
    does it bound handshakes of TLS: the event loop's own have a minute each, and there may be any number."""

    def __init__(
        self, runtime: Runtime, behind_proxy: bool = False, encryption: Callable[[], Encryption] | None = None
    ) -> None:
        """`encryption`: makes that of a new connection; None: plain HTTP."""
        self.connections: Places[_Connection] = Places(
            CONNECTIONS, CONNECTIONS if behind_proxy else OF_AN_ADDRESS
        )
        self.runtime = runtime
        self.encryption = encryption
        self.stopping = False
        self.scratch = bytearray(_RECEIVE_BYTES)
        self.notes = RateLimitedLog(runtime.monotonic)
        self.handshake_seconds = HANDSHAKE_SECONDS
        self.handshakes = Handshakes(self, CONNECTIONS)

    def __call__(self, **given: Any) -> asyncio.BaseProtocol:
        if self.encryption is None:
            return _Connection(self, **given)
        return TlsLayer(self.encryption, lambda _: _Connection(self, **given), self.handshakes, "the console")

    def join(self, connection: _Connection, address: str) -> None:
        gone = self.connections.take(owner_of(address), connection, self.runtime.monotonic())
        if gone is not None:
            gone.transport.abort()

    def use(self, connection: _Connection) -> None:
        self.connections.use(connection, self.runtime.monotonic())

    # For the handshakes.

    def has_room(self, address: str, listener: str) -> bool:  # noqa: ARG002 - as handshakes ask
        return True  # it takes another's place

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:  # noqa: ARG002 - as they ask
        return False

    def refuse(self, event: str, kind: str | None = None, **details: Any) -> bool:
        self.notes.warn(event, kind or event, **details)
        return False

    def count_closing(self, kind: str) -> None:
        """A console has no metrics."""


class _Connection(H11Protocol):
    takes_much = False

    def __init__(self, door: ConsoleDoor, **given: Any) -> None:
        super().__init__(**given)
        self._door = door
        self._asking: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if self._door.encryption is not None:
            self.scheme = "https"
        self._wait_for_request()
        self._door.join(self, "" if self.client is None else self.client[0])

    def connection_lost(self, exc: Exception | None) -> None:
        self._door.connections.leave(self)
        self._stop(self._asking)
        self._stop(self._unread)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as the layer of TLS asks
        return memoryview(self._door.scratch)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._door.scratch[:nbytes]))

    def eof_received(self) -> bool:  # type: ignore[override]
        return False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look_whether_asked()

    def _look_whether_asked(self) -> None:
        if self._asking is not None and self._has_asked():
            self._stop(self._asking)
            self._asking = None
            self._door.use(self)

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()
        self._look_whether_asked()  # the next request may have come during this one

    def pause_writing(self) -> None:
        self._stop(self._unread)
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop(self._unread)
        super().resume_writing()

    def _has_asked(self) -> bool:
        """And all of it is here, a form too."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _wait_for_request(self) -> None:
        self._stop(self._asking)
        self._asking = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _stop(self, timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()
