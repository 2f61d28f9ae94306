"""OAUTHBEARER: tokens that are signed by a key of the set, and everything else."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from jwt import PyJWS
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from dray.broker.security.jwks import ClaimRules, InvalidKeySet, InvalidToken, KeySet, UnknownKey, owner_of
from dray.broker.security.sasl import OAuthBearerExchange
from dray.kafka.sasl.server import SaslChallenge, SaslRefusal, SaslStep, SaslSuccess, SaslWork

NOW = 1_800_000_000_000
EXPIRES = NOW // 1000 + 60
CLAIMS = {"sub": "alice", "exp": EXPIRES, "iat": NOW // 1000 - 1}
INVALID = b'{"status":"invalid_token"}'


@cache
def private(kind: str) -> Any:
    if kind.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if kind == "rsa-small" else 2048)
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return ed25519.Ed25519PrivateKey.generate()


def jwk(kind: str, **more: str) -> dict[str, Any]:
    public = private(kind).public_key()
    algorithm: Any = {"rsa": RSAAlgorithm, "ec": ECAlgorithm}.get(kind.partition("-")[0], OKPAlgorithm)
    return {**algorithm.to_jwk(public, as_dict=True), "kid": kind, **more}


def key_set(*keys: dict[str, Any]) -> KeySet:
    return KeySet(json.dumps({"keys": keys or [jwk("rsa"), jwk("ec"), jwk("ed")]}).encode())


def signed(
    kind: str = "rsa", algorithm: str = "RS256", claims: dict[str, Any] | None = None, **header: Any
) -> str:
    return PyJWS().encode(
        json.dumps(CLAIMS if claims is None else claims).encode(),
        private(kind),
        algorithm,
        {"kid": kind, **header},
    )


def part(fields: dict[str, Any]) -> bytes:
    return urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=")


@pytest.mark.parametrize(
    ("kind", "algorithm"), [("rsa", "RS256"), ("rsa", "PS512"), ("ec", "ES256"), ("ed", "EdDSA")]
)
def test_what_a_key_of_the_set_signed_is_believed(kind: str, algorithm: str) -> None:
    assert key_set().verified(signed(kind, algorithm)) == CLAIMS


def test_none_is_refused() -> None:
    for algorithm in ("none", "None", "NONE"):
        header = part({"alg": algorithm, "kid": "rsa"})
        token = b".".join([header, part(CLAIMS), b""]).decode()
        with pytest.raises(InvalidToken):
            key_set().verified(token)


def test_a_public_key_is_no_shared_secret() -> None:
    """HS256, with the bytes of the public key as its secret: everybody has those."""
    public = private("rsa").public_key()
    for encoding in (serialization.Encoding.PEM, serialization.Encoding.DER):
        secret = public.public_bytes(encoding, serialization.PublicFormat.SubjectPublicKeyInfo)
        for header in (part({"alg": "HS256", "kid": "rsa"}), part({"alg": "HS256"})):
            message = header + b"." + part(CLAIMS)
            mac = urlsafe_b64encode(hmac.new(secret, message, hashlib.sha256).digest()).rstrip(b"=")
            with pytest.raises(InvalidToken):
                key_set().verified((message + b"." + mac).decode())


def test_the_algorithm_is_the_keys() -> None:
    with pytest.raises(InvalidToken):
        key_set().verified(signed("ec", "ES256", kid="rsa"))
    only = key_set(jwk("rsa", alg="RS256"))
    assert only.verified(signed("rsa", "RS256")) == CLAIMS
    with pytest.raises(InvalidToken):
        only.verified(signed("rsa", "RS512"))


def test_another_key_of_the_same_name_is_not_believed() -> None:
    with pytest.raises(InvalidToken):
        key_set().verified(signed("rsa-other", kid="rsa"))


def test_a_changed_token_is_not_believed() -> None:
    header, payload, signature = signed().split(".")
    other = part({**CLAIMS, "sub": "root"}).decode()
    with pytest.raises(InvalidToken):
        key_set().verified(f"{header}.{other}.{signature}")
    with pytest.raises(InvalidToken):
        key_set().verified(f"{header}.{payload}.")


def test_an_unknown_key_is_told_apart() -> None:
    with pytest.raises(UnknownKey):
        key_set(jwk("ec")).verified(signed())


def test_a_token_that_names_no_key_needs_a_single_fitting_one() -> None:
    token = PyJWS().encode(json.dumps(CLAIMS).encode(), private("rsa"), "RS256")
    assert key_set().verified(token) == CLAIMS
    with pytest.raises(InvalidToken):
        key_set(jwk("rsa"), jwk("rsa-other")).verified(token)


def test_what_a_token_must_have_understood_is_refused() -> None:
    with pytest.raises(InvalidToken):
        key_set().verified(signed(crit=["exp"]))


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys": 1}',
        b'{"keys": []}',
        b'{"keys": [1, {}, {"kty": "RSA"}]}',
        json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "x"}]}).encode(),
        b'{"keys": ["' + b"x" * 300_000 + b'"]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_key_set(document: bytes) -> None:
    with pytest.raises(InvalidKeySet, match=r"^[^\n]{1,200}$"):
        KeySet(document)


def test_small_keys_and_keys_for_encryption_are_left_out() -> None:
    assert len(key_set(jwk("rsa"), jwk("rsa-small"), jwk("ec", use="enc"))) == 1


# --- claims

RULES = ClaimRules(frozenset({"dray", "kafka"}), "https://id")
GOOD = {**CLAIMS, "aud": ["other", "dray"], "iss": "https://id"}


def test_a_good_token_names_its_owner() -> None:
    owner = owner_of(GOOD, RULES, NOW)
    assert (owner.name, owner.expires_ms) == ("alice", EXPIRES * 1000)
    assert owner_of({**GOOD, "aud": "kafka"}, RULES, NOW).name == "alice"
    assert owner_of({**CLAIMS, "email": " a@b "}, ClaimRules(subject_claim="email"), NOW).name == "a@b"


def test_skew_is_forgiven_and_no_more() -> None:
    at = NOW // 1000
    assert owner_of({**CLAIMS, "exp": at - 29}, ClaimRules(), NOW)
    assert owner_of({**CLAIMS, "nbf": at + 29}, ClaimRules(), NOW)
    for claims in ({**CLAIMS, "exp": at - 30}, {**CLAIMS, "nbf": at + 31}):
        with pytest.raises(InvalidToken):
            owner_of(claims, ClaimRules(), NOW)


@pytest.mark.parametrize(
    "change",
    [
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"sub": "  "},
        {"sub": 7},
        {"exp": "soon"},
        {"exp": True},
        {"exp": -1},
        {"exp": float("nan")},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"aud": {"dray": 1}},
    ],
)
def test_what_a_token_must_say(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        owner_of({**GOOD, **change}, RULES, NOW)


# --- the exchange


def exchange(heard: list[str] | None = None) -> OAuthBearerExchange:
    def unknown() -> None:
        if heard is not None:
            heard.append("unknown key")

    keys = key_set()
    return OAuthBearerExchange(lambda: keys, ClaimRules(), lambda: NOW, unknown)


def sent(server: OAuthBearerExchange, message: bytes) -> SaslStep:
    step = server.evaluate(message)
    return step.work() if isinstance(step, SaslWork) else step


def first(token: str, header: str = "n,,", more: str = "") -> bytes:
    return f"{header}\x01auth=Bearer {token}\x01{more}\x01".encode()


def test_a_good_token_lets_in_until_it_expires() -> None:
    success = SaslSuccess("alice", expires_ms=EXPIRES * 1000)
    assert sent(exchange(), first(signed())) == success
    assert sent(exchange(), first(signed(), "n,a=alice,")) == success
    assert sent(exchange(), first(signed(), more="logicalCluster=x\x01")) == success


def test_a_bad_token_is_refused_in_two_steps() -> None:
    server = exchange()
    assert sent(server, first(signed(claims={**CLAIMS, "exp": 1}))) == SaslChallenge(INVALID)
    refused = sent(server, b"\x01")
    assert isinstance(refused, SaslRefusal)
    assert refused.message == INVALID.decode()
    assert isinstance(sent(exchange(), b"\x01"), SaslRefusal)


@pytest.mark.parametrize("next_one", [b"", b"more", first(signed()), first(signed("rsa-other"))])
def test_a_bad_token_is_the_only_one(next_one: bytes) -> None:
    """Else a client that has none could go on with attempts for ever."""
    server = exchange()
    assert sent(server, first(signed(claims={**CLAIMS, "exp": 1}))) == SaslChallenge(INVALID)
    assert isinstance(server.evaluate(next_one), SaslRefusal)


def test_an_unknown_key_is_heard_of() -> None:
    heard: list[str] = []
    assert sent(exchange(heard), first(signed("rsa-other"))) == SaslChallenge(INVALID)
    assert heard == ["unknown key"]
    sent(exchange(heard), first(signed(claims={})))
    assert heard == ["unknown key"]


def test_another_authorization_id_is_refused() -> None:
    refused = sent(exchange(), first(signed(), "n,a=root,"))
    assert isinstance(refused, SaslRefusal)
    assert "different from the token's principal name (alice)" in (refused.message or "")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01other=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Bearer abc\x01\x01more",
        b"n,,\x01" + b"a=b\x01" * 50_000,
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    assert isinstance(sent(exchange(), message), SaslRefusal)


@settings(deadline=None)
@given(st.binary(max_size=100), st.text(st.characters(codec="ascii"), max_size=60))
def test_no_bytes_are_too_strange(message: bytes, token: str) -> None:
    assert isinstance(sent(exchange(), message), (SaslRefusal, SaslChallenge))
    with pytest.raises(InvalidToken) as refused:
        key_set().verified(token)
    assert len(token) < 8 or token not in str(refused.value)
