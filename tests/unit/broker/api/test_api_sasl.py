"""Who has not said who it is gets nothing: the gate before the dispatcher, frame by frame."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services.authorization_cases import Place, produced
from tests.unit.broker.api.fakes import FakeConnection, Harness, frame, running
from tests.unit.broker.topics.fakes import eventually

from dray.base.telemetry.logs import LogFormat, configure_logging
from dray.broker.api import dispatcher
from dray.broker.api.shared import RefuseConnection, sasl_gate
from dray.broker.api.shared.sasl_gate import LARGEST_BEFORE_LOGIN, MOST_ELEMENTS_BEFORE_LOGIN, SaslGate
from dray.broker.security.audit import AuditedAct, AuditLog
from dray.broker.security.sasl import SaslSession
from dray.broker.security.users import Upsertion
from dray.kafka.protocol import ErrorCode, Request, RequestHeader, Response, parse_request_header
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.protocol.wire import write_tags
from dray.kafka.sasl import server
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.kafka.sasl.server import PlainExchange

LISTENER = "OUTSIDE"
GOOD, BAD = b"\0alice\0pencil", b"\0alice\0penzil"


class QueuedConnection(FakeConnection):
    """One whose requests wait for their turn: `answered` gives it to the next."""

    def __init__(self) -> None:
        super().__init__(LISTENER)
        self.queue: list[asyncio.Future[None]] = []
        self.first = True

    async def turn(self) -> None:
        if self.first:
            self.first = False
            return
        self.queue.append(asyncio.get_running_loop().create_future())
        await self.queue[-1]

    def answered(self) -> None:
        if self.queue:
            self.queue.pop(0).set_result(None)
        else:
            self.first = True


class Gate:
    def __init__(self, broker: Harness, longest_session_ms: int = 0) -> None:
        self.broker = broker
        self.now = 0.0
        self.work_takes = 0.0
        self.slept: list[float] = []

        def make() -> SaslSession:
            server: Callable[[], Any] = lambda: PlainExchange(broker.users)  # noqa: E731
            return SaslSession({"PLAIN": server}, longest_session_ms=longest_session_ms)

        self.audited: list[AuditedAct] = []
        audit = AuditLog(self.monotonic, lambda act, *_: self.audited.append(act))
        self.gate = SaslGate(broker.dispatcher, {LISTENER: make}, self, audit)  # type: ignore[arg-type]
        self.connection = FakeConnection(LISTENER)

    # The gate's runtime: no time passes but what a test says.

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def monotonic(self) -> float:
        return self.now

    def wall_ms(self) -> int:
        return round(self.now * 1000)

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        done = await self.broker.runtime.in_thread(work)
        self.now += self.work_takes
        return done

    # What a client does.

    async def ask(self, request: Request[Any], version: int, connection: FakeConnection | None = None) -> Any:
        answer = await self.gate.dispatch(frame(request, version), connection or self.connection)
        assert answer is not None
        return self.broker.decode(request, version, answer)

    async def refused(self, request: Request[Any], version: int) -> tuple[str, Response | None]:
        with pytest.raises(RefuseConnection) as refusal:
            await self.ask(request, version)
        answer: Sequence[Any] | None = refusal.value.answer
        return refusal.value.reason, None if answer is None else self.broker.decode(request, version, answer)

    async def log_in(self, token: bytes = GOOD) -> Any:
        await self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


@asynccontextmanager
async def gated(longest_session_ms: int = 0) -> AsyncIterator[Gate]:
    async with running() as broker:
        credential = make_credential(ScramMechanism.SHA_256, "pencil", Random(1))
        await broker.users.put(Upsertion("alice", ScramMechanism.SHA_256, credential))
        yield Gate(broker, longest_session_ms)


async def test_a_client_that_says_who_it_is_is_let_in() -> None:
    async with gated() as gate:
        assert (
            await gate.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        ).api_keys
        handshake = await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (handshake.error_code, handshake.mechanisms) == (0, ["PLAIN"])
        assert (gate.connection.principal, gate.connection.welcomed) == (None, 0)
        answer = await gate.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert (gate.connection.principal, gate.connection.welcomed) == ("User:alice", 1)
        assert (await gate.ask(MetadataRequest(topics=[]), 12)).brokers


@pytest.mark.parametrize("asked", [MetadataRequest(topics=[]), SaslAuthenticateRequest(auth_bytes=GOOD)])
async def test_nothing_else_comes_first(asked: Request[Any]) -> None:
    async with gated() as gate:
        reason, answer = await gate.refused(asked, 1)
        assert "has not authenticated" in reason
        assert answer is None
        assert gate.broker.observed == []


async def test_other_listeners_are_not_asked() -> None:
    async with gated() as gate:
        assert (await gate.ask(MetadataRequest(topics=[]), 12, FakeConnection())).brokers


async def test_a_wrong_password_is_answered_late_and_ends_the_connection() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        reason, answer = await gate.refused(SaslAuthenticateRequest(auth_bytes=BAD), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[union-attr]
        assert answer.error_message == "Authentication failed: Invalid username or password"  # type: ignore[union-attr]
        assert reason == "authentication failed: a wrong password (user 'alice')"
        assert gate.slept == [0.1]
        assert gate.connection.principal is None
        assert gate.connection.welcomed == 0
        for request in (MetadataRequest(topics=[]), SaslAuthenticateRequest(auth_bytes=GOOD)):
            await gate.refused(request, 1)
        with pytest.raises(RefuseConnection):
            await gate.log_in()


@pytest.mark.parametrize("token", [BAD, b"\0nobody\0pencil"])
@pytest.mark.parametrize("work_takes", [0.001, 0.009])
async def test_how_long_the_hashing_took_does_not_show(token: bytes, work_takes: float) -> None:
    async with gated() as gate:
        gate.work_takes = work_takes
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        await gate.refused(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert gate.now + sum(gate.slept) == pytest.approx(0.1)


async def test_an_unknown_mechanism_is_answered_with_those_that_are_served() -> None:
    async with gated() as gate:
        _, answer = await gate.refused(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM  # type: ignore[union-attr]
        assert answer.mechanisms == ["PLAIN"]  # type: ignore[union-attr]


async def test_api_versions_is_answered_once() -> None:
    async with gated() as gate:
        good = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        bad = ApiVersionsRequest(client_software_name="-", client_software_version="")
        assert (await gate.ask(bad, 3)).error_code == ErrorCode.INVALID_REQUEST
        assert (await gate.ask(good, 3)).error_code == 0
        await gate.refused(good, 3)


def tagged(request: Request[Any], version: int, count: int) -> memoryview:
    """With so many tagged fields that nobody knows, behind the request."""
    fields = bytearray()
    write_tags(fields, [(number, bytearray()) for number in range(count)])
    return memoryview(bytearray(bytes(frame(request, version))[:-1] + fields))


VERSIONS = ApiVersionsRequest(client_software_name="x", client_software_version="1")


async def test_before_a_login_requests_are_small() -> None:
    """500 kB of tagged fields held the event loop for 0.17 s, whoever sent them."""
    async with gated() as gate:
        named = ApiVersionsRequest(client_software_name="x" * 3000, client_software_version="1")
        assert (await gate.ask(named, 3)).error_code == 0
    for request, version in ((VERSIONS, 3), (SaslHandshakeRequest(mechanism="PLAIN" * 820), 1)):
        async with gated() as gate:
            sent = tagged(request, version, 2500) if version == 3 else frame(request, version)
            assert len(sent) > LARGEST_BEFORE_LOGIN
            with pytest.raises(RefuseConnection, match=f"may have {LARGEST_BEFORE_LOGIN}"):
                await gate.gate.dispatch(sent, gate.connection)


async def test_a_token_may_be_large_and_has_few_tagged_fields() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        _, answer = await gate.refused(SaslAuthenticateRequest(auth_bytes=b"\0alice\0" + b"x" * 100_000), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED  # type: ignore[union-attr]
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        sent = tagged(SaslAuthenticateRequest(auth_bytes=GOOD), 2, MOST_ELEMENTS_BEFORE_LOGIN + 1)
        with pytest.raises(RefuseConnection, match="SaslAuthenticateRequest"):
            await gate.gate.dispatch(sent, gate.connection)


async def test_the_header_of_a_stranger_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def parse(sent: memoryview) -> tuple[RequestHeader, int]:
        parsed.append(len(sent))
        return parse_request_header(sent)

    for module in (dispatcher, sasl_gate):
        monkeypatch.setattr(module, "parse_request_header", parse)
    async with gated() as gate:
        await gate.ask(VERSIONS, 3)
        assert len(parsed) == 1


async def test_a_request_in_the_middle_is_illegal() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        _, answer = await gate.refused(ApiVersionsRequest(), 0)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE  # type: ignore[union-attr]
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        _, answer = await gate.refused(MetadataRequest(topics=[]), 1)
        assert answer is None


async def test_raw_tokens_after_a_handshake_of_version_0() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        assert await gate.gate.dispatch(memoryview(bytearray(GOOD)), gate.connection) == [b""]
        assert gate.connection.principal == "User:alice"
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises(RefuseConnection) as refusal:
            await gate.gate.dispatch(memoryview(bytearray(BAD)), gate.connection)
        assert refusal.value.answer is None


@pytest.mark.parametrize("junk", [b"", b"\0", b"GET / HTTP/1.1", struct.pack(">hh", 17, 9) + b"\0" * 9])
async def test_what_is_no_request_ends_the_connection(junk: bytes) -> None:
    async with gated() as gate:
        with pytest.raises(RefuseConnection):
            await gate.gate.dispatch(memoryview(bytearray(junk)), gate.connection)


# --- again (KIP-368)


async def test_an_expired_session_ends_with_the_next_request() -> None:
    async with gated(longest_session_ms=5000) as gate:
        assert (await gate.log_in()).session_lifetime_ms == 5000
        gate.now = 4.9
        await gate.ask(MetadataRequest(topics=[]), 12)
        gate.now = 5.0
        reason, _ = await gate.refused(MetadataRequest(topics=[]), 12)
        assert "expired" in reason


async def test_authenticating_again_renews_it() -> None:
    async with gated(longest_session_ms=5000) as gate:
        for beginning in (0.0, 5.5, 10.0):
            gate.now = beginning
            assert (await gate.log_in()).session_lifetime_ms == 5000
            gate.now = beginning + 4.0
            await gate.ask(MetadataRequest(topics=[]), 12)


async def test_authenticating_again_at_once_is_illegal() -> None:
    async with gated() as gate:
        await gate.log_in()
        gate.now = 5.0
        await gate.log_in()
        gate.now = 5.5
        refused = await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
        token = await gate.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        assert token.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await gate.ask(MetadataRequest(topics=[]), 12)).brokers


async def test_what_is_pipelined_waits_and_is_judged_by_what_came_before() -> None:
    """All frames at once, as an eager client sends them: none may overtake."""
    async with gated() as gate:
        connection = QueuedConnection()
        frames = [
            frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
            frame(SaslAuthenticateRequest(auth_bytes=GOOD), 2),
            frame(MetadataRequest(topics=[]), 12),
            frame(MetadataRequest(topics=[]), 12),
        ]
        tasks = [asyncio.ensure_future(gate.gate.dispatch(each, connection)) for each in frames]
        for number, task in enumerate(tasks):
            for other in tasks[number + 1 :]:
                assert not other.done()
            assert await asyncio.wait_for(asyncio.shield(task), 60) is not None
            connection.answered()
        assert connection.principal == "User:alice"


async def test_what_is_pipelined_behind_a_refusal_is_refused() -> None:
    async with gated() as gate:
        connection = QueuedConnection()
        frames = [
            frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
            frame(SaslAuthenticateRequest(auth_bytes=BAD), 2),
            frame(MetadataRequest(topics=[]), 12),
        ]
        tasks = [asyncio.ensure_future(gate.gate.dispatch(each, connection)) for each in frames]
        await tasks[0]
        for task in tasks[1:]:
            connection.answered()
            with pytest.raises(RefuseConnection):
                await asyncio.wait_for(task, 60)
        assert 3 not in [key for key, _ in gate.broker.observed]


async def test_a_known_clients_requests_wait_while_it_authenticates_again_and_then_go_side_by_side() -> None:
    async with gated() as gate:
        connection = QueuedConnection()
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, connection)
        connection.answered()
        await gate.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2, connection)
        gate.now = 5.0  # a request before is unanswered: `first` is not given back
        again = asyncio.ensure_future(gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, connection))
        await asyncio.sleep(0)
        behind = asyncio.ensure_future(gate.ask(MetadataRequest(topics=[]), 12, connection))
        await asyncio.sleep(0.01)
        assert not again.done()
        assert not behind.done(), "it is not judged by the old standing"
        connection.answered()
        assert (await again).error_code == 0
        with pytest.raises(RefuseConnection):
            await asyncio.wait_for(behind, 60)


async def test_a_user_that_was_deleted_is_served_no_longer() -> None:
    async with gated() as gate:
        await gate.log_in()
        assert (await gate.ask(MetadataRequest(topics=[]), 12)).brokers
        await gate.broker.users.delete("alice", ScramMechanism.SHA_256)
        reason, answer = await gate.refused(MetadataRequest(topics=[]), 12)
        assert (reason, answer) == ("User:alice was deleted", None)
        topic = await gate.broker.topics.ensure("t")
        await gate.refused(produced(Place("t", topic.topic_id, "g", "")), 9)
        assert not gate.broker.log.appended, "refused before anything is done"


async def test_a_user_that_is_deleted_while_a_request_waits_does_not_see_the_answer() -> None:
    async with gated() as gate:
        await gate.log_in()
        topic = await gate.broker.topics.ensure("t")
        gate.broker.log.held = asyncio.Event()
        wanted = FetchTopic(topic.topic_id, "t", [FetchPartition(0, partition_max_bytes=9)])
        waiting = asyncio.create_task(
            gate.ask(FetchRequest(max_wait_ms=9, min_bytes=1, max_bytes=9, topics=[wanted]), 12)
        )
        await eventually(lambda: gate.broker.log.fetches)
        await gate.broker.users.delete("alice", ScramMechanism.SHA_256)
        gate.broker.log.held.set()
        with pytest.raises(RefuseConnection, match="User:alice was deleted"):
            await waiting


async def test_a_new_password_ends_no_session() -> None:
    """As with Kafka: the client did prove who it is."""
    async with gated() as gate:
        await gate.log_in()
        for mechanism in ScramMechanism:
            credential = make_credential(mechanism, "another", Random(2))
            await gate.broker.users.put(Upsertion("alice", mechanism, credential))
            assert (await gate.ask(MetadataRequest(topics=[]), 12)).brokers


@pytest.mark.parametrize("password", ["pencil", "another"])
async def test_a_user_that_was_added_again_is_not_the_one_that_was_deleted(password: str) -> None:
    """Nothing is asked in between: the gap itself is not seen."""
    async with gated() as gate:
        await gate.log_in()
        await gate.broker.users.delete("alice", ScramMechanism.SHA_256)
        credential = make_credential(ScramMechanism.SHA_256, password, Random(1))
        await gate.broker.users.put(Upsertion("alice", ScramMechanism.SHA_256, credential))
        reason, _ = await gate.refused(MetadataRequest(topics=[]), 12)
        assert reason == "User:alice was deleted"


async def test_no_secret_in_what_is_told() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        with pytest.raises(RefuseConnection) as refusal:
            await gate.ask(SaslAuthenticateRequest(auth_bytes=b"\0mallory\0hunter2"), 2)
        told = f"{refusal.value!r} {refusal.value.reason} {refusal.value.__context__!r}"
        assert "hunter2" not in told


@pytest.mark.parametrize("format", ["json", "console"])
async def test_no_secret_in_a_traceback(format: LogFormat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake of ours in the middle of an authentication: what is logged of it names no value."""

    def broken(*_: object) -> bool:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(server, "verify_password", broken)
    stream = io.StringIO()
    secret = "hunter2"
    token = f"\0alice\0{secret}".encode()
    async with gated() as gate:
        configure_logging(format, "debug", gate.broker.runtime, stream)
        try:
            await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            await gate.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        except RuntimeError:
            structlog.get_logger().exception("a request failed")
    logged = stream.getvalue()
    assert "a mistake" in logged
    assert "in verify" in logged, "the traceback"
    assert secret not in logged


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from([None, 0, 1]))
def test_no_frames_are_too_strange(frames: list[bytes], version: int | None) -> None:
    """From the beginning or within an authentication: an answer or the end, and nobody is let in."""

    async def scenario() -> None:
        async with gated() as gate:
            if version is not None:
                await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
            for payload in frames:
                with suppress(RefuseConnection):
                    await gate.gate.dispatch(memoryview(bytearray(payload)), gate.connection)
            assert gate.connection.principal is None
            assert gate.connection.welcomed == 0

    asyncio.run(scenario())


WHERE = ("127.0.0.1", "AUTHENTICATE", "LISTENER", LISTENER)


async def test_logins_are_in_the_audit_log_and_so_are_those_that_fail() -> None:
    async with gated(longest_session_ms=1000) as gate:
        await gate.log_in()
        assert gate.audited == [(True, "User:alice", *WHERE, "PLAIN")]
        gate.now = 10.0
        await gate.log_in()
        assert len(gate.audited) == 1, "it is the same client"
        for token, claimed in ((BAD, "User:alice"), (b"\0nobody\0x", "User:nobody"), (b"none", "")):
            gate.connection = FakeConnection(LISTENER)
            await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            with pytest.raises(RefuseConnection) as refusal:
                await gate.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert refusal.value.kind == "authentication"
            act = gate.audited.pop()
            assert act[:6] == (False, claimed, *WHERE)
            assert act.about.startswith("PLAIN: ")
            assert "penzil" not in act.about


async def test_a_login_that_fails_with_raw_tokens_is_in_the_audit_log() -> None:
    async with gated() as gate:
        await gate.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        with pytest.raises(RefuseConnection) as refusal:
            await gate.gate.dispatch(memoryview(BAD), gate.connection)
        assert refusal.value.kind == "authentication"
        assert [act[:6] for act in gate.audited] == [(False, "User:alice", *WHERE)]
