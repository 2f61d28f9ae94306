"""Stands before the dispatcher on listeners with authentication: no request passes until the client is known.

`SaslSession` knows the states; here frames become its events, and its steps become answers. Until a client
is known, and while it authenticates again (KIP-368), its requests are taken strictly one after the other:
each waits for its turn, and is judged by what the one before it came to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from dray.base.runtime import FairTurns, Runtime, owner_of
from dray.broker.api.dispatcher import Dispatcher, with_error
from dray.broker.api.shared.context import ClientConnection
from dray.broker.api.shared.errors import RefuseConnection
from dray.broker.security.acls.authorization import host_of
from dray.broker.security.audit import AUTHENTICATE, LISTENER, AuditedAct, AuditLog
from dray.broker.security.failed_logins import FailedLogins
from dray.broker.security.principals import user as principal_of
from dray.broker.security.sasl import (
    REFUSAL_DELAY_SECONDS,
    EndConnection,
    SaslAnswer,
    SaslRejection,
    SaslSession,
    SaslState,
)
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    Buffer,
    DecodeError,
    ErrorCode,
    RequestHeader,
    encode_response_header,
    parse_request_header,
)
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from dray.kafka.sasl.server import SaslWork

_STATE: Final = "sasl"
AUTHENTICATION: Final = "authentication"
"""The kind of connections that end since a login failed."""
_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2)
_LONGEST_SHOWN: Final = 100
LARGEST_BEFORE_LOGIN: Final = 4096
"""Bytes of a request that only prepares for a login. SaslAuthenticate brings a token, and may be larger."""
MOST_ELEMENTS_BEFORE_LOGIN: Final = 100
"""In a request of a client that is not known: tagged fields, since these requests have no arrays."""
_AT_ONCE: Final = 4
"""How many passwords and tokens are verified in threads at once: unknown clients must not take all threads
from the stores. Addresses take turns, so that nobody waits behind all of another; one whose logins fail has
one turn at a time."""

Answer = Sequence[Buffer] | None
RequestType = TypeVar("RequestType", SaslHandshakeRequest, SaslAuthenticateRequest)


class _Authentication:
    """The state of one connection: its session, and the requests that wait for an authentication."""

    __slots__ = ("_waiting", "authenticating", "session")

    def __init__(self, session: SaslSession) -> None:
        self.session = session
        self.authenticating = 0
        """Requests that are part of an authentication, or came in the middle of one."""
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait while the client authenticates again: for a request of a known client. All that wait go on
        together, in the order they came. If each waited for its turn instead, it would wait for the answer to
        the one before."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def done(self) -> None:
        self.authenticating -= 1
        if not self.authenticating:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)


class SaslGate:
    """`sessions` makes the session of a new connection, by the name of its listener; others pass."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: Mapping[str, Callable[[], SaslSession]],
        runtime: Runtime,
        audit: AuditLog | None = None,
    ) -> None:
        self._audit = audit
        self._dispatcher = dispatcher
        self._sessions = sessions
        self._runtime = runtime
        self._failed = FailedLogins(runtime.monotonic)
        self.turns = FairTurns(_AT_ONCE, lambda address: 1 if self._failed.is_failing(address) else _AT_ONCE)

    async def dispatch(self, frame: memoryview, connection: ClientConnection) -> Answer:
        make = self._sessions.get(connection.listener)
        if make is None:
            return await self._dispatcher.dispatch(frame, connection)
        authentication: _Authentication | None = connection.state.get(_STATE)
        if authentication is None:
            authentication = connection.state[_STATE] = _Authentication(make())
        session = authentication.session
        if session.is_complete and frame[:2] != _HANDSHAKE:
            if authentication.authenticating:
                await authentication.wait()
            return await self._pass(session, frame, connection)
        # Before anything is awaited: later requests must see that they have to wait.
        authentication.authenticating += 1
        try:
            await connection.turn()
            if not session.is_complete or frame[:2] == _HANDSHAKE:
                return await self._one_by_one(session, frame, connection)
        except EndConnection as error:
            raise RefuseConnection(str(error)) from None
        finally:
            authentication.done()
        return await self._pass(session, frame, connection)

    async def _pass(self, session: SaslSession, frame: memoryview, connection: ClientConnection) -> Answer:
        if not session.is_complete:
            raise RefuseConnection("a request came behind an authentication that failed")
        if session.is_expired(self._runtime.monotonic()):
            raise RefuseConnection("the session of the client has expired, and it did not authenticate again")
        _check_known(session)
        answer = await self._dispatcher.dispatch(frame, connection)
        _check_known(session)  # some requests wait for long
        return answer

    async def _one_by_one(
        self, session: SaslSession, frame: memoryview, connection: ClientConnection
    ) -> Answer:
        if session.state is SaslState.AUTHENTICATE and session.raw_tokens:
            return await self._raw_token(session, frame, connection)
        try:
            header, position = parse_request_header(frame)
        except DecodeError as error:
            raise RefuseConnection(
                f"{error} (is the client set up for SASL, as this listener asks for?)"
            ) from None
        key = header.api_key
        if len(frame) > LARGEST_BEFORE_LOGIN and key != ApiKey.SASL_AUTHENTICATE:
            raise RefuseConnection(
                f"{_name(key)} of {len(frame)} bytes: before a login, requests but SaslAuthenticate may have "
                f"{LARGEST_BEFORE_LOGIN}"
            )
        if session.state in (SaslState.AUTHENTICATE, SaslState.WRONG_MECHANISM):
            return await self._token(session, header, frame, position, connection)
        if key == ApiKey.SASL_HANDSHAKE:
            return await self._handshake(session, header, frame, position, connection)
        if key != ApiKey.API_VERSIONS:
            raise session.unexpected(_name(key))
        answer = await self._dispatcher.dispatch(frame, connection, (header, position))
        assert answer is not None
        session.api_versions(answered_well=_error_of_api_versions(answer) == ErrorCode.NONE)
        return answer

    async def _handshake(
        self,
        session: SaslSession,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        connection: ClientConnection,
    ) -> Answer:
        if header.api_version not in (0, 1):
            raise session.unexpected("SaslHandshake of a version that is not served")
        request = _decoded(SaslHandshakeRequest, frame, position, header.api_version)
        answered = session.handshake(header.api_version, request.mechanism, self._runtime.monotonic())
        if answered is None:
            return await self._dispatcher.dispatch(frame, connection, (header, position))
        response = SaslHandshakeResponse(mechanisms=session.mechanisms)
        if answered.supported:
            return _framed(header, response)
        response.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        await self._runtime.sleep(REFUSAL_DELAY_SECONDS)
        raise RefuseConnection(
            f"the client wants the SASL mechanism {request.mechanism[:_LONGEST_SHOWN]!r}; served are "
            f"{', '.join(session.mechanisms)}",
            _framed(header, response),
        )

    async def _token(
        self,
        session: SaslSession,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        connection: ClientConnection,
    ) -> Answer:
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            body = None
            if header.api_key in SCHEMAS and session.state is SaslState.AUTHENTICATE:
                body = with_error(header.api_key, header.api_version, ErrorCode.ILLEGAL_SASL_STATE)
            refusal = session.unexpected(_name(header.api_key))
            answer = None if body is None else [_header_of(header), body]
            raise RefuseConnection(str(refusal), answer)
        if not 0 <= header.api_version <= 2:
            raise session.unexpected("SaslAuthenticate of a version that is not served")
        request = _decoded(SaslAuthenticateRequest, frame, position, header.api_version)
        outcome = await self._evaluated(session, bytes(request.auth_bytes), connection)
        if isinstance(outcome, SaslAnswer):
            return _framed(
                header,
                SaslAuthenticateResponse(
                    error_message=None, auth_bytes=outcome.token, session_lifetime_ms=outcome.lifetime_ms
                ),
            )
        response = SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=outcome.message
        )
        raise RefuseConnection(_line(outcome), _framed(header, response), AUTHENTICATION)

    async def _raw_token(
        self, session: SaslSession, frame: memoryview, connection: ClientConnection
    ) -> Answer:
        outcome = await self._evaluated(session, bytes(frame), connection)
        if isinstance(outcome, SaslAnswer):
            return [outcome.token]
        raise RefuseConnection(_line(outcome), kind=AUTHENTICATION)

    async def _evaluated(
        self, session: SaslSession, token: bytes, connection: ClientConnection
    ) -> SaslAnswer | SaslRejection:
        step = session.token(token)
        began = self._runtime.monotonic()
        address = owner_of(host_of(connection.peer))
        if isinstance(step, SaslWork):
            async with self.turns.turn(address):
                began = self._runtime.monotonic()
                step = await self._runtime.in_thread(step.work)
        is_known = session.principal is not None
        outcome = session.conclude(step, self._runtime.monotonic(), self._runtime.wall_ms())
        if isinstance(outcome, SaslRejection):
            self._note(session, connection, outcome)
            self._failed.failed(address)
            # As Kafka: a client that guesses passwords has to wait for each answer. The time of the hashing
            # is part of that and does not show: it differs by mechanism and iterations, and so by user.
            passed = self._runtime.monotonic() - began
            await self._runtime.sleep(max(0.0, REFUSAL_DELAY_SECONDS - passed))
        elif outcome.complete:
            if not is_known:  # else it renews its session, and does so all the time
                self._note(session, connection)
            connection.principal = session.principal
            connection.welcome()
        return outcome

    def _note(
        self, session: SaslSession, connection: ClientConnection, rejection: SaslRejection | None = None
    ) -> None:
        """In the audit log. A client that failed has the name that it claimed."""
        if self._audit is None:
            return
        principal, about = session.principal or "", session.mechanism
        if rejection is not None:
            principal = principal if rejection.user is None else principal_of(rejection.user)
            about = f"{about}: {rejection.reason}"
        host = host_of(connection.peer)
        self._audit.note(
            AuditedAct(rejection is None, principal, host, AUTHENTICATE, LISTENER, connection.listener, about)
        )


def _check_known(session: SaslSession) -> None:
    """Raises `RefuseConnection` where the client's user was deleted since it authenticated."""
    if session.is_revoked():
        raise RefuseConnection(f"{session.principal} was deleted")


def _decoded(kind: type[RequestType], frame: memoryview, position: int, version: int) -> RequestType:
    try:
        request, _ = kind.decode(frame, position, version, MOST_ELEMENTS_BEFORE_LOGIN)
    except DecodeError as error:
        raise RefuseConnection(f"{error} (in {kind.__name__})") from None
    return request


def _framed(
    header: RequestHeader, response: SaslHandshakeResponse | SaslAuthenticateResponse
) -> Sequence[Buffer]:
    return [_header_of(header), *response.encode(header.api_version)]


def _header_of(header: RequestHeader) -> Buffer:
    return encode_response_header(header.api_key, header.api_version, header.correlation_id)


def _error_of_api_versions(answer: Sequence[Buffer]) -> int:
    """The error code. It stands behind the correlation id in every version."""
    return int.from_bytes(b"".join(bytes(buffer[:6]) for buffer in answer[:2])[4:6], signed=True)


def _line(rejection: SaslRejection) -> str:
    who = "" if rejection.user is None else f" (user {rejection.user[:_LONGEST_SHOWN]!r})"
    return f"authentication failed: {rejection.reason}{who}"


def _name(api_key: int) -> str:
    return SCHEMAS[api_key].name if api_key in SCHEMAS else f"API {api_key}"
