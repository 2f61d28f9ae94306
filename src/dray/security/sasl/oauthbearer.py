"""OAUTHBEARER (RFC 7628): a signed token instead of a password.

A bad token is answered with a challenge that says so; the client answers it with one byte, and is refused
then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dray.security.jwks import ClaimRules, InvalidToken, KeySet, UnknownKey, owner_of
from dray.security.sasl.steps import SaslChallenge, SaslRefusal, SaslStep, SaslSuccess, SaslWork

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
