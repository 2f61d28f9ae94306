"""SASL from the client's side: the vectors of RFC 7677, our own server, and others."""

from __future__ import annotations

from base64 import b64encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.known_users import KnownUsers

from dray.kafka.sasl.client import (
    MECHANISMS,
    ClientCredential,
    PlainClient,
    ScramClient,
    ScramClientState,
    ServerNotTrusted,
    begin_exchange,
)
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.kafka.sasl.server import SaslChallenge, SaslRefusal, SaslSuccess, ScramExchange

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient(ScramMechanism.SHA_256, "user", "pencil", CLIENT_NONCE)


def begun() -> ScramClient:
    made = client()
    made.begin()
    return made


def proven() -> ScramClient:
    made = begun()
    made.answer(SERVER_FIRST.encode())
    return made


def test_the_vectors_of_rfc_7677() -> None:
    made = client()
    assert made.begin() == f"n,,n=user,r={CLIENT_NONCE}".encode()
    assert made.answer(SERVER_FIRST.encode()) == CLIENT_FINAL.encode()
    assert not made.is_complete
    assert made.answer(SERVER_FINAL.encode()) is None
    assert made.is_complete


def known(user: str, mechanism: ScramMechanism, password: str) -> KnownUsers:
    return KnownUsers({user: {mechanism: make_credential(mechanism, password, Random(1), 5000)}})


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "team/reader"])
def test_our_server_and_our_client_agree(mechanism: ScramMechanism, user: str) -> None:
    server = ScramExchange(mechanism, known(user, mechanism, "päss,=word"), lambda: "server")
    made = begin_exchange(ClientCredential(mechanism.sasl_name, user, "päss,=word"), Random(2))
    challenge = server.evaluate(made.begin())
    assert isinstance(challenge, SaslChallenge)
    proof = made.answer(challenge.token)
    assert proof is not None
    success = server.evaluate(proof)
    assert isinstance(success, SaslSuccess)
    assert success.user == user
    assert made.answer(success.token) is None
    assert made.is_complete


def test_our_server_refuses_a_wrong_password() -> None:
    server = ScramExchange(
        ScramMechanism.SHA_512, known("alice", ScramMechanism.SHA_512, "right"), lambda: "server"
    )
    made = begin_exchange(ClientCredential("SCRAM-SHA-512", "alice", "wrong"), Random(2))
    challenge = server.evaluate(made.begin())
    assert isinstance(challenge, SaslChallenge)
    assert isinstance(server.evaluate(made.answer(challenge.token) or b""), SaslRefusal)


NOT_TRUSTED_FIRST = {
    "another nonce": SERVER_FIRST.replace("r=rO", "r=rP"),
    "only our nonce": SERVER_FIRST.replace("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""),
    "few iterations": SERVER_FIRST.replace("4096", "4095"),
    "endless iterations": SERVER_FIRST.replace("4096", "1000001"),
    "iterations that are no number": SERVER_FIRST.replace("4096", "-4096"),
    "a salt that is no base64": SERVER_FIRST.replace("W22Z", "W22*"),
    "an extension that must be understood": f"m=x,{SERVER_FIRST}",
    "a signature at once": SERVER_FINAL,
    "nothing": "",
    "not ASCII": SERVER_FIRST + "é",
    "too long": SERVER_FIRST + ",x=" + "a" * 5000,
}


@pytest.mark.parametrize("what", NOT_TRUSTED_FIRST)
def test_a_bad_challenge_is_not_answered(what: str) -> None:
    made = begun()
    with pytest.raises(ServerNotTrusted):
        made.answer(NOT_TRUSTED_FIRST[what].encode())
    assert made.state is ScramClientState.FAILED
    with pytest.raises(ServerNotTrusted):
        made.answer(SERVER_FIRST.encode())


NOT_TRUSTED_FINAL = {
    "a wrong signature": "v=" + b64encode(b"\0" * 32).decode(),
    "an empty signature": "v=",
    "an error": "e=other-error",
    "nothing": "",
    "the challenge again": SERVER_FIRST,
}


@pytest.mark.parametrize("what", NOT_TRUSTED_FINAL)
def test_a_server_that_does_not_know_the_password_is_not_trusted(what: str) -> None:
    made = proven()
    with pytest.raises(ServerNotTrusted):
        made.answer(NOT_TRUSTED_FINAL[what].encode())
    assert not made.is_complete
    with pytest.raises(ServerNotTrusted):
        made.answer(SERVER_FINAL.encode())


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(token: bytes) -> None:
    for made in (begun(), proven()):
        with pytest.raises(ServerNotTrusted):
            made.answer(token)


def test_plain_says_it_in_one_token() -> None:
    made = PlainClient("alice", "secret")
    assert made.begin() == b"\0alice\0secret"
    assert not made.is_complete
    made.answer(b"")
    assert made.is_complete
    with pytest.raises(ServerNotTrusted):
        PlainClient("alice", "secret").answer(b"more")


def test_every_mechanism_begins_and_no_credential_shows_its_password() -> None:
    for mechanism in MECHANISMS:
        credential = ClientCredential(mechanism, "alice", "hunter2")
        assert b"alice" in begin_exchange(credential, Random(1)).begin()
        assert "hunter2" not in repr(credential)
