"""A small HTTP/1.1 server for operators: routes in, answers out, everything bounded."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import structlog

from dray.server.handshakes import Handshakes
from dray.server.http_access import BearerTokens, is_foreign, is_loopback
from dray.server.http_requests import MAX_HEAD_BYTES, BadRequest, HttpRequest, RequestReader
from dray.server.notes import RateLimitedLog
from dray.server.server import AddressInUse
from dray.server.tls_layer import TlsLayer

if TYPE_CHECKING:
    from dray.runtime import Runtime
    from dray.server.encryption import Encryption

_log = structlog.get_logger(__name__)

TEXT = "text/plain; charset=utf-8"
_RECEIVE_BYTES: Final = 2 * MAX_HEAD_BYTES


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
    request_seconds: float = 10.0
    """How long a request may take to arrive whole, and its answer to be taken."""
    idle_seconds: float = 60.0
    """How long a connection may be idle between two requests."""
    handshake_seconds: float = 10.0
    encryption: Callable[[], Encryption] | None = None
    """Makes that of a new connection; None: plain HTTP."""
    tokens: BearerTokens | None = None
    client_certificates: bool = False
    """Clients are asked for one; it counts as much as a token. Where neither is asked for, all clients may
    read everything."""


class HttpServer:
    """Serves exact paths. A route that fails is a 500 and one logged traceback. `open_paths` are those that
    also answer clients with neither token nor certificate; they see that by `HttpRequest.known`. Where
    neither is asked for, at an address of this machine alone, such a client is a page from elsewhere in a
    browser here: it calls this server by another name."""

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
        self.connections: set[_HttpProtocol] = set()
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
            self._accepting = await asyncio.get_running_loop().create_server(self._protocol, host, port)
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
        # Who shows a certificate gets here only if it is good.
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
        for connection in list(self.connections):
            connection.abort()
        await self.runtime.sleep(0)

    # For the handshakes of HTTPS.

    @property
    def handshake_seconds(self) -> float:
        return self.settings.handshake_seconds

    def has_room(self, address: str, listener: str) -> bool:  # noqa: ARG002 - as handshakes ask
        most = self.settings.max_connections
        return len(self.connections) < most or self.refuse("too many connections, refusing more", limit=most)

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
    takes_much = False

    def __init__(self, server: HttpServer, certified: bool = False) -> None:
        """`certified`: the client has a certificate, and it was verified."""
        self._server = server
        self._reader = RequestReader()
        self._working: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._hung_up = False
        self._writable = True
        self._ended = False
        self._certified = certified

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if len(self._server.connections) >= self._server.settings.max_connections:
            self._ended = True
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._within(self._server.settings.request_seconds)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return memoryview(self._server.scratch)

    def buffer_updated(self, nbytes: int) -> None:
        if self._ended:
            return
        if not self._reader.buffered and self._working is None:
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
        return self._working is not None or not self._writable

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._ended = True
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._working is not None:
            self._working.cancel()

    def abort(self) -> None:
        self._ended = True
        self._transport.abort()

    def _within(self, seconds: float) -> None:
        """Drop the connection unless what it waits for is there within so many seconds."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _go_on(self) -> None:
        """The last request is answered: look at what came meanwhile, and at what comes next."""
        self._advance()
        if self._working is None and self._writable and not self._ended:
            if self._hung_up:
                self._finish()
                return
            if self._reader.buffered:
                self._within(self._server.settings.request_seconds)
            self._transport.resume_reading()

    def _advance(self) -> None:
        if self._ended or self._working is not None or not self._writable:
            return
        try:
            request = self._reader.next()
        except BadRequest as error:
            self._send(HttpAnswer(error.status, f"{error.reason}\n".encode()), keep_alive=False, head=False)
            return
        if request is not None:
            if self._deadline is not None:
                self._deadline.cancel()
            self._working = asyncio.get_running_loop().create_task(self._serve(request))

    async def _serve(self, request: HttpRequest) -> None:
        answer = await self._server.answer(request, self._certified)
        self._working = None
        self._send(answer, keep_alive=request.keep_alive, head=request.method == "HEAD")
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
        self._transport.write(
            "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + (b"" if head else answer.body)
        )
        if keep_alive:
            self._within(self._server.settings.idle_seconds)
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
