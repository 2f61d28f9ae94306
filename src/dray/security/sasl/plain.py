"""PLAIN (RFC 4616), verified against the stored SCRAM credential."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dray.security.sasl.steps import OTHER_AUTHORIZATION_ID, SaslRefusal, SaslStep, SaslSuccess, SaslWork
from dray.security.scram_credentials import (
    LEAST_ITERATIONS,
    Credentials,
    ScramCredential,
    ScramMechanism,
    verify_password,
)

NAME: Final = "PLAIN"

_WRONG: Final = "Authentication failed: Invalid username or password"

# An unknown user takes as long as a wrong password: time must not tell who exists.
_NOBODY: Final = ScramCredential(b"\0" * 32, b"", b"", LEAST_ITERATIONS)


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
        found = self._credentials.of(user)

        def verify() -> SaslSuccess | SaslRefusal:
            step = _verify(found, authorization_id, user, password)
            if isinstance(step, SaslSuccess):
                step = replace(step, still_holds=lambda: bool(self._credentials.of(user)))
            return step

        return SaslWork(verify)


def _verify(
    found: Mapping[ScramMechanism, ScramCredential], authorization_id: str, user: str, password: str
) -> SaslSuccess | SaslRefusal:
    """Against the credential that is cheapest to check: all were made of one password, or either will do."""
    if not found:
        verify_password(ScramMechanism.SHA_256, _NOBODY, password)
        return SaslRefusal("an unknown user", _WRONG, user)
    for mechanism in sorted(found):
        if verify_password(mechanism, found[mechanism], password):
            break
    else:
        return SaslRefusal("a wrong password", _WRONG, user)
    if authorization_id not in ("", user):
        return SaslRefusal("another authorization id", OTHER_AUTHORIZATION_ID, user)
    return SaslSuccess(user)
