"""A small HTTP/1.1 server for operators: routes in, answers out, everything bounded.

Probes are answered whatever others do: a newcomer is never refused for a lack of places, but takes that of
the idlest connection of whichever address has most.
"""

from __future__ import annotations

import asyncio
import errno
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import structlog

from dray.base.runtime import FairWork, Places, owner_of
from dray.broker.server.http.requests import (
    MAX_HEAD_BYTES,
    BadRequest,
    BearerTokens,
    HttpRequest,
    RequestReader,
    is_foreign,
    is_loopback,
)
from dray.broker.server.server import AddressInUse
from dray.broker.server.shared import RateLimitedLog
from dray.broker.server.tls.handshakes import Handshakes
from dray.broker.server.tls.layer import TlsLayer

if TYPE_CHECKING:
    from dray.base.runtime import Runtime
    from dray.broker.server.tls.encryption import Encryption

_log = structlog.get_logger(__name__)

TEXT = "text/plain; charset=utf-8"
_RECEIVE_BYTES: Final = 2 * MAX_HEAD_BYTES
_MOST_UNREAD_BYTES: Final = 16 << 20
"""The bytes of unread answers that all connections together may hold. Beyond that, the one that stopped
reading first is closed."""
_MOST_LEAVING: Final = 1024
_LEAVING_SECONDS: Final = 0.25
"""A connection that was given up, and whose first request may be on its way, or its answer, has so long:
probes get through the crowd of an address that is theirs."""
_ANSWERS_PER_TURN: Final = 1
"""Of the event loop. An answer takes half a millisecond, and a turn accepts one connection: behind some
hundred that come at once, a probe waits for as many turns."""
_BACKLOG: Final = 1024
"""Connections that wait to be accepted: a flood is accepted faster than it comes, a probe waits behind it."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    body: bytes
    content_type: str = TEXT


Route: TypeAlias = Callable[[HttpRequest], Awaitable[HttpAnswer]]


@dataclass(frozen=True, slots=True)
class HttpSettings:
    host: str = "127.0.0.1"
    port: int = 9644
    max_connections: int = 256
    max_connections_per_address: int = 128
    request_seconds: float = 10.0
    """How long a request may take to arrive whole, and its answer to be taken."""
    idle_seconds: float = 60.0
    """How long a connection may be idle between two requests."""
    handshake_seconds: float = 10.0
    encryption: Callable[[], Encryption] | None = None
    """Makes that of a new connection; None: plain HTTP."""
    tokens: BearerTokens | None = None
    client_certificates: bool = False
    """Clients are asked for one; it counts as much as a token. If neither is asked for, all clients may read
    everything."""


class HttpServer:
    """Serves exact paths. A route that fails is a 500 and one logged traceback. `open_paths` are those that
    also answer clients with neither token nor certificate; they see that by `HttpRequest.known`. If neither
    is asked for, at an address of this machine alone, such a client is a page from elsewhere in a browser
    here: it calls this server by another name."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        runtime: Runtime,
        settings: HttpSettings,
        open_paths: Collection[str] = (),
    ) -> None:
        self.routes = dict(routes)
        self._open_paths = frozenset(open_paths)
        self.settings = settings
        self._on_loopback = is_loopback(settings.host)
        self.connections: Places[_HttpProtocol] = Places(
            settings.max_connections, settings.max_connections_per_address
        )
        self.work = FairWork(_ANSWERS_PER_TURN)
        self._leaving: set[_HttpProtocol] = set()
        self._unread: OrderedDict[_HttpProtocol, None] = OrderedDict()  # who stopped first comes first
        self.runtime = runtime
        self.scratch = bytearray(_RECEIVE_BYTES)
        self.notes = RateLimitedLog(runtime.monotonic)
        self.stopping = False
        self.handshakes = None if settings.encryption is None else Handshakes(self, settings.max_connections)
        self._accepting: asyncio.Server | None = None
        self._address: tuple[str, int] | None = None

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise RuntimeError("the HTTP server has not been started")
        return self._address

    async def start(self) -> None:
        host, port = self.settings.host, self.settings.port
        try:
            self._accepting = await asyncio.get_running_loop().create_server(
                self._protocol, host, port, backlog=_BACKLOG
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(host, port) from error
            raise
        self._address = self._accepting.sockets[0].getsockname()[:2]
        _log.info(
            "listening",
            listener="HTTP" if self.handshakes is None else "HTTPS",
            host=self._address[0],
            port=self._address[1],
        )

    def _protocol(self) -> asyncio.BufferedProtocol:
        encryption, handshakes = self.settings.encryption, self.handshakes
        if encryption is None or handshakes is None:
            return _HttpProtocol(self)
        # A client that shows a certificate gets here only if it is good.
        return TlsLayer(
            encryption,
            lambda certified: _HttpProtocol(self, certified),
            handshakes,
            "HTTPS",
            lambda certificate, _peer: certificate is not None,
        )

    async def stop(self) -> None:
        """Stops at once: no data depends on these connections."""
        self.stopping = True
        if self._accepting is not None:
            self._accepting.close()
            self._accepting = None
        if self.handshakes is not None:
            self.handshakes.end()
        for connection in [*self.connections, *self._leaving]:
            connection.abort()
        await self.runtime.sleep(0)

    def join(self, connection: _HttpProtocol, owner: str) -> None:
        gone = self.connections.take(owner, connection, self.runtime.monotonic())
        if gone is None:
            return
        self.refuse("too many HTTP connections, closing the idlest", limit=self.settings.max_connections)
        if gone.is_idle or len(self._leaving) >= _MOST_LEAVING:
            gone.abort()
        else:
            self._leaving.add(gone)
            asyncio.get_running_loop().call_later(_LEAVING_SECONDS, gone.give_up)

    def use(self, connection: _HttpProtocol) -> None:
        self.connections.use(connection, self.runtime.monotonic())

    def leave(self, connection: _HttpProtocol) -> None:
        self.connections.leave(connection)
        self._leaving.discard(connection)
        self.is_read(connection)

    def is_unread(self, connection: _HttpProtocol) -> None:
        """Its answer is not taken."""
        self._unread[connection] = None
        while sum(each.unread_bytes for each in self._unread) > _MOST_UNREAD_BYTES:
            first, _ = self._unread.popitem(last=False)
            self.refuse("answers to HTTP requests are not read, closing the first such connection")
            first.abort()

    def is_read(self, connection: _HttpProtocol) -> None:
        self._unread.pop(connection, None)

    # For the handshakes of HTTPS.

    @property
    def handshake_seconds(self) -> float:
        return self.settings.handshake_seconds

    def has_room(self, address: str, listener: str) -> bool:  # noqa: ARG002 - as handshakes ask
        return True  # it takes another's place

    def comes_too_early(self, transport: asyncio.Transport, address: str) -> bool:  # noqa: ARG002 - as they ask
        return False

    def refuse(self, event: str, kind: str | None = None, **details: Any) -> bool:
        self.notes.warn(event, kind or event, **details)
        return False

    def count_closing(self, kind: str) -> None:
        """The metrics of connections are those of Kafka's."""

    async def answer(self, request: HttpRequest, certified: bool = False) -> HttpAnswer:
        """`certified`: the client has a certificate, and it was verified."""
        if not self._knows(request, certified):
            if request.path not in self._open_paths:
                return self._refusal()
            request = replace(request, known=False)
        route = self.routes.get(request.path)
        if route is None:
            return HttpAnswer(404, b"not found\n")
        try:
            return await route(request)
        except Exception:
            _log.exception("http request failed", path=request.path)
            return HttpAnswer(500, b"internal error\n")

    def _knows(self, request: HttpRequest, certified: bool) -> bool:
        tokens, certificates = self.settings.tokens, self.settings.client_certificates
        if tokens is None and not certificates:
            return not (self._on_loopback and is_foreign(request.host))
        return (certificates and certified) or (tokens is not None and tokens.knows(request))

    def _refusal(self) -> HttpAnswer:
        if self.settings.tokens is None:
            if not self.settings.client_certificates:
                return HttpAnswer(400, b"this is not that host: ask for localhost, or for an address\n")
            return HttpAnswer(403, b"a client certificate is needed\n")
        return HttpAnswer(401, b"a token is needed: Authorization: Bearer ...\n")


class _HttpProtocol(asyncio.BufferedProtocol):
    """One connection: a request is answered before the next one is looked at."""

    _transport: asyncio.Transport
    _owner: str
    takes_much = False

    def __init__(self, server: HttpServer, certified: bool = False) -> None:
        """`certified`: the client has a certificate, and it was verified."""
        self._server = server
        self._reader = RequestReader()
        self._busy = False  # with a request
        self._working: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._hung_up = False
        self._writable = True
        self._ended = False
        self._certified = certified
        self._was_asked = False
        self._given_up = False  # it goes with its answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self._owner = owner_of(peer[0] if isinstance(peer, tuple) else "")
        self._within(self._server.settings.request_seconds)
        self._server.join(self, self._owner)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return memoryview(self._server.scratch)

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        if not self._reader.buffered and not self._busy:
            self._within(self._server.settings.request_seconds)
        self._reader.feed(self._server.scratch[:nbytes])
        self._advance()
        if self._reader.buffered > MAX_HEAD_BYTES and not self._ended:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """A client may close its half after asking."""
        self._hung_up = True
        if self._ended:
            return False
        return self._busy or not self._writable

    @property
    def is_idle(self) -> bool:
        """It was answered, and asks nothing."""
        return self._was_asked and not self._busy and self._writable and not self._reader.buffered

    @property
    def unread_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_writing(self) -> None:
        self._writable = False
        self._server.is_unread(self)

    def resume_writing(self) -> None:
        self._writable = True
        self._server.is_read(self)
        if not self._ended:
            self._within(self._server.settings.idle_seconds)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._ended = True
        self._server.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._working is not None:
            self._working.cancel()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    def give_up(self) -> None:
        """Its place is another's, and its time to ask is over. Its request is answered first, however long
        the line is of those who ask from its address."""
        if self._busy and not self._ended:
            self._given_up = True
        else:
            self.abort()

    def _within(self, seconds: float) -> None:
        """Drop the connection unless what it waits for is there within so many seconds."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _go_on(self) -> None:
        """The last request is answered: look at what came meanwhile, and at what comes next."""
        self._advance()
        if not self._busy and self._writable and not self._ended:
            if self._hung_up:
                self._finish()
                return
            if self._reader.buffered:
                self._within(self._server.settings.request_seconds)
            self._transport.resume_reading()

    def _advance(self) -> None:
        if self._ended or self._busy or not self._writable:
            return
        try:
            request = self._reader.next()
        except BadRequest as error:
            self._send(HttpAnswer(error.status, f"{error.reason}\n".encode()), keep_alive=False, head=False)
            return
        if request is not None:
            self._was_asked = True
            self._server.use(self)
            if self._deadline is not None:
                self._deadline.cancel()
            self._busy = True
            self._server.work.put(self._owner, lambda: self._begin(request))

    def _begin(self, request: HttpRequest) -> None:
        if not self._ended:
            self._server.work.pay(1)
            self._working = asyncio.get_running_loop().create_task(self._serve(request))

    async def _serve(self, request: HttpRequest) -> None:
        answer = await self._server.answer(request, self._certified)
        self._working = None
        self._busy = False
        keep_alive = request.keep_alive and not self._given_up
        self._send(answer, keep_alive=keep_alive, head=request.method == "HEAD")
        self._go_on()

    def _send(self, answer: HttpAnswer, *, keep_alive: bool, head: bool) -> None:
        status = HTTPStatus(answer.status)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            "Cache-Control: no-store",
            f"Connection: {'keep-alive' if keep_alive else 'close'}",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        elif status is HTTPStatus.UNAUTHORIZED:
            lines.append('WWW-Authenticate: Bearer realm="dray"')
        first = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
        self._transport.writelines([first] if head else [first, answer.body])
        if self._ended:
            return
        if keep_alive:
            settings = self._server.settings
            self._within(settings.idle_seconds if self._writable else settings.request_seconds)
        else:
            self._finish()

    def _finish(self) -> None:
        """End our half and let the peer hang up, which may not take forever: closing with bytes
        unread (a body we refused) would reset the connection and lose the answer."""
        self._ended = True
        self._within(self._server.settings.request_seconds)
        if self._hung_up or not self._transport.can_write_eof():  # TLS cannot be closed by halves
            self._transport.close()
        else:
            self._transport.write_eof()
            self._transport.resume_reading()
