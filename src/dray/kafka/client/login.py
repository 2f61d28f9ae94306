"""A client says who it is: SaslHandshake and SaslAuthenticate, and again before a session ends (KIP-368)."""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from dray.base.runtime import Runtime
from dray.base.runtime.shown import printable
from dray.kafka.client.errors import AuthenticationFailed, ClientError
from dray.kafka.client.tokens import TokenCredential, Tokens
from dray.kafka.protocol import ErrorCode, Request, Response
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.sasl.client import (
    OAUTHBEARER,
    ClientCredential,
    ClientExchange,
    ServerNotTrusted,
    TokenClient,
    begin_exchange,
)

ResponseType = TypeVar("ResponseType", bound=Response)

RENEWED_AFTER: Final = 0.85
"""Of a session's lifetime, as Kafka's own clients have it."""

_HANDSHAKE_VERSION: Final = 1
"""Version 0 is followed by tokens outside Kafka's protocol, which say nothing about why they failed."""

_LONGEST_TEXT: Final = 300


class Ask(Protocol):
    """Sends a request over the one connection that is to be authenticated."""

    async def __call__(
        self, message: Request[ResponseType], version: int | None = None, /
    ) -> ResponseType: ...


class Login:
    """The client's identity, on whichever connection."""

    def __init__(self, credential: ClientCredential | TokenCredential, runtime: Runtime) -> None:
        self._credential = credential
        self._runtime = runtime
        self._tokens = Tokens(credential, runtime) if isinstance(credential, TokenCredential) else None

    def is_past(self, moment: float | None) -> bool:
        return moment is not None and self._runtime.monotonic() >= moment

    async def perform(self, broker: str, ask: Ask) -> float | None:
        """Authenticates a connection to the broker of this name. When that is to be done again; None: never.
        Raises `AuthenticationFailed`."""
        credential = self._credential
        if isinstance(credential, TokenCredential):
            mechanism, shown = OAUTHBEARER, "the token"
        else:
            mechanism, shown = credential.mechanism, f"user {credential.user}"
        exchange = await self._exchange()
        handshake = await ask(SaslHandshakeRequest(mechanism=mechanism), _HANDSHAKE_VERSION)
        if handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            served = ", ".join(sorted(handshake.mechanisms)) or "nothing"
            raise AuthenticationFailed(f"{broker} does not take {mechanism}; it takes {_shown(served)}")
        if handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationFailed(
                f"{broker} does not ask who connects: its security.protocol is PLAINTEXT or SSL"
            )
        if handshake.error_code:
            raise ClientError(f"{broker} refused SaslHandshake: {ErrorCode.name_of(handshake.error_code)}")
        token: bytes | None = exchange.begin()
        while token is not None:
            begun = self._runtime.monotonic()
            answer = await ask(SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                why = answer.error_message or ErrorCode.name_of(answer.error_code)
                raise AuthenticationFailed(f"{broker} refused {shown}: {_shown(why)}")
            try:
                token = await self._runtime.in_thread(exchange.answer, answer.auth_bytes)
            except ServerNotTrusted as error:
                raise AuthenticationFailed(f"{broker} is not trusted: {error}") from None
        lifetime_ms = answer.session_lifetime_ms
        return begun + RENEWED_AFTER * lifetime_ms / 1000 if lifetime_ms > 0 else None

    async def _exchange(self) -> ClientExchange:
        if self._tokens is not None:
            return TokenClient(await self._tokens.token())
        assert isinstance(self._credential, ClientCredential)
        return begin_exchange(self._credential, self._runtime.random)


def _shown(text: str) -> str:
    """Another's words, as part of one line."""
    return printable(" ".join(text.split()))[:_LONGEST_TEXT]
