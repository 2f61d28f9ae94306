"""From a frame to its answer: header, version, decode, handler, encode.

What Kafka would not answer is not answered here either: an API that is not advertised, a version that is
not served and whose response cannot say so, bytes that are no request. The connection is closed with one
line that names the request. An unserved version of a response with an error code of its own gets
UNSUPPORTED_VERSION; ApiVersions has its own rule, since it is sent before versions are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dray.api import api_versions
from dray.api.registry import HANDLERS
from dray.api.shared import ClientConnection, Context, Handler, RefuseConnection, Services, VersionRange
from dray.api.shared.quotas import MeasuredRequest
from dray.protocol import (
    SCHEMAS,
    ApiKey,
    Buffer,
    DecodeError,
    ErrorCode,
    RequestHeader,
    encode_response_header,
    parse_request_header,
    response_class,
)
from dray.security.acls.authorization import Access
from dray.telemetry import bind_request

_ACCESS: Final = "access"

Observer = Callable[[int, float, bool], None]
"""Called for every request that reached a handler: its API key, the seconds it took, whether it ended
well."""


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
        self._table: dict[int, Handler] = {}
        for handler in handlers:
            if handler.api_key in self._table:
                raise ValueError(f"two handlers for {handler.request.__name__}")
            self._table[handler.api_key] = handler
        self.advertised: Sequence[VersionRange] = tuple(
            VersionRange(key, handler.advertised_from, handler.last)
            for key, handler in sorted(self._table.items())
        )

    async def dispatch(self, frame: memoryview, connection: ClientConnection) -> Sequence[Buffer] | None:
        """The buffers of the answer, without a size in front; None where no answer is due."""
        try:
            header, position = parse_request_header(frame)
        except DecodeError as error:
            raise RefuseConnection(str(error)) from None
        handler = self._table.get(header.api_key)
        version = header.api_version
        if handler is None or not handler.first <= version <= handler.last:
            return self._refuse(header, handler)
        try:
            request, _ = handler.request.decode(frame, position, version)
        except DecodeError as error:
            raise RefuseConnection(f"{error} ({_describe(header)})") from None
        bind_request(header.correlation_id, handler.name, header.client_id, connection.peer)
        access = None if self._authorization is None else self._access(connection)
        context = Context(self._services, self.advertised, header, connection, access)
        work = handler.function(context, request)
        measured = None
        if self._quotas.keys:
            measured = MeasuredRequest(context, len(frame), self._monotonic)
            work = measured.timed(work)
        started = self._monotonic()
        ended_well = False
        try:
            response = await work
            ended_well = True
        finally:
            if self._observer is not None:
                self._observer(header.api_key, self._monotonic() - started, ended_well)
        if measured is not None:
            answer = measured.answer(response)
        else:
            answer = None if response is None else response.encode(version)
        if answer is None:
            return None
        return [encode_response_header(header.api_key, version, header.correlation_id), *answer]

    def _access(self, connection: ClientConnection) -> Access:
        """What the client may do. It has one principal as long as the connection lives: who authenticates
        again as somebody else is refused, and would be judged anew here."""
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


def with_error(api_key: int, version: int, code: ErrorCode) -> bytes | None:
    """The body of a response with this error code, if that version of the response can hold one."""
    kind: Any = response_class(api_key)
    if not kind.VERSIONS[0] <= version <= kind.VERSIONS[1] or not hasattr(kind, "error_code"):
        return None
    response = kind()
    response.error_code = code
    answer = b"".join(response.encode(version))
    understood, _ = kind.decode(memoryview(answer), 0, version)
    return answer if understood == response else None  # some have an error code, but not in every version


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
