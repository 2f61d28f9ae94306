"""SASL on the client's side, pure: SCRAM-SHA-256, SCRAM-SHA-512 (RFC 5802, RFC 7677), PLAIN (RFC 4616) and
OAUTHBEARER (RFC 7628).

An exchange is complete once the client is satisfied, which with SCRAM takes the server's signature: a server
that does not know the password's keys is no server to trust, whatever it answers.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from enum import Enum, auto
from random import Random
from typing import Final, Protocol

from dray.kafka.sasl.credentials import LEAST_ITERATIONS, ScramMechanism, mechanism_of, salted_password
from dray.kafka.sasl.server import random_nonce

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (*(each.sasl_name for each in ScramMechanism), PLAIN)
"""Those with a user's password."""

LONGEST_TOKEN: Final = 4096
MOST_ITERATIONS: Final = 1_000_000
"""Half a second of hashing, and far beyond Kafka's own bound: what a server may ask of a client."""

_HEADER: Final = "n,,"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = r"(?:,[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+)*"
_BASE64: Final = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_CHALLENGE: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}}){_EXTENSIONS}"
)
_VERIFIER: Final = re.compile(rf"v=(?P<signature>{_BASE64}){_EXTENSIONS}")


class ServerNotTrusted(Exception):
    """The server's answer is not that of a server that knows the user. One line, without secrets."""


@dataclass(frozen=True, slots=True)
class ClientCredential:
    """A client's identity, and its proof."""

    mechanism: str
    user: str
    password: str = field(repr=False)


class ClientExchange(Protocol):
    """One attempt to log in."""

    @property
    def is_complete(self) -> bool: ...

    def begin(self) -> bytes:
        """The first token for the server."""

    def answer(self, token: bytes) -> bytes | None:
        """The next token for the server; None once there is nothing more to say. Raises `ServerNotTrusted`.
        It may take a millisecond or more: in a thread."""


def begin_exchange(credential: ClientCredential, random: Random) -> ClientExchange:
    mechanism = mechanism_of(credential.mechanism)
    if mechanism is None:
        assert credential.mechanism == PLAIN
        return PlainClient(credential.user, credential.password)
    return ScramClient(mechanism, credential.user, credential.password, random_nonce(random))


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self.is_complete = False
        self._user = user
        self._password = password

    def begin(self) -> bytes:
        return f"\0{self._user}\0{self._password}".encode()

    def answer(self, token: bytes) -> None:
        if token:
            raise ServerNotTrusted("it answered PLAIN with a token, where none is due")
        self.is_complete = True


class TokenClient:
    def __init__(self, token: str) -> None:
        self.is_complete = False
        self._token = token
        self._refused = False

    def begin(self) -> bytes:
        return f"{_HEADER}\1auth=Bearer {self._token}\1\1".encode()

    def answer(self, token: bytes) -> bytes | None:
        """A server that does not take the token says so in a token of its own, and says why only after one
        more."""
        if token and not self._refused:
            self._refused = True
            return b"\1"
        if token:
            raise ServerNotTrusted("it refused a token twice")
        self.is_complete = not self._refused
        return None


class ScramClientState(Enum):
    INITIAL = auto()
    SERVER_FIRST = auto()
    """The challenge of the server comes."""
    SERVER_FINAL = auto()
    """The server's signature comes."""
    COMPLETE = auto()
    FAILED = auto()


class ScramClient:
    def __init__(self, mechanism: ScramMechanism, user: str, password: str, nonce: str) -> None:
        self.state = ScramClientState.INITIAL
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    @property
    def is_complete(self) -> bool:
        return self.state is ScramClientState.COMPLETE

    def begin(self) -> bytes:
        self.state = ScramClientState.SERVER_FIRST
        return f"{_HEADER}{self._bare}".encode()

    def answer(self, token: bytes) -> bytes | None:
        state, self.state = self.state, ScramClientState.FAILED  # unless all goes well below
        if state not in (ScramClientState.SERVER_FIRST, ScramClientState.SERVER_FINAL):
            raise ServerNotTrusted("it sent a SCRAM message where none is due")
        if len(token) > LONGEST_TOKEN or not token.isascii():
            raise ServerNotTrusted("it sent a SCRAM message that is too long, or no ASCII")
        text = token.decode("ascii")
        if state is ScramClientState.SERVER_FIRST:
            proof = self._prove(text)
            self.state = ScramClientState.SERVER_FINAL
            return proof
        self._verify(text)
        self.state = ScramClientState.COMPLETE
        return None

    def _prove(self, challenge: str) -> bytes:
        found = _CHALLENGE.fullmatch(challenge)
        if found is None:
            raise ServerNotTrusted("its first SCRAM message is not understood")
        nonce = found["nonce"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ServerNotTrusted("its nonce does not continue ours")
        iterations = int(found["iterations"])
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise ServerNotTrusted(
                f"it asks for {iterations} iterations, not {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )
        name = self._mechanism.hash_name
        salted = salted_password(self._mechanism, self._password, b64decode(found["salt"]), iterations)
        without_proof = f"c={b64encode(_HEADER.encode()).decode()},r={nonce}"
        exchanged = f"{self._bare},{challenge},{without_proof}".encode()
        client_key = hmac.digest(salted, b"Client Key", name)
        stored_key = hashlib.new(name, client_key).digest()
        signature = hmac.digest(stored_key, exchanged, name)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", name), exchanged, name)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _verify(self, final: str) -> None:
        found = _VERIFIER.fullmatch(final)
        if found is None:
            raise ServerNotTrusted("its last SCRAM message is not understood")
        if not hmac.compare_digest(b64decode(found["signature"]), self._signature):
            raise ServerNotTrusted("its SCRAM signature is wrong: it does not know this user's password")
