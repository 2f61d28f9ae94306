"""One connection to a Kafka broker: requests out, typed responses back.

It pairs requests with responses, and nothing else: `dray.kafka.client.cluster` follows leaders and tries
again.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl as tls
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, cast

from dray import __version__
from dray.kafka.client.byte_stream import ByteStream
from dray.kafka.client.errors import AuthenticationFailed, ClientError
from dray.kafka.client.login import Login
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    ErrorCode,
    ProtocolError,
    Request,
    RequestHeader,
    Response,
    encode_request_header,
    frame_message,
    parse_response_header,
    response_class,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

ResponseType = TypeVar("ResponseType", bound=Response)

DEFAULT_LARGEST_FRAME = 256 * 1024 * 1024
_TLS_ALERT = b"\x15\x03"
_OTHER_NAME = (62, 64)
"""OpenSSL's codes for a certificate of another host name or address."""


class Caller(Protocol):
    """Sends requests to one broker or another."""

    async def request(self, message: Request[ResponseType]) -> ResponseType: ...


class BrokerConnection(Protocol):
    """A connection to one broker, with its versions negotiated."""

    async def request(self, message: Request[ResponseType], version: int | None = None) -> ResponseType: ...

    def version_for(self, api_key: int) -> int: ...

    async def close(self) -> None: ...


class Dial(Protocol):
    """Connects to a broker. Code that needs brokers is given one, and only it knows how to connect."""

    async def __call__(self, host: str, port: int, /) -> BrokerConnection: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialer:
    """How the brokers of a cluster are connected to, whichever of them it is: TLS and credentials belong
    here, and are given to no other part of the client. `client.properties` makes one of what users write."""

    client_id: str | None
    tls: tls.SSLContext | None = None
    login: Login | None = None
    largest_frame: int = DEFAULT_LARGEST_FRAME
    silence_seconds: float | None = None

    async def __call__(self, host: str, port: int, /) -> KafkaConnection:
        connection = await KafkaConnection.connect(
            host,
            port,
            client_id=self.client_id,
            largest_frame=self.largest_frame,
            ssl=self.tls,
            silence_seconds=self.silence_seconds,
        )
        try:
            await connection.negotiate()
            if self.login is not None:
                await connection.authenticate(self.login)
        except BaseException:
            await connection.close()
            raise
        return connection


class _AwaitedAnswer:
    """A request on its way: what its response will be, and who waits for it."""

    __slots__ = ("api_key", "future", "version")

    def __init__(self, api_key: int, version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()


class KafkaConnection:
    """Use `connect`. Requests may be sent without waiting for earlier ones to be answered.

    A broker that stands still keeps its connections: its kernel answers for it. So with `silence_seconds` a
    connection is ended on which an answer is due and no byte has come for so long. Not a bound of the whole
    answer, which may be large and its way slow."""

    def __init__(
        self,
        stream: ByteStream,
        name: str,
        client_id: str | None,
        largest_frame: int,
        *,
        encrypted: bool = False,
        silence_seconds: float | None = None,
    ) -> None:
        self._stream = stream
        self._name = name
        self._client_id = client_id
        self._largest_frame = largest_frame
        self._correlation_ids = itertools.cycle(range(2**31))
        self._waiting: dict[int, _AwaitedAnswer] = {}
        self._versions: dict[int, int] | None = None
        self._failure: ClientError | None = None
        self._encrypted = encrypted
        self._silence_seconds = silence_seconds
        self._login: Login | None = None
        self._renew_at: float | None = None
        self._authenticating = asyncio.Lock()
        self._answered: set[int] = set()
        self._reading = asyncio.create_task(self._read(), name=f"responses of {name}")

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "dray",
        largest_frame: int = DEFAULT_LARGEST_FRAME,
        ssl: tls.SSLContext | None = None,
        silence_seconds: float | None = None,
    ) -> Self:
        try:
            async with asyncio.timeout(silence_seconds):
                stream = await ByteStream.open(host, port, ssl)
        except TimeoutError as error:
            raise ClientError(f"cannot reach {host}:{port}: {error or 'no answer in time'}") from error
        except tls.SSLCertVerificationError as error:
            hint = "connect to a name that the certificate has"
            if error.verify_code not in _OTHER_NAME:
                hint = "ssl.truststore.location must name the authority that signed it"
            raise AuthenticationFailed(
                f"the certificate of {host}:{port} is not trusted: {error.verify_message.rstrip('.')}; {hint}"
            ) from error
        except (tls.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            if ssl is None:
                raise ClientError(f"cannot reach {host}:{port}: {error}") from error
            raise ClientError(
                f"no TLS with {host}:{port}: {_reason(error)}; does it speak TLS (else security.protocol is "
                "PLAINTEXT or SASL_PLAINTEXT)?"
            ) from error
        except OSError as error:
            raise ClientError(f"cannot reach {host}:{port}: {error}") from error
        return cls(
            stream,
            f"{host}:{port}",
            client_id,
            largest_frame,
            encrypted=ssl is not None,
            silence_seconds=silence_seconds,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def request(self, message: Request[ResponseType], version: int | None = None) -> ResponseType:
        """Send a request and wait for its response; without a version, the negotiated one."""
        if self._login is not None:
            await self._renew(self._login)
        return await self._ask(message, version)

    async def _ask(self, message: Request[ResponseType], version: int | None = None) -> ResponseType:
        waiting = _AwaitedAnswer(message.API_KEY, self._version(message, version))
        try:
            await self._send(message, waiting.version, waiting)
            if self._silence_seconds is not None:
                await self._until_answered(waiting, self._silence_seconds)
            return cast(ResponseType, await waiting.future)
        finally:
            waiting.future.cancel()  # no effect on one that is done

    async def _until_answered(self, waiting: _AwaitedAnswer, silence_seconds: float) -> None:
        """Or until the broker has been silent for too long, which fails everything that waits for it."""
        while not waiting.future.done():
            received = self._stream.received
            await asyncio.wait([waiting.future], timeout=silence_seconds / 2)
            if self._stream.received == received and not waiting.future.done():
                self._stream.wake_for_any()
                await asyncio.wait([waiting.future], timeout=silence_seconds / 2)
            if self._stream.received == received and not waiting.future.done():
                self._fail(ClientError(f"{self._name} has been silent for {silence_seconds:g} s"))
                self._stream.abort()

    async def send(self, message: Request[Any], version: int | None = None) -> None:
        """Send a request that is never answered, such as Produce with acks=0."""
        if self._login is not None:
            await self._renew(self._login)
        await self._send(message, self._version(message, version), None)

    async def negotiate(self) -> ApiVersionsResponse:
        """Ask which APIs the broker serves, and settle on the highest version of each that both know."""
        request = ApiVersionsRequest(client_software_name="dray", client_software_version=__version__)
        response = await self.request(request, ApiVersionsRequest.VERSIONS[1])
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = [
                entry.max_version for entry in response.api_keys if entry.api_key == ApiKey.API_VERSIONS
            ]
            highest = min(max(served, default=0), ApiVersionsRequest.VERSIONS[1])
            response = await self.request(request, highest)
        if response.error_code:
            raise ClientError(f"{self._name} refused ApiVersions: {ErrorCode.name_of(response.error_code)}")
        self._versions = {}
        for entry in response.api_keys:
            schema = SCHEMAS.get(entry.api_key)
            if schema is None:
                continue
            version = min(entry.max_version, schema.last_version)
            if version >= max(entry.min_version, schema.first_version):
                self._versions[entry.api_key] = version
        return response

    async def authenticate(self, login: Login) -> None:
        """Say who connects, before anything but the versions is asked."""
        async with self._authenticating:
            await self._authenticate(login)

    async def _renew(self, login: Login) -> None:
        """Authenticates again where the session nears its end, or is over: a broker takes that, and nothing
        else, from a client whose session has ended. So it can wait for the next request, without a timer.
        Requests that come meanwhile wait: between the tokens there must be none."""
        if not login.is_past(self._renew_at):
            return
        async with self._authenticating:
            if login.is_past(self._renew_at):
                await self._authenticate(login)

    async def _authenticate(self, login: Login) -> None:
        try:
            self._renew_at = await login.perform(self._name, self._ask)
        except BaseException as error:
            # Also when the caller was cancelled: nothing can be asked in the middle of an exchange.
            self._fail(ClientError(str(error) or f"the authentication with {self._name} was broken off"))
            raise
        self._login = login

    def version_for(self, api_key: int) -> int:
        """The highest version of an API that both sides know."""
        if self._versions is None:
            raise ClientError(f"versions with {self._name} are not negotiated yet")
        if api_key not in self._versions:
            name = SCHEMAS[api_key].name if api_key in SCHEMAS else f"API {api_key}"
            raise ClientError(f"{self._name} serves no version of {name} that is known here")
        return self._versions[api_key]

    @property
    def is_broken(self) -> bool:
        """Nothing can be sent any more: the broker has ended it, or this side has."""
        return self._failure is not None

    def abort(self) -> None:
        """Ends it at once, whatever is unsent: `close` would wait for a broker that no longer reads."""
        self._fail(ClientError(f"the connection to {self._name} was given up"))
        self._stream.abort()

    async def close(self) -> None:
        self._fail(ClientError(f"the connection to {self._name} was closed"))
        self._reading.cancel()
        await asyncio.wait([self._reading])
        try:
            await self._stream.wait_closed()
        except OSError:
            return  # the broker closed first, and no request waits any more

    def _version(self, message: Request[Any], version: int | None) -> int:
        return self.version_for(message.API_KEY) if version is None else version

    async def _send(self, message: Request[Any], version: int, waiting: _AwaitedAnswer | None) -> None:
        if self._failure is not None:
            raise ClientError(str(self._failure))
        correlation_id = next(self._correlation_ids)
        header = RequestHeader(message.API_KEY, version, correlation_id, self._client_id)
        frame = frame_message(encode_request_header(header), message.encode(version))
        if waiting is not None:
            self._waiting[correlation_id] = waiting
        self._stream.writelines(frame)
        try:
            await self._stream.drain()
        except OSError as error:
            self._fail(ClientError(f"{self._name} broke off: {error}"))
            raise ClientError(str(self._failure)) from error

    async def _read(self) -> None:
        try:
            while True:
                announced = bytes(await self._stream.readexactly(4))
                if not self._answered and announced.startswith(_TLS_ALERT):
                    raise ClientError(f"{self._name} speaks TLS: security.protocol is SSL or SASL_SSL there")
                size = int.from_bytes(announced, "big", signed=True)
                if not 4 <= size <= self._largest_frame:
                    raise ClientError(f"{self._name} announced a response of {size} bytes")
                self._answer(await self._stream.readexactly(size))
        except ClientError as error:
            self._fail(error)
        except ProtocolError as error:
            self._fail(ClientError(f"{self._name} sent a malformed response: {error}"))
        except asyncio.IncompleteReadError:
            self._fail(ClientError(f"{self._name} closed the connection{self._guess()}"))
        except OSError as error:
            self._fail(ClientError(f"{self._name} broke off: {_reason(error)}{self._guess()}"))
        finally:
            self._fail(ClientError(f"responses of {self._name} are no longer read"))

    def _guess(self) -> str:
        """Why a broker may have ended a connection early. It cannot say so itself."""
        if not self._answered and self._encrypted:
            return " without an answer; does it ask for a certificate (ssl.keystore.location)?"
        if not self._answered:
            return " without an answer; does it speak TLS (security.protocol SSL or SASL_SSL)?"
        if self._answered == {ApiKey.API_VERSIONS} and self._login is None:
            asks = "SASL_SSL" if self._encrypted else "SASL_PLAINTEXT"
            return f"; does it ask who connects (security.protocol {asks})?"
        return ""

    def _answer(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big", signed=True)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise ClientError(f"{self._name} answered request {correlation_id}, which was never sent")
        self._answered.add(waiting.api_key)
        if waiting.future.done():
            return  # the caller was cancelled in the meantime
        try:
            waiting.future.set_result(_decode(frame, waiting.api_key, waiting.version))
        except ProtocolError:
            self._waiting[correlation_id] = waiting  # so that it fails with all the others
            raise

    def _fail(self, error: ClientError) -> None:
        if self._failure is None:
            self._failure = error
            self._stream.close()
        for waiting in self._waiting.values():
            if not waiting.future.done():
                waiting.future.set_exception(ClientError(str(error)))
                waiting.future.exception()  # seen, even by a caller that was cancelled while it sent
        self._waiting.clear()


def _reason(error: OSError) -> str:
    """Without the file and line of OpenSSL's source."""
    if isinstance(error, tls.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return str(error) or "it closed the connection"


def _decode(frame: memoryview, api_key: int, version: int) -> Response:
    _, position = parse_response_header(frame, api_key, version)
    if api_key == ApiKey.API_VERSIONS:
        # A broker that does not know our version of ApiVersions answers with the body of version 0.
        error = int.from_bytes(frame[position : position + 2], "big")
        if error == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    response, _ = response_class(api_key).decode(frame, position, version)
    return response
