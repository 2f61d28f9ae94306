"""SASL on the server's side, pure: the steps of an exchange, and two mechanisms.

PLAIN (RFC 4616) is verified against the SCRAM credential that was set last: users may have one of each
mechanism, and Kafka's tools set them one by one; a password that was changed for either must not be taken any
more. SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677) are a machine of four states, which hashes a few
hundred bytes: the slow part of SCRAM is the client's.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final, Protocol, TypeAlias

from dray.kafka.sasl.credentials import (
    LEAST_ITERATIONS,
    Credentials,
    ScramCredential,
    ScramMechanism,
    is_still_there,
    verify_password,
)


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The exchange goes on: the client answers this."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslSuccess:
    """The client is who it says. `expires_ms`: wall-clock time at which the credential ends, if it does.
    `still_holds`: whether the credential is still there. A user that was deleted is served no longer, even
    if it was added again; Kafka serves it until it disconnects."""

    user: str
    token: bytes = field(default=b"", repr=False)
    expires_ms: int | None = None
    still_holds: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SaslRefusal:
    """`message` is for the client, and must not say why. None stands for the general message. `reason` is for
    the log, and holds no byte that the client sent."""

    reason: str
    message: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SaslWork:
    """Work that takes a millisecond or more: called in a thread, it gives the step."""

    work: Callable[[], SaslChallenge | SaslSuccess | SaslRefusal]


SaslStep: TypeAlias = SaslChallenge | SaslSuccess | SaslRefusal | SaslWork


class SaslExchange(Protocol):
    """One attempt of one client with one mechanism."""

    def evaluate(self, token: bytes) -> SaslStep: ...


OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


# --- PLAIN


PLAIN: Final = "PLAIN"

_WRONG: Final = "Authentication failed: Invalid username or password"

# An unknown user takes as long as a wrong password: time must not tell who exists. As what `drayd admin user
# add` sets last.
_NOBODY: Final = ScramMechanism.SHA_256, ScramCredential(b"\0" * 32, b"", b"", LEAST_ITERATIONS)


class PlainExchange:
    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def evaluate(self, token: bytes) -> SaslStep:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            return SaslRefusal("the PLAIN token is no UTF-8", _WRONG)
        if len(parts) != 3:
            count = min(len(parts), 4)
            return SaslRefusal(
                f"a PLAIN token of {count} parts",
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}",
            )
        authorization_id, user, password = parts
        if not user:
            return SaslRefusal("no user name", "Authentication failed: username not specified")
        if not password:
            return SaslRefusal("no password", "Authentication failed: password not specified", user)
        last = self._credentials.set_last(user)
        mechanism, credential = _NOBODY if last is None else (last, self._credentials.of(user)[last])

        def verify() -> SaslSuccess | SaslRefusal:
            fits = verify_password(mechanism, credential, password)
            if last is None:
                return SaslRefusal("an unknown user", _WRONG, user)
            if not fits:
                return SaslRefusal("a wrong password", _WRONG, user)
            if authorization_id not in ("", user):
                return SaslRefusal("another authorization id", OTHER_AUTHORIZATION_ID, user)
            return SaslSuccess(
                user, still_holds=lambda: is_still_there(self._credentials, user, mechanism, credential)
            )

        return SaslWork(verify)


# --- SCRAM


_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"

_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorization>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
)
_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})"
)

LONGEST_TOKEN: Final = 4096
_NONCE_BITS: Final = 160

Nonce = Callable[[], str]


def random_nonce(random: Random) -> str:
    return f"{random.getrandbits(_NONCE_BITS):040x}"


class ScramState(Enum):
    CLIENT_FIRST = auto()
    CLIENT_FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramExchange:
    def __init__(self, mechanism: ScramMechanism, credentials: Credentials, nonce: Nonce) -> None:
        self.state = ScramState.CLIENT_FIRST
        self._mechanism = mechanism
        self._credentials = credentials
        self._make_nonce = nonce
        self._user = ""
        self._credential: ScramCredential | None = None
        self._client_nonce = ""
        self._nonce = ""
        self._binding = b""
        self._so_far = ""

    def evaluate(self, token: bytes) -> SaslStep:
        step = self._judge(token)
        if isinstance(step, SaslRefusal):
            self.state = ScramState.FAILED
            self._credential = None
        return step

    def _judge(self, token: bytes) -> SaslStep:
        if self.state not in (ScramState.CLIENT_FIRST, ScramState.CLIENT_FINAL):
            return SaslRefusal("a token after the end of the exchange")
        # The patterns take ASCII only: names beyond it have no SCRAM in Kafka either.
        if len(token) > LONGEST_TOKEN or not token.isascii():
            return SaslRefusal("a SCRAM message that is too long, or no ASCII")
        text = token.decode("ascii")
        return self._first(text) if self.state is ScramState.CLIENT_FIRST else self._final(text)

    def _first(self, text: str) -> SaslStep:
        found = _FIRST.fullmatch(text)
        if found is None:
            return SaslRefusal("a first SCRAM message that is not understood")
        user = found["name"].replace("=2C", ",").replace("=3D", "=")
        credential = self._credentials.of(user).get(self._mechanism)
        if credential is None:
            return SaslRefusal("an unknown user, or one without this mechanism", user=user)
        authorization = (found["authorization"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization not in ("", user):
            return SaslRefusal("another authorization id", OTHER_AUTHORIZATION_ID, user)
        if credential.iterations < LEAST_ITERATIONS:
            return SaslRefusal("a stored credential of too few iterations", user=user)
        self._user = user
        self._credential = credential
        self._client_nonce = found["nonce"]
        self._nonce = found["nonce"] + self._make_nonce()
        self._binding = found["header"].encode()
        salt = b64encode(credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._so_far = f"{found['bare']},{answer}"
        self.state = ScramState.CLIENT_FINAL
        return SaslChallenge(answer.encode())

    def _final(self, text: str) -> SaslStep:
        found = _FINAL.fullmatch(text)
        credential = self._credential
        assert credential is not None
        if found is None:
            return SaslRefusal("a final SCRAM message that is not understood", user=self._user)
        # librdkafka before 2.6.1 puts its own nonce in front once more. The proof is of what was
        # exchanged, so it is good for this exchange alone in either case.
        if found["nonce"] not in (self._nonce, self._client_nonce + self._nonce):
            return SaslRefusal("another nonce than the one given", user=self._user)
        if b64decode(found["binding"]) != self._binding:
            return SaslRefusal("another channel binding than the first message had", user=self._user)
        name = self._mechanism.hash_name
        exchanged = f"{self._so_far},{found['without_proof']}".encode()
        proof = b64decode(found["proof"])
        signature = hmac.digest(credential.stored_key, exchanged, name)
        if len(proof) != len(signature):
            return SaslRefusal("a proof of the wrong length", user=self._user)
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(name, client_key).digest(), credential.stored_key):
            return SaslRefusal("a wrong password", user=self._user)
        self.state = ScramState.COMPLETE
        self._credential = None
        verifier = b64encode(hmac.digest(credential.server_key, exchanged, name))
        credentials, user, mechanism = self._credentials, self._user, self._mechanism
        return SaslSuccess(
            user,
            b"v=" + verifier,
            still_holds=lambda: is_still_there(credentials, user, mechanism, credential),
        )
