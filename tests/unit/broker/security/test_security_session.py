"""The states of an authentication: what each expects, and what ends the connection."""

from __future__ import annotations

import pytest

from dray.broker.security.sasl import (
    EndConnection,
    HandshakeAnswer,
    SaslAnswer,
    SaslRejection,
    SaslSession,
    SaslState,
)
from dray.kafka.sasl.server import SaslChallenge, SaslRefusal, SaslStep, SaslSuccess

WALL = 1_000_000


class Scripted:
    """An exchange of two tokens: who the second names is let in."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self.expires_ms = expires_ms
        self.tokens: list[bytes] = []

    def evaluate(self, token: bytes) -> SaslStep:
        self.tokens.append(token)
        if token == b"bad":
            return SaslRefusal("a wrong password", user="alice")
        if token == b"first":
            return SaslChallenge(b"go on")
        return SaslSuccess(token.decode(), b"done", self.expires_ms)


def session(longest: int = 0, expires_ms: int | None = None) -> SaslSession:
    return SaslSession(
        {"ONE": lambda: Scripted(expires_ms), "TWO": lambda: Scripted(expires_ms)}, longest_session_ms=longest
    )


def token(machine: SaslSession, token: bytes, now: float = 0.0) -> SaslAnswer | SaslRejection:
    return machine.conclude(machine.token(token), now, WALL)


def complete(machine: SaslSession, now: float = 0.0) -> SaslSession:
    assert machine.handshake(1, "ONE", now) == HandshakeAnswer(supported=True)
    token(machine, b"alice", now)
    return machine


def test_the_way_in() -> None:
    machine = session()
    machine.api_versions(answered_well=True)
    assert machine.state is SaslState.HANDSHAKE
    assert machine.handshake(1, "ONE", 0.0) == HandshakeAnswer(supported=True)
    assert machine.state is SaslState.AUTHENTICATE
    assert token(machine, b"first") == SaslAnswer(b"go on")
    assert not machine.is_complete
    assert machine.principal is None
    assert token(machine, b"alice") == SaslAnswer(b"done", 0, complete=True)
    assert machine.is_complete
    assert machine.principal == "User:alice"
    assert not machine.is_expired(1e9)


def test_api_versions_comes_once_unless_it_was_refused() -> None:
    machine = session()
    machine.api_versions(answered_well=False)
    machine.api_versions(answered_well=True)
    with pytest.raises(EndConnection):
        machine.api_versions(answered_well=True)
    assert machine.state is SaslState.FAILED


def test_an_unknown_mechanism_fails() -> None:
    machine = session()
    assert machine.handshake(1, "THREE", 0.0) == HandshakeAnswer(supported=False)
    assert machine.mechanisms == ["ONE", "TWO"]
    assert machine.state is SaslState.FAILED
    with pytest.raises(EndConnection):
        machine.token(b"alice")


def test_nothing_but_tokens_while_authenticating() -> None:
    for interrupt in (
        lambda machine: machine.handshake(1, "ONE", 0.0),
        lambda machine: machine.api_versions(answered_well=True),
    ):
        machine = session()
        machine.handshake(1, "ONE", 0.0)
        with pytest.raises(EndConnection):
            interrupt(machine)
        assert machine.state is SaslState.FAILED


def test_no_token_without_a_handshake() -> None:
    with pytest.raises(EndConnection):
        session().token(b"alice")
    with pytest.raises(EndConnection):
        complete(session()).token(b"alice")


def test_version_0_brings_raw_tokens() -> None:
    machine = session()
    machine.handshake(0, "ONE", 0.0)
    assert machine.raw_tokens
    machine = session()
    machine.handshake(1, "ONE", 0.0)
    assert not machine.raw_tokens


def test_a_refused_client_hears_nothing_of_the_reason() -> None:
    machine = session()
    machine.handshake(1, "ONE", 0.0)
    refused = token(machine, b"bad")
    assert refused == SaslRejection(
        "Authentication failed during authentication due to invalid credentials with SASL mechanism ONE",
        "a wrong password",
        "alice",
    )
    assert machine.state is SaslState.FAILED
    assert machine.principal is None


# --- sessions that end (KIP-368)


@pytest.mark.parametrize(
    ("longest", "expires_ms", "lifetime"),
    [
        (0, None, 0),
        (5000, None, 5000),
        (0, WALL + 3000, 3000),
        (5000, WALL + 3000, 3000),
        (5000, WALL + 9000, 5000),
        (5000, WALL - 1, 0),
    ],
)
def test_a_session_lasts_as_long_as_the_credential_and_the_setting(
    longest: int, expires_ms: int | None, lifetime: int
) -> None:
    machine = session(longest, expires_ms)
    machine.handshake(1, "ONE", 10.0)
    accepted = token(machine, b"alice", 10.0)
    assert isinstance(accepted, SaslAnswer)
    assert accepted.lifetime_ms == lifetime
    ends = longest > 0 or expires_ms is not None
    assert machine.is_expired(10.0 + lifetime / 1000) is ends
    assert not machine.is_expired(10.0 + lifetime / 1000 - 0.001)


def test_authenticating_again_renews_the_session() -> None:
    machine = complete(session(5000), 0.0)
    assert machine.is_expired(5.0)
    assert machine.handshake(1, "ONE", 5.5) == HandshakeAnswer(supported=True)
    assert machine.state is SaslState.AUTHENTICATE
    assert machine.principal == "User:alice", "what is under way was begun by it"
    assert token(machine, b"alice", 5.5) == SaslAnswer(b"done", 5000, complete=True)
    assert not machine.is_expired(6.0)


def test_another_principal_fails() -> None:
    machine = complete(session())
    machine.handshake(1, "ONE", 5.0)
    refused = token(machine, b"bob")
    assert isinstance(refused, SaslRejection)
    assert refused.message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert machine.state is SaslState.FAILED


def test_another_mechanism_is_answered_and_ends_at_the_next_word() -> None:
    machine = complete(session())
    assert machine.handshake(1, "TWO", 5.0) == HandshakeAnswer(supported=True)
    assert machine.state is SaslState.WRONG_MECHANISM
    with pytest.raises(EndConnection):
        machine.token(b"alice")


def test_a_wrong_password_at_re_authentication_fails_by_name() -> None:
    machine = complete(session())
    machine.handshake(1, "ONE", 5.0)
    refused = token(machine, b"bad")
    assert isinstance(refused, SaslRejection)
    assert "during re-authentication due to" in refused.message


def test_authenticating_again_and_again_is_refused() -> None:
    machine = complete(session())
    assert machine.handshake(1, "ONE", 5.0) is not None
    token(machine, b"alice", 5.0)
    assert machine.handshake(1, "ONE", 5.9) is None
    assert machine.is_complete
    assert machine.handshake(1, "ONE", 6.0) is not None
