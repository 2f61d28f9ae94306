"""The sources of a client's tokens: a file, or an endpoint that gives them for a client's id and secret
(OAuth 2.0, RFC 6749 section 4.4), or memory, where a login keeps one."""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from dray.base.https import HttpsAddress, HttpsFailed, ask_https
from dray.base.runtime import Runtime
from dray.kafka.client.errors import AuthenticationFailed

_LONGEST_TOKEN: Final = 64 << 10
_SECONDS: Final = 30.0
_USED_FOR: Final = 0.8
"""Of a token's lifetime, as Kafka's own clients have it."""

_OF_TOKENS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~+/=")


@dataclass(frozen=True, slots=True)
class BearerTokenFile:
    """Read anew whenever a token is needed: another program renews it."""

    path: Path


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """`authorities`: PEM text; None: those of the system."""

    address: HttpsAddress
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    authorities: str | None = None


@dataclass(slots=True)
class HeldToken:
    """In memory. Its owner puts a newer one in before it expires."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """A client that proves who it is with a token."""

    source: BearerTokenFile | TokenEndpoint | HeldToken


class Tokens:
    """Raises `AuthenticationFailed`: one line, without anything of a token or a secret."""

    def __init__(self, credential: TokenCredential, runtime: Runtime) -> None:
        self._source = credential.source
        self._runtime = runtime
        self._known: tuple[str, float] | None = None

    async def token(self) -> str:
        source = self._source
        if isinstance(source, BearerTokenFile):
            return _checked(await self._runtime.in_thread(_read, source.path), str(source.path))
        if isinstance(source, HeldToken):
            return _checked(source.text, "the session")
        now = self._runtime.monotonic()
        if self._known is None or now >= self._known[1]:
            self._known = await self._fetched(source, now)
        return self._known[0]

    async def _fetched(self, source: TokenEndpoint, now: float) -> tuple[str, float]:
        pair = f"{quote(source.client_id, safe='')}:{quote(source.client_secret, safe='')}"
        form = {"grant_type": "client_credentials"}
        if source.scope is not None:
            form["scope"] = source.scope
        name = source.address.name
        try:
            document = await ask_https(
                source.address,
                ssl.create_default_context(cadata=source.authorities),
                headers=(("Authorization", f"Basic {b64encode(pair.encode()).decode()}"),),
                form=urlencode(form).encode(),
                most_bytes=2 * _LONGEST_TOKEN,
                seconds=_SECONDS,
            )
        except HttpsFailed as error:
            raise AuthenticationFailed(f"no token from {name}: {error}") from None
        try:
            answer = json.loads(document)
            token, lifetime = answer["access_token"], float(answer.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise AuthenticationFailed(f"no token from {name}: its answer has no access_token") from None
        return _checked(token, name), now + _USED_FOR * lifetime


def _read(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            return opened.read(_LONGEST_TOKEN + 1).decode("ascii").strip()
    except UnicodeDecodeError:
        raise AuthenticationFailed(f"{path} holds no token") from None
    except OSError as error:
        raise AuthenticationFailed(f"no token from {path}: {error.strerror}") from None


def _checked(token: object, where: str) -> str:
    if not isinstance(token, str) or not 0 < len(token) <= _LONGEST_TOKEN or not _OF_TOKENS.issuperset(token):
        raise AuthenticationFailed(f"{where} holds no token")
    return token
