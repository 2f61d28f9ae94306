"""The authentication of one connection, as a machine of named states: Kafka's handshake, tokens, and
KIP-368.

Bytes are parsed and answers are built by `broker/api/`; time is given. Bytes that a state does not expect end
the connection, which the machine says by raising `EndConnection`: nothing but ApiVersions and SaslHandshake
is looked at before a client is known, and nothing but its tokens while it authenticates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dray.broker.security.jwks import ClaimRules, InvalidToken, KeySet, UnknownKey, owner_of
from dray.broker.security.principals import user as principal_of
from dray.kafka.sasl.server import SaslChallenge, SaslExchange, SaslRefusal, SaslStep, SaslSuccess, SaslWork

LONGEST_FRAME: Final = 512 << 10
"""Kafka's `sasl.server.max.receive.size`: of any frame until a client is known."""

REFUSAL_DELAY_SECONDS: Final = 0.1
"""How long a refused client waits for its connection to end, as with Kafka."""

_LEAST_SECONDS_BETWEEN: Final = 1.0


class SaslState(Enum):
    INITIAL = auto()
    """SaslHandshake or ApiVersions comes."""
    HANDSHAKE = auto()
    """ApiVersions was answered: SaslHandshake comes."""
    AUTHENTICATE = auto()
    """Tokens come: in SaslAuthenticate, or raw after a handshake of version 0."""
    WRONG_MECHANISM = auto()
    """A client authenticates again with another mechanism: its next request ends the connection."""
    COMPLETE = auto()
    FAILED = auto()


class EndConnection(Exception):
    """There is no answer: the connection ends, with this one line."""


@dataclass(frozen=True, slots=True)
class HandshakeAnswer:
    """Whether the mechanism is served; where it is not, the connection ends behind the answer."""

    supported: bool


@dataclass(frozen=True, slots=True)
class SaslAnswer:
    """The token for the client, and how long the session lasts from now: 0 for as long as the connection."""

    token: bytes
    lifetime_ms: int = 0
    complete: bool = False


@dataclass(frozen=True, slots=True)
class SaslRejection:
    """The message for the client and the reason for the log; then the connection ends."""

    message: str
    reason: str
    user: str | None


class SaslSession:
    """`mechanisms` are those of the listener: a name, and what begins an exchange with it.
    `longest_session_ms` is Kafka's `connections.max.reauth.ms`."""

    def __init__(
        self, mechanisms: Mapping[str, Callable[[], SaslExchange]], *, longest_session_ms: int = 0
    ) -> None:
        self.state = SaslState.INITIAL
        self.principal: str | None = None
        self.raw_tokens = False
        self._mechanisms = mechanisms
        self._longest_session_ms = longest_session_ms
        self.mechanism = ""
        self._exchange: SaslExchange | None = None
        self._expires: float | None = None
        self._again_since: float | None = None
        self._still_holds: Callable[[], bool] = lambda: True

    @property
    def mechanisms(self) -> list[str]:
        return list(self._mechanisms)

    @property
    def is_complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    def is_expired(self, now: float) -> bool:
        """A finished session past its lifetime: any request but a handshake ends the connection."""
        return self._expires is not None and now >= self._expires

    def is_revoked(self) -> bool:
        """The credential of a finished session is gone: its user was deleted."""
        return not self._still_holds()

    # --- before a client is known

    def api_versions(self, *, answered_well: bool) -> None:
        """An ApiVersions request. After one that was refused (an unknown version), the client may send
        another."""
        if self.state is not SaslState.INITIAL:
            raise self._end("ApiVersions came where the client must authenticate")
        if answered_well:
            self.state = SaslState.HANDSHAKE

    def handshake(self, version: int, mechanism: str, now: float) -> HandshakeAnswer | None:
        """None: the client authenticated a moment ago, and has no reason to do so again. It is refused."""
        again = self.state is SaslState.COMPLETE
        if again:
            if self._again_since is not None and now - self._again_since < _LEAST_SECONDS_BETWEEN:
                return None
            self._again_since = now
        elif self.state not in (SaslState.INITIAL, SaslState.HANDSHAKE):
            raise self._end("SaslHandshake came in the middle of an authentication")
        self.raw_tokens = version == 0
        begin = self._mechanisms.get(mechanism)
        if begin is None:
            self.state = SaslState.FAILED
            return HandshakeAnswer(supported=False)
        if again and mechanism != self.mechanism:
            self.state = SaslState.WRONG_MECHANISM
            return HandshakeAnswer(supported=True)
        self.mechanism = mechanism
        self._exchange = begin()
        self.state = SaslState.AUTHENTICATE
        return HandshakeAnswer(supported=True)

    def unexpected(self, what: str) -> EndConnection:
        """For a request that this state does not serve."""
        return self._end(f"{what} came from a client that has not authenticated")

    # --- tokens

    def token(self, token: bytes) -> SaslStep:
        """The exchange's next step; `SaslWork` work is done in a thread, and its step given to `conclude`."""
        if self.state is SaslState.WRONG_MECHANISM:
            raise self._end("a client may not authenticate again with another mechanism")
        if self.state is not SaslState.AUTHENTICATE or self._exchange is None:
            raise self._end("a SASL token came where none is due")
        return self._exchange.evaluate(token)

    def conclude(self, step: SaslStep, now: float, wall_ms: int) -> SaslAnswer | SaslRejection:
        assert not isinstance(step, SaslWork)
        if isinstance(step, SaslRefusal):
            return self._reject(step)
        if not isinstance(step, SaslSuccess):
            return SaslAnswer(step.token)
        principal = principal_of(step.user)
        if self.principal is not None and principal != self.principal:
            message = "Cannot change principals during re-authentication from "
            return self._reject(
                SaslRefusal(
                    "another principal than before",
                    f"{message}{self.principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}",
                    step.user,
                )
            )
        lifetime_ms = self._lifetime_ms(step.expires_ms, wall_ms)
        self._expires = None if lifetime_ms is None else now + lifetime_ms / 1000
        self.principal = principal
        self._still_holds = step.still_holds
        self.state = SaslState.COMPLETE
        self._exchange = None
        return SaslAnswer(step.token, lifetime_ms or 0, complete=True)

    def _lifetime_ms(self, expires_ms: int | None, wall_ms: int) -> int | None:
        bounds = [] if expires_ms is None else [max(0, expires_ms - wall_ms)]
        if self._longest_session_ms > 0:
            bounds.append(self._longest_session_ms)
        return min(bounds, default=None)

    def _reject(self, step: SaslRefusal) -> SaslRejection:
        during = "authentication" if self.principal is None else "re-authentication"
        self.state = SaslState.FAILED
        self._exchange = None
        message = step.message or (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism "
            f"{self.mechanism}"
        )
        return SaslRejection(message, step.reason, step.user)

    def _end(self, reason: str) -> EndConnection:
        self.state = SaslState.FAILED
        self._exchange = None
        return EndConnection(reason)


# --- OAUTHBEARER (RFC 7628): a signed token instead of a password
#
# A bad token is answered with a challenge that says so; the client answers it with one byte, and is refused
# then.

NAME: Final = "OAUTHBEARER"

_INVALID: Final = b'{"status":"invalid_token"}'
_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
# Possessive: a pair ends at its first 0x01, and nothing is tried twice.
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization>{_SASL_NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*+)\x01"
)
_AUTHORIZATION: Final = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class OAuthBearerExchange:
    """`unknown_key` hears of tokens whose key is not in the set: it may be read anew for the next attempt."""

    def __init__(
        self,
        keys: Callable[[], KeySet | None],
        rules: ClaimRules,
        wall_ms: Callable[[], int],
        unknown_key: Callable[[], None] = lambda: None,
    ) -> None:
        self._keys = keys
        self._rules = rules
        self._wall_ms = wall_ms
        self._unknown_key = unknown_key
        self._refusal: InvalidToken | None = None

    def evaluate(self, token: bytes) -> SaslStep:
        if self._refusal is not None:
            # With one byte, as it should. Another token would be another attempt, and so on without end.
            return SaslRefusal(str(self._refusal), _INVALID.decode())
        found = _FIRST.fullmatch(token.decode("latin-1"))
        if found is None:
            return SaslRefusal("a first OAUTHBEARER message that is not understood")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        bearer = _AUTHORIZATION.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            return SaslRefusal("an OAUTHBEARER message without a bearer token")
        text, authorization = bearer["token"], found["authorization"] or ""
        keys, wall_ms = self._keys(), self._wall_ms()
        return SaslWork(lambda: self._verify(keys, text, authorization, wall_ms))

    def _verify(
        self, keys: KeySet | None, text: str, authorization: str, wall_ms: int
    ) -> SaslChallenge | SaslSuccess | SaslRefusal:
        try:
            if keys is None:
                raise UnknownKey("the keys that sign tokens are not known yet")
            owner = owner_of(keys.verified(text), self._rules, wall_ms)
        except InvalidToken as error:
            self._refusal = error
            if isinstance(error, UnknownKey):
                self._unknown_key()
            return SaslChallenge(_INVALID)
        if authorization not in ("", owner.name):
            return SaslRefusal(
                "another authorization id",
                f"Authentication failed: Client requested an authorization id ({authorization}) that is "
                f"different from the token's principal name ({owner.name})",
                owner.name,
            )
        return SaslSuccess(owner.name, expires_ms=owner.expires_ms)
