"""SCRAM's server side: the vectors of RFC 7677, a client of its own making, and every way to be refused."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.services.known_users import KnownUsers

from dray.kafka.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    credential_from_salted,
    make_credential,
    mechanism_of,
    salted_password,
    verify_password,
)
from dray.kafka.sasl.server import (
    PlainExchange,
    SaslChallenge,
    SaslRefusal,
    SaslStep,
    SaslSuccess,
    SaslWork,
    ScramExchange,
    ScramState,
    random_nonce,
)

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
FINAL = f"c=biws,r={CLIENT_NONCE}{SERVER_NONCE},p={PROOF}"


def credential(
    mechanism: ScramMechanism, password: str, salt: bytes = SALT, iterations: int = 4096
) -> ScramCredential:
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_from_salted(mechanism, salted, salt, iterations)


def exchange(
    password: str = "pencil",
    mechanism: ScramMechanism = ScramMechanism.SHA_256,
    user: str = "user",
    iterations: int = 4096,
) -> ScramExchange:
    known = KnownUsers({user: {mechanism: credential(mechanism, password, iterations=iterations)}})
    return ScramExchange(mechanism, known, lambda: SERVER_NONCE)


def begun(server: ScramExchange) -> str:
    step = server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode())
    assert isinstance(step, SaslChallenge)
    return step.token.decode()


def test_the_vectors_of_rfc_7677() -> None:
    server = exchange()
    assert begun(server) == f"r={CLIENT_NONCE}{SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    step = server.evaluate(FINAL.encode())
    assert step == SaslSuccess("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert server.state is ScramState.COMPLETE


class Client:
    """The client's side, written down from the RFC: nothing of the server's is used."""

    def __init__(self, name: str, password: str, hash_name: str) -> None:
        self.bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r=abc"
        self.password = password
        self.hash_name = hash_name
        self.server_signature = b""

    def answer(self, challenge: bytes, binding: str = "biws", nonce: str | None = None) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(
            self.hash_name, self.password.encode(), b64decode(fields["s"]), int(fields["i"])
        )
        client_key = hmac.new(salted, b"Client Key", self.hash_name).digest()
        stored_key = hashlib.new(self.hash_name, client_key).digest()
        without_proof = f"c={binding},r={nonce or fields['r']}"
        message = f"{self.bare},{challenge.decode()},{without_proof}".encode()
        signature = hmac.new(stored_key, message, self.hash_name).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.new(salted, b"Server Key", self.hash_name).digest()
        self.server_signature = hmac.new(server_key, message, self.hash_name).digest()
        return f"{without_proof},p={b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", ["alice", "a=b,c", "team/reader"])
def test_a_client_by_the_book_is_let_in(mechanism: ScramMechanism, name: str) -> None:
    made = make_credential(mechanism, "päss,=word", Random(1))
    server = ScramExchange(mechanism, KnownUsers({name: {mechanism: made}}), lambda: random_nonce(Random(2)))
    client = Client(name, "päss,=word", mechanism.hash_name)
    challenge = server.evaluate(b"n,," + client.bare.encode())
    assert isinstance(challenge, SaslChallenge)
    step = server.evaluate(client.answer(challenge.token))
    assert step == SaslSuccess(name, b"v=" + b64encode(client.server_signature))


@pytest.mark.parametrize(
    ("binding", "nonce"), [("eSws", None), ("", None), ("biws", "abc"), ("biws", "abcd")]
)
def test_a_proof_over_something_else_than_was_said_is_refused(binding: str, nonce: str | None) -> None:
    """The proof is right for what the client says: but it is not what the server said."""
    made = make_credential(ScramMechanism.SHA_256, "pencil", Random(1))
    server = ScramExchange(
        ScramMechanism.SHA_256, KnownUsers({"alice": {ScramMechanism.SHA_256: made}}), lambda: "server"
    )
    client = Client("alice", "pencil", "sha256")
    challenge = server.evaluate(b"n,," + client.bare.encode())
    assert isinstance(challenge, SaslChallenge)
    assert isinstance(server.evaluate(client.answer(challenge.token, binding, nonce)), SaslRefusal)


def test_mechanisms_have_kafkas_names_and_numbers() -> None:
    assert [(each.sasl_name, int(each)) for each in ScramMechanism] == [
        ("SCRAM-SHA-256", 1),
        ("SCRAM-SHA-512", 2),
    ]
    assert mechanism_of("SCRAM-SHA-512") is ScramMechanism.SHA_512
    assert mechanism_of("SCRAM-SHA-1") is None


def test_a_client_that_says_its_own_nonce_twice_is_taken_and_no_other() -> None:
    """As librdkafka before 2.6.1 does."""

    def judged(before: str) -> object:
        server = exchange()
        challenge = begun(server)
        nonce = dict(part.split("=", 1) for part in challenge.split(","))["r"]
        client = Client("user", "pencil", "sha256")
        client.bare = f"n=user,r={CLIENT_NONCE}"
        return server.evaluate(client.answer(challenge.encode(), nonce=before + nonce))

    assert isinstance(judged(CLIENT_NONCE), SaslSuccess)
    for other in ("x", CLIENT_NONCE[1:], CLIENT_NONCE * 2):
        assert isinstance(judged(other), SaslRefusal)


REFUSED_FIRST = {
    "an unknown user": b"n,,n=other,r=abc",
    "another authorization id": b"n,a=other,n=user,r=abc",
    "channel binding": b"p=tls-unique,,n=user,r=abc",
    "no nonce": b"n,,n=user",
    "an extension that must be understood": b"n,,m=x,n=user,r=abc",
    "no name": b"n,,n=,r=abc",
    "an escape that is none": b"n,,n=us=2Der,r=abc",
    "not ASCII": "n,,n=usér,r=abc".encode(),
    "NUL": b"n,,n=us\0er,r=abc",
    "empty": b"",
    "too long": b"n,,n=user,r=" + b"a" * 5000,
}


@pytest.mark.parametrize("what", REFUSED_FIRST)
def test_a_bad_first_message_is_refused(what: str) -> None:
    server = exchange()
    assert isinstance(server.evaluate(REFUSED_FIRST[what]), SaslRefusal)
    assert server.state is ScramState.FAILED
    assert isinstance(server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode()), SaslRefusal)


REFUSED_FINAL = {
    "a wrong proof": FINAL.replace("p=dH", "p=eH"),
    "an empty proof": FINAL.replace(PROOF, ""),
    "a short proof": FINAL.replace(PROOF, "AAAA"),
    "another nonce": FINAL.replace("r=rO", "r=rP"),
    "the client's nonce alone": FINAL.replace(SERVER_NONCE, ""),
    "another channel binding": FINAL.replace("c=biws", "c=eSws"),
    "no proof": FINAL.partition(",p=")[0],
    "not base64": FINAL.replace(PROOF, "===="),
}


@pytest.mark.parametrize("what", REFUSED_FINAL)
def test_a_bad_final_message_is_refused(what: str) -> None:
    server = exchange()
    begun(server)
    assert isinstance(server.evaluate(REFUSED_FINAL[what].encode()), SaslRefusal)
    assert isinstance(server.evaluate(FINAL.encode()), SaslRefusal)


def test_a_wrong_password_is_refused() -> None:
    server = exchange(password="penzil")
    begun(server)
    assert isinstance(server.evaluate(FINAL.encode()), SaslRefusal)


def test_a_proof_is_good_for_one_nonce() -> None:
    known = KnownUsers({"user": {ScramMechanism.SHA_256: credential(ScramMechanism.SHA_256, "pencil")}})
    server = ScramExchange(ScramMechanism.SHA_256, known, lambda: "another")
    begun(server)
    assert isinstance(server.evaluate(FINAL.encode()), SaslRefusal)


def test_a_credential_of_one_mechanism_is_not_used_for_the_other() -> None:
    known = KnownUsers({"user": {ScramMechanism.SHA_512: credential(ScramMechanism.SHA_512, "pencil")}})
    server = ScramExchange(ScramMechanism.SHA_256, known, lambda: SERVER_NONCE)
    assert isinstance(server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode()), SaslRefusal)


def test_few_iterations_are_not_accepted_even_if_stored() -> None:
    server = exchange(iterations=4095)
    assert isinstance(server.evaluate(f"n,,n=user,r={CLIENT_NONCE}".encode()), SaslRefusal)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_are_too_strange(first: bytes, second: bytes) -> None:
    server = exchange()
    assert isinstance(server.evaluate(first), (SaslChallenge, SaslRefusal))
    server = exchange()
    begun(server)
    assert isinstance(server.evaluate(second), SaslRefusal)


def test_nonces_are_long_and_differ() -> None:
    random = Random(3)
    nonces = {random_nonce(random) for _ in range(100)}
    assert len(nonces) == 100
    assert {len(nonce) for nonce in nonces} == {40}


# --- PLAIN


def plain(token: bytes, password: str = "pencil") -> SaslStep:
    made = {ScramMechanism.SHA_512: credential(ScramMechanism.SHA_512, password)}
    step = PlainExchange(KnownUsers({"user": made})).evaluate(token)
    return step.work() if isinstance(step, SaslWork) else step


def test_plain_is_verified_against_the_scram_credential() -> None:
    assert plain(b"\0user\0pencil") == SaslSuccess("user")
    assert plain(b"user\0user\0pencil") == SaslSuccess("user")
    assert plain("\0user\0pä".encode(), "pä") == SaslSuccess("user")


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0user\0pencil2", "Authentication failed: Invalid username or password"),
        (b"\0other\0pencil", "Authentication failed: Invalid username or password"),
        (b"\0user\0\xff", "Authentication failed: Invalid username or password"),
        (b"\0\0pencil", "Authentication failed: username not specified"),
        (b"\0user\0", "Authentication failed: password not specified"),
        (b"user\0pencil", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0user\0pencil\0more", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 100, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (
            b"other\0user\0pencil",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
    ],
)
def test_plain_is_refused_in_kafkas_words(token: bytes, message: str) -> None:
    step = plain(token)
    assert isinstance(step, SaslRefusal)
    assert step.message == message


@pytest.mark.parametrize("last", ScramMechanism)
def test_plain_takes_the_password_that_was_set_last(last: ScramMechanism) -> None:
    """kafka-configs.sh sets them one by one: what was changed must not be taken any more."""
    set_one_by_one = {
        each: credential(each, "new" if each is last else "old")
        for each in sorted(ScramMechanism, key=lambda each: each is last)
    }
    for password, wanted in (("new", SaslSuccess), ("old", SaslRefusal)):
        step = PlainExchange(KnownUsers({"user": set_one_by_one})).evaluate(f"\0user\0{password}".encode())
        assert isinstance(step, SaslWork)
        assert isinstance(step.work(), wanted)


def test_an_unknown_user_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a user as `drayd admin user add` makes it."""
    made = {each: credential(each, "pencil") for each in (ScramMechanism.SHA_512, ScramMechanism.SHA_256)}
    hashed: list[tuple[str, int]] = []
    genuine = hashlib.pbkdf2_hmac

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        hashed.append((name, iterations))
        return genuine(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    for user in ("nobody", "user"):
        step = PlainExchange(KnownUsers({"user": made})).evaluate(f"\0{user}\0wrong".encode())
        assert isinstance(step, SaslWork)
        assert isinstance(step.work(), SaslRefusal)
    assert hashed == [("sha256", 4096)] * 2


def test_a_credential_verifies_its_password_and_shows_no_secret() -> None:
    made = make_credential(ScramMechanism.SHA_256, "pencil", Random(1))
    assert verify_password(ScramMechanism.SHA_256, made, "pencil")
    assert not verify_password(ScramMechanism.SHA_256, made, "Pencil")
    assert repr(made) == "ScramCredential(iterations=4096)"
