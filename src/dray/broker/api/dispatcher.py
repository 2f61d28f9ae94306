"""From a frame to its answer: header, version, decode, handler, encode.

Requests that Kafka would not answer are not answered here either: an API that is not advertised, a version
that is not served and whose response cannot say so, bytes that are no request. The connection is closed with
one line that names the request. An unserved version of a response with an error code of its own gets
UNSUPPORTED_VERSION; ApiVersions has its own rule, since it is sent before versions are known.

To decode takes a microsecond per element. A large frame may have as many as a request may have at all, so it
is decoded in a thread, one such frame at a time: more threads would only fight for the interpreter. Addresses
take turns at that, so that nobody waits behind all of another. Produce and Fetch stay on the loop: their
bytes are records mostly, and their elements are counted as all are. The requests of a connection still start
in the order they came.

Many requests may come at once, and a turn of the loop would take as long as all of them: what is made of many
elements pays for them, and where a turn has no room left, what is larger than a few elements waits for the
next one, by turns of addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from dray.base.runtime import FEW, FairTurns, FairWork, Runtime, TurnShare, current_share, owner_of
from dray.base.telemetry import bind_request
from dray.base.telemetry.metrics import ERROR, FAILED, OK
from dray.broker.api import api_versions
from dray.broker.api.registry import HANDLERS
from dray.broker.api.shared import (
    ClientConnection,
    Context,
    Handler,
    RefuseConnection,
    Services,
    VersionRange,
    errors_in,
)
from dray.broker.api.shared.large_answers import AnswerTooLarge
from dray.broker.api.shared.quotas import MeasuredRequest
from dray.broker.security.acls.authorization import Access, host_of
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    Buffer,
    DecodeError,
    ErrorCode,
    Request,
    RequestHeader,
    Response,
    TooManyElements,
    elements_used,
    encode_response_header,
    parse_request_header,
    response_class,
)

# --- decode: on the event loop, or in a thread

LEAN: Final = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})
"""The requests that carry records, or bring them."""

DECODED_AT_ONCE: Final = 16 * 1024
"""The largest frame of another request that is decoded on the event loop: ten milliseconds at the most."""

LIGHT: Final = 512
"""The largest frame that is taken whatever else a turn has done: it has no more elements than bytes."""

ELEMENTS_OF_A_PIECE: Final = 16
"""To read, judge and answer so many takes about as long as one piece of a crowd: 20 µs."""

MANY: Final = 2000
"""Elements of a request that is decoded when all before it are answered, and the answers taken: decoded it
takes thirty times its bytes, and so does its answer. Kafka takes all requests of a connection so."""

_DECODING: Final = "decoding"


class Decoder:
    def __init__(self, runtime: Runtime, work: FairWork) -> None:
        self._runtime = runtime
        self._turns = FairTurns(1)
        self._work = work

    def decodes_at_once(self, api_key: int, frame: memoryview, connection: ClientConnection) -> bool:
        size = len(frame)
        if _DECODING in connection.state:
            return False
        return size <= LIGHT or ((size <= DECODED_AT_ONCE or api_key in LEAN) and self._work.has_room)

    async def decoded(
        self,
        kind: type[Request[Any]],
        header: RequestHeader,
        frame: memoryview,
        position: int,
        most: int,
        connection: ClientConnection,
        is_many: bool = False,
    ) -> Request[Any]:
        """The request; those before it on the connection are decoded by then. Raises `DecodeError`.
        `is_many`: `decode` has found so."""
        state = connection.state
        before: asyncio.Event | None = state.get(_DECODING)
        done = state[_DECODING] = asyncio.Event()

        try:
            if before is not None:
                await before.wait()
            share = self._share_of(connection)
            what = kind, frame, position, header.api_version, most
            if len(frame) <= LIGHT:
                return _decoded(*what)[0]
            if len(frame) > DECODED_AT_ONCE and header.api_key not in LEAN:
                await connection.turn()
                async with self._turns.turn(share.owner):
                    request, used = await self._runtime.in_thread(_decoded, *what)
                await share.go_on(used // ELEMENTS_OF_A_PIECE)
            else:
                decode = partial(self._decoded_and_paid, *what)
                if is_many:
                    await connection.turn()
                request, used = await self._work.do(share.owner, decode)
                if used > MANY and not is_many:
                    del request
                    await connection.turn()
                    request, used = await self._work.do(share.owner, decode)
            if used > FEW:
                current_share.set(share)
            return request
        finally:
            done.set()
            if state.get(_DECODING) is done:
                del state[_DECODING]

    def decode(
        self,
        kind: type[Request[Any]],
        header: RequestHeader,
        frame: memoryview,
        position: int,
        most: int,
        connection: ClientConnection,
    ) -> Request[Any] | None:
        """The same at once, where `decodes_at_once` says so; None where there are too many elements."""
        if len(frame) <= LIGHT:
            return kind.decode(frame, position, header.api_version, most)[0]
        request, used = self._decoded_and_paid(kind, frame, position, header.api_version, most)
        if used > MANY:
            return None
        if used > FEW:
            current_share.set(self._share_of(connection))
        return request

    def _decoded_and_paid(
        self, kind: type[Request[Any]], frame: memoryview, position: int, version: int, most: int
    ) -> tuple[Request[Any], int]:
        try:
            return _decoded(kind, frame, position, version, most)
        finally:
            used = elements_used()
            if used > FEW:
                self._work.pay(used // ELEMENTS_OF_A_PIECE)

    def _share_of(self, connection: ClientConnection) -> TurnShare:
        return TurnShare(self._work, owner_of(host_of(connection.peer)))


def _decoded(
    kind: type[Request[Any]], frame: memoryview, position: int, version: int, most: int
) -> tuple[Request[Any], int]:
    """The request, and how many elements it has."""
    request, _ = kind.decode(frame, position, version, most)
    return request, elements_used()


# --- dispatch

_ACCESS: Final = "access"
_PRODUCE: Final = int(ApiKey.PRODUCE)

Observer = Callable[[int, float, str], None]
"""Called for every request that reached a handler: its API key, the seconds it took, and its outcome, one of
the `OUTCOMES` of metrics."""


class Dispatcher:
    def __init__(
        self,
        services: Services,
        handlers: Iterable[Handler] = HANDLERS,
        observer: Observer | None = None,
    ) -> None:
        self._services = services
        self._authorization = services.authorization
        self._quotas = services.throttle.table
        self._monotonic = services.runtime.monotonic
        self._observer = observer
        self._decoder = Decoder(services.runtime, services.work)
        self._most_elements = services.settings.request_elements
        self._table: dict[int, Handler] = {}
        for handler in handlers:
            if handler.api_key in self._table:
                raise ValueError(f"two handlers for {handler.request.__name__}")
            self._table[handler.api_key] = handler
        self.advertised: Sequence[VersionRange] = tuple(
            VersionRange(key, handler.advertised_from, handler.last)
            for key, handler in sorted(self._table.items())
        )

    async def dispatch(
        self,
        frame: memoryview,
        connection: ClientConnection,
        parsed: tuple[RequestHeader, int] | None = None,
    ) -> Sequence[Buffer] | None:
        """The buffers of the answer, without a size in front; None where no answer is due. `parsed`: the
        header, where it was looked at before, and where the request begins."""
        try:
            header, position = parsed or parse_request_header(frame)
        except DecodeError as error:
            raise RefuseConnection(str(error)) from None
        handler = self._table.get(header.api_key)
        version = header.api_version
        if handler is None or not handler.first <= version <= handler.last:
            return self._refuse(header, handler)
        most = min(handler.most_elements, self._most_elements)
        decoder = self._decoder
        try:
            request, at_once = None, decoder.decodes_at_once(header.api_key, frame, connection)
            if at_once:
                request = decoder.decode(handler.request, header, frame, position, most, connection)
            if request is None:
                what = handler.request, header, frame, position, most, connection
                request = await decoder.decoded(*what, is_many=at_once)
        except TooManyElements:
            named = " (limits.request_elements)" if most == self._most_elements else ""
            return _too_much(header, f"the request has more than {most} elements{named}: send fewer in one")
        except DecodeError as error:
            raise RefuseConnection(f"{error} ({_describe(header)})") from None
        bind_request(header.correlation_id, handler.name, header.client_id, connection.peer)
        access = None if self._authorization is None else self._access(connection)
        context = Context(self._services, self.advertised, header, connection, access)
        work = handler.function(context, request)
        if header.api_key not in LEAN or (header.api_key == _PRODUCE and current_share.get() is not None):
            work = _settled(context, work)
        measured = None
        if self._quotas.keys:
            measured = MeasuredRequest(context, len(frame), self._monotonic)
            work = measured.timed(work)
        started = self._monotonic()
        outcome = FAILED
        try:
            response = await work
            outcome = ERROR if context.errors else OK
        except AnswerTooLarge as error:
            return _too_much(header, str(error))
        finally:
            if self._observer is not None:
                self._observer(header.api_key, self._monotonic() - started, outcome)
        if measured is not None:
            answer = measured.answer(response)
        else:
            answer = None if response is None else response.encode(version)
        if answer is None:
            return None
        return [encode_response_header(header.api_key, version, header.correlation_id), *answer]

    def _access(self, connection: ClientConnection) -> Access:
        """The client's access. It has one principal as long as the connection lives: a client that
        authenticates again as somebody else is refused, and would be judged anew here."""
        assert self._authorization is not None
        known: tuple[Any, Access] | None = connection.state.get(_ACCESS)
        if known is None or known[0] != connection.principal:
            access = self._authorization.access(connection.principal, connection.peer)
            known = connection.state[_ACCESS] = connection.principal, access
        return known[1]

    def _refuse(self, header: RequestHeader, handler: Handler | None) -> Sequence[Buffer]:
        key, version = header.api_key, header.api_version
        if handler is None:
            raise RefuseConnection(f"this API is not served ({_describe(header)})")
        if key == ApiKey.API_VERSIONS:
            response = api_versions.unsupported(self.advertised)
            return [encode_response_header(key, 0, header.correlation_id), *response.encode(0)]
        answer = with_error(key, version, ErrorCode.UNSUPPORTED_VERSION)
        if answer is None:
            raise RefuseConnection(f"this version is not served ({_describe(header)})")
        return [encode_response_header(key, version, header.correlation_id), answer]


async def _settled(context: Context, work: Awaitable[Response | None]) -> Response | None:
    response = await work
    if response is not None:
        if context.header.api_key not in LEAN:
            for code in errors_in(response):
                context.failed(code)
        await context.encode_large(response)
    return response


def _too_much(header: RequestHeader, reason: str) -> Sequence[Buffer]:
    """The answer to a request that costs too much."""
    key, version = header.api_key, header.api_version
    answer = with_error(key, version, ErrorCode.INVALID_REQUEST, reason)
    if answer is None:
        raise RefuseConnection(f"{reason} ({_describe(header)})")
    return [encode_response_header(key, version, header.correlation_id), answer]


def with_error(api_key: int, version: int, code: ErrorCode, message: str | None = None) -> bytes | None:
    """The body of a response with this error code, if that version of the response can hold one. With the
    message, if it can hold that too."""
    kind: Any = response_class(api_key)
    if not kind.VERSIONS[0] <= version <= kind.VERSIONS[1] or not hasattr(kind, "error_code"):
        return None
    response = kind()
    response.error_code = code
    if message is not None and hasattr(kind, "error_message"):
        response.error_message = message
        return _if_understood(response, version) or with_error(api_key, version, code)
    return _if_understood(response, version)


def _if_understood(response: Response, version: int) -> bytes | None:
    """Some have an error code, but not in every version."""
    answer = b"".join(response.encode(version))
    understood, _ = type(response).decode(memoryview(answer), 0, version)
    return answer if understood == response else None


def _name_of(api_key: int) -> str:
    """The API's name, also for an API that has no messages here."""
    schema = SCHEMAS.get(api_key)
    if schema is not None:
        return schema.name
    try:
        words = ApiKey(api_key).name.split("_")
    except ValueError:
        return f"API {api_key}"
    return f"API {api_key} {''.join(word.capitalize() for word in words)}"


def _describe(header: RequestHeader) -> str:
    name = _name_of(header.api_key)
    client = "no client id" if header.client_id is None else f"client {header.client_id!r}"
    return f"{name} v{header.api_version}, correlation {header.correlation_id}, {client}"
