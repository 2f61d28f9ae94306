"""PLAIN (RFC 4616), verified against the SCRAM credential that was set last.

Users may have one of each mechanism, and Kafka's tools set them one by one: a password that was changed for
either must not be taken any more.
"""

from __future__ import annotations

from typing import Final

from dray.security.sasl.steps import OTHER_AUTHORIZATION_ID, SaslRefusal, SaslStep, SaslSuccess, SaslWork
from dray.security.scram_credentials import (
    LEAST_ITERATIONS,
    Credentials,
    ScramCredential,
    ScramMechanism,
    is_still_there,
    verify_password,
)

NAME: Final = "PLAIN"

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
