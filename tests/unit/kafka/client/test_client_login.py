"""A client that says who it is: once, again before its session ends, and what becomes of it when refused."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from random import Random

import pytest
from tests.services.certificates import make_certificates
from tests.services.known_users import KnownUsers
from tests.unit.kafka.client.client_fakes import Clock, FrameBroker, Write, answer, running

from dray.kafka.client import AuthenticationFailed, ClientError, Cluster, Dialer
from dray.kafka.client.login import Login
from dray.kafka.client.properties import parse_security
from dray.kafka.protocol import ApiKey, ErrorCode, RequestHeader
from dray.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from dray.kafka.sasl.client import ClientCredential
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.kafka.sasl.server import SaslChallenge, SaslSuccess, ScramExchange

PASSWORD = "correct-horse"
WORDS = "Authentication failed\nduring authentication"
HANDSHAKE, TOKEN, METADATA = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA


KNOWN = KnownUsers(
    {"alice": {ScramMechanism.SHA_256: make_credential(ScramMechanism.SHA_256, PASSWORD, Random(1))}}
)


class SaslBroker:
    """Answers with the server's own exchange."""

    def __init__(self, lifetime_ms: int = 0) -> None:
        self.lifetime_ms = lifetime_ms
        self.handshake = SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
        self.signature: bytes | None = None
        self.hold = asyncio.Event()
        self.hold.set()
        self._exchange = self._begin()

    def _begin(self) -> ScramExchange:
        return ScramExchange(ScramMechanism.SHA_256, KNOWN, lambda: "server")

    async def __call__(self, header: RequestHeader, body: memoryview, write: Write) -> None:
        if header.api_key == ApiKey.API_VERSIONS:
            served = [
                ApiVersion(api_key=METADATA, min_version=0, max_version=9),
                ApiVersion(api_key=HANDSHAKE, min_version=0, max_version=1),
                ApiVersion(api_key=TOKEN, min_version=0, max_version=2),
            ]
            write(answer(header, ApiVersionsResponse(api_keys=served)))
        elif header.api_key == HANDSHAKE:
            asked, _ = SaslHandshakeRequest.decode(body, 0, header.api_version)
            assert asked.mechanism == "SCRAM-SHA-256"
            self._exchange = self._begin()
            write(answer(header, self.handshake))
        elif header.api_key == TOKEN:
            await self.hold.wait()
            said, _ = SaslAuthenticateRequest.decode(body, 0, header.api_version)
            write(answer(header, self._judged(said.auth_bytes)))
        else:
            write(answer(header, MetadataResponse(cluster_id="here")))

    def _judged(self, token: bytes) -> SaslAuthenticateResponse:
        step = self._exchange.evaluate(bytes(token))
        if isinstance(step, SaslChallenge):
            return SaslAuthenticateResponse(auth_bytes=step.token)
        if isinstance(step, SaslSuccess):
            return SaslAuthenticateResponse(
                auth_bytes=self.signature or step.token, session_lifetime_ms=self.lifetime_ms
            )
        return SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=WORDS)


def dialer(clock: Clock, password: str = PASSWORD) -> Dialer:
    login = Login(ClientCredential("SCRAM-SHA-256", "alice", password), clock)
    return Dialer(client_id="somebody", login=login)


def keys(broker: FrameBroker) -> list[int]:
    return [header.api_key for header in broker.requests]


ONCE = [HANDSHAKE, TOKEN, TOKEN]


async def test_a_client_says_who_it_is_before_it_asks() -> None:
    async with running(SaslBroker()) as broker:
        connection = await dialer(Clock())("127.0.0.1", broker.port)
        assert (await connection.request(MetadataRequest(topics=None))).cluster_id == "here"
        assert keys(broker) == [ApiKey.API_VERSIONS, *ONCE, METADATA]
        assert [header.api_version for header in broker.requests[1:4]] == [1, 2, 2]
        await connection.close()


async def test_a_session_is_renewed_by_the_next_request_before_it_ends() -> None:
    clock = Clock()
    async with running(SaslBroker(lifetime_ms=10_000)) as broker:
        connection = await dialer(clock)("127.0.0.1", broker.port)
        clock.now = 8.4
        await connection.request(MetadataRequest(topics=None))
        assert keys(broker)[4:] == [METADATA]
        clock.now = 8.6
        await connection.request(MetadataRequest(topics=None))
        await connection.request(MetadataRequest(topics=None))
        assert keys(broker)[5:] == [*ONCE, METADATA, METADATA]
        await connection.close()


async def test_a_session_without_an_end_is_never_renewed() -> None:
    clock = Clock()
    async with running(SaslBroker()) as broker:
        connection = await dialer(clock)("127.0.0.1", broker.port)
        clock.now = 1e9
        await connection.request(MetadataRequest(topics=None))
        assert keys(broker)[4:] == [METADATA]
        await connection.close()


async def test_no_request_is_sent_between_the_tokens() -> None:
    clock = Clock()
    sasl = SaslBroker(lifetime_ms=10_000)
    async with running(sasl) as broker:
        connection = await dialer(clock)("127.0.0.1", broker.port)
        clock.now = 9.0
        await asyncio.gather(*(connection.request(MetadataRequest(topics=None)) for _ in range(3)))
        assert keys(broker)[4:] == [*ONCE, METADATA, METADATA, METADATA]
        await connection.close()


async def test_an_exchange_that_was_broken_off_ends_the_connection() -> None:
    clock = Clock()
    sasl = SaslBroker(lifetime_ms=10_000)
    async with running(sasl) as broker:
        connection = await dialer(clock)("127.0.0.1", broker.port)
        clock.now = 9.0
        sasl.hold.clear()
        broker.asked.clear()
        asking = asyncio.create_task(connection.request(MetadataRequest(topics=None)))
        async with asyncio.timeout(60):
            while keys(broker)[-1] != TOKEN or len(broker.requests) < 6:
                await broker.asked.wait()
                broker.asked.clear()
        asking.cancel()
        await asyncio.wait([asking])
        sasl.hold.set()
        with pytest.raises(ClientError, match="was broken off"):
            await connection.request(MetadataRequest(topics=None))
        await connection.close()


async def test_a_wrong_password_is_one_line_and_is_not_tried_again() -> None:
    clock = Clock()
    async with running(SaslBroker()) as broker:
        cluster = Cluster([("127.0.0.1", broker.port)], dialer(clock, "wrong-horse"), clock)
        with pytest.raises(AuthenticationFailed) as caught:
            await cluster.patiently(lambda: cluster.learn(None), 60)
        words = "refused user alice: Authentication failed during authentication"
        assert str(caught.value) == f"127.0.0.1:{broker.port} {words}"
        assert keys(broker).count(HANDSHAKE) == 1
        async with asyncio.timeout(60):
            await broker.client_gone.wait()


async def test_a_broker_that_does_not_know_the_password_is_not_trusted() -> None:
    sasl = SaslBroker()
    sasl.signature = b"v=AAAA"
    async with running(sasl) as broker:
        with pytest.raises(AuthenticationFailed, match="is not trusted: its SCRAM signature is wrong"):
            await dialer(Clock())("127.0.0.1", broker.port)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "does not take SCRAM-SHA-256; it takes SCRAM-SHA-256"),
        (ErrorCode.ILLEGAL_SASL_STATE, "does not ask who connects"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "refused SaslHandshake: UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_a_refused_handshake(code: int, words: str) -> None:
    sasl = SaslBroker()
    sasl.handshake.error_code = code
    async with running(sasl) as broker:
        with pytest.raises(ClientError, match=words):
            await dialer(Clock())("127.0.0.1", broker.port)


# --- a listener that is of another kind


async def closing(header: RequestHeader, _body: memoryview, write: Write) -> None:
    if header.api_key == ApiKey.API_VERSIONS:
        served = [ApiVersion(api_key=METADATA, min_version=0, max_version=9)]
        write(answer(header, ApiVersionsResponse(api_keys=served)))
    else:
        raise asyncio.IncompleteReadError(b"", 1)


async def test_a_broker_that_closes_on_a_stranger() -> None:
    async with running(closing) as broker:
        connection = await Dialer(client_id=None)("127.0.0.1", broker.port)
        with pytest.raises(ClientError, match=r"does it ask who connects \(security.protocol SASL_PLAINTEXT"):
            await connection.request(MetadataRequest(topics=None))
        await connection.close()


@pytest.mark.parametrize(
    ("reply", "words"),
    [(b"\x15\x03\x03\x00\x02\x02\x46", "speaks TLS"), (b"", "without an answer; does it speak TLS")],
)
async def test_a_listener_with_tls_to_a_client_without(reply: bytes, words: str) -> None:
    async def handler(_header: RequestHeader, _body: memoryview, write: Write) -> None:
        write(reply)
        raise asyncio.IncompleteReadError(b"", 1)

    async with running(handler) as broker:
        with pytest.raises(ClientError, match=words):
            await Dialer(client_id=None)("127.0.0.1", broker.port)


async def test_a_listener_without_tls_to_a_client_with() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        with pytest.raises(ClientError, match=r"no TLS with 127\.0\.0\.1"):
            await Dialer(client_id=None, tls=ssl.create_default_context())(
                "127.0.0.1", server.sockets[0].getsockname()[1]
            )


async def test_a_certificate_of_an_unknown_authority_or_another_name(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(made.certificate, made.key)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.2", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(AuthenticationFailed, match=r"is not trusted: .*; ssl.truststore.location must"):
            await Dialer(client_id=None, tls=ssl.create_default_context())("127.0.0.2", port)
        known = ssl.create_default_context(cafile=made.authority)
        with pytest.raises(AuthenticationFailed, match="connect to a name that the certificate has"):
            await Dialer(client_id=None, tls=known)("127.0.0.2", port)


async def test_a_client_shows_its_certificate_where_it_is_asked_to(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=made.authority)
    serving.load_cert_chain(made.certificate, made.key)
    serving.verify_mode = ssl.CERT_REQUIRED
    store = tmp_path / "client.pem"
    store.write_text(made.key.read_text() + made.certificate.read_text())
    broker = FrameBroker(closing)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=serving)
    port = server.sockets[0].getsockname()[1]
    given = {"security.protocol": "SSL", "ssl.truststore.location": str(made.authority)}
    clock = Clock()
    async with server:
        shown = parse_security(given | {"ssl.keystore.location": str(store)}).dialer("me", clock)
        connection = await shown("127.0.0.1", port)
        assert connection.version_for(METADATA) == 9
        await connection.close()
        with pytest.raises(ClientError, match=r"does it ask for a certificate \(ssl.keystore.location\)"):
            await parse_security(given).dialer("me", clock)("127.0.0.1", port)
