"""A login at an OpenID provider, seen from its client: discovery, the code flow with PKCE (RFC 7636), tokens.

Answers of the provider are believed after they were checked: its name is the configured one, and the id token
is signed by one of its keys, for this client and for this very login. The access token is not looked into:
those that it is for judge it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode

from dray.base.https import HttpsAddress, HttpsFailed, ask_https, parse_address
from dray.base.runtime import Runtime
from dray.broker.security.jwks import (
    LARGEST_KEY_SET,
    LONGEST_TOKEN,
    ClaimRules,
    InvalidKeySet,
    InvalidToken,
    KeySet,
    UnknownKey,
    owner_of,
)

SECONDS: Final = 10.0
"""That the provider has for an answer."""
KEPT_SECONDS: Final = 3600.0
"""How long what the provider says of itself is believed."""
LEAST_SECONDS: Final = 10.0
"""Between two attempts to read that, whatever tokens name as their key."""

_LARGEST_ANSWER: Final = 4 * LONGEST_TOKEN
_DISCOVERY: Final = "/.well-known/openid-configuration"

Ask = Callable[[HttpsAddress, bytes | None, tuple[tuple[str, str], ...]], Awaitable[bytes]]
"""GET, or POST of a form, with headers. Raises `HttpsFailed`."""


class OidcFailed(Exception):
    """One line, without anything that the provider or a browser sent."""


@dataclass(frozen=True, slots=True)
class OidcClient:
    """This program as the provider knows it. Without a secret, PKCE alone proves that who began a login ends
    it."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    scopes: str = "openid"
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login, from its beginning to its code."""

    redirect_uri: str
    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Granted:
    user: str
    access_token: str = field(repr=False)
    seconds: float
    """How long the access token is good for."""
    refresh_token: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Provider:
    authorization: str
    token: HttpsAddress
    secret_in_form: bool
    end_session: str | None
    keys: KeySet
    read: float


class OpenIdProvider:
    def __init__(self, client: OidcClient, ask: Ask, runtime: Runtime) -> None:
        """Raises `ValueError`, one line, for an issuer that is no address."""
        self._at = parse_address(client.issuer.rstrip("/") + _DISCOVERY, plain_here=True)
        self._client = client
        self._ask = ask
        self._runtime = runtime
        self._known: _Provider | None = None
        self._failed: tuple[float, OidcFailed] | None = None
        self._reading = asyncio.Lock()

    @property
    def name(self) -> str:
        return self._at.name

    def new_attempt(self, redirect_uri: str) -> LoginAttempt:
        state, nonce, verifier = (f"{self._runtime.random.getrandbits(256):064x}" for _ in range(3))
        return LoginAttempt(redirect_uri, state, nonce, verifier)

    async def address_for(self, attempt: LoginAttempt) -> str:
        """The address to which the browser goes. Raises `OidcFailed`."""
        at = (await self._provider()).authorization
        challenge = urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=")
        asked = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": attempt.redirect_uri,
            "scope": self._client.scopes,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        return f"{at}{'&' if '?' in at else '?'}{urlencode(asked)}"

    async def end_address(self, after: str) -> str:
        """The address to which the browser goes to log out at the provider. `after` is where it goes then: an
        address that the provider has to know. Raises `OidcFailed`."""
        at = (await self._provider()).end_session
        if at is None:
            raise OidcFailed(f"{self.name} names no address for it (end_session_endpoint)")
        asked = {"client_id": self._client.client_id, "post_logout_redirect_uri": after}
        return f"{at}{'&' if '?' in at else '?'}{urlencode(asked)}"

    async def exchange(self, code: str, attempt: LoginAttempt) -> Granted:
        """Exchange the code at the provider for tokens. Raises `OidcFailed`."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        answer = await self._tokens(form)
        claims, user, left = await self._id_token(answer)
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), attempt.nonce.encode()):
            raise OidcFailed("the id token is of another login (its nonce is not this one's)")
        return _granted(answer, user, left, None)

    async def refresh(self, granted: Granted) -> Granted:
        """A newer access token of the same user. Raises `OidcFailed`."""
        if granted.refresh_token is None:
            raise OidcFailed("there is no refresh token")
        answer = await self._tokens({"grant_type": "refresh_token", "refresh_token": granted.refresh_token})
        left = 0.0
        if answer.get("id_token") is not None:
            _, user, left = await self._id_token(answer)
            if user != granted.user:
                raise OidcFailed("the newer token is of another user")
        return _granted(answer, granted.user, left, granted.refresh_token)

    async def _tokens(self, form: dict[str, str]) -> Mapping[str, Any]:
        provider, client = await self._provider(), self._client
        headers: tuple[tuple[str, str], ...] = ()
        if client.client_secret is None or provider.secret_in_form:
            form["client_id"] = client.client_id
        if client.client_secret is not None:
            if provider.secret_in_form:
                form["client_secret"] = client.client_secret
            else:
                pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
                headers = (("Authorization", f"Basic {b64encode(pair.encode()).decode()}"),)
        try:
            return _object(await self._ask(provider.token, urlencode(form).encode(), headers))
        except HttpsFailed as error:
            raise OidcFailed(f"{provider.token.name} gives no token: {error}") from None
        except ValueError:
            raise OidcFailed(f"{provider.token.name} gives no token: its answer is no JSON object") from None

    async def _id_token(self, answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, float]:
        """Its claims, whose it is, and how many seconds are left of it."""
        token, client = answer.get("id_token"), self._client
        if not isinstance(token, str):
            raise OidcFailed("the provider gives no id token: console.oidc_scopes must have openid")
        provider = await self._provider()
        try:
            try:
                claims = await self._runtime.in_thread(provider.keys.verified, token)
            except UnknownKey:
                provider = await self._provider(newer_than=provider)
                claims = await self._runtime.in_thread(provider.keys.verified, token)
            rules = ClaimRules(
                frozenset({client.client_id}), client.issuer, subject_claim=client.subject_claim
            )
            owner = owner_of(claims, rules, self._runtime.wall_ms())
        except InvalidToken as error:
            raise OidcFailed(f"the provider's id token is not good: {error}") from None
        if claims.get("azp", client.client_id) != client.client_id:
            raise OidcFailed("the provider's id token is not good: it was issued to another client (azp)")
        return claims, owner.name, owner.expires_ms / 1000 - self._runtime.wall_ms() / 1000

    async def _provider(self, newer_than: _Provider | None = None) -> _Provider:
        """The provider's description of itself; read by one login at a time, for all that wait."""
        async with self._reading:
            now, known = self._runtime.monotonic(), self._known
            kept = LEAST_SECONDS if known is newer_than else KEPT_SECONDS
            if known is not None and now - known.read < kept:
                return known
            if self._failed is not None and now - self._failed[0] < LEAST_SECONDS:
                raise OidcFailed(str(self._failed[1]))
            try:
                self._known = await self._read()
            except OidcFailed as error:
                self._failed = (self._runtime.monotonic(), error)
                raise
            self._failed = None
            return self._known

    async def _read(self) -> _Provider:
        name, issuer = self.name, self._client.issuer
        try:
            said = _object(await self._ask(self._at, None, ()))
        except HttpsFailed as error:
            raise OidcFailed(f"{name} does not say where logins go: {error}") from None
        except ValueError:
            raise OidcFailed(f"{name} does not say where logins go: its answer is no JSON object") from None
        if said.get("issuer") != issuer:
            raise OidcFailed(f"{name} is another issuer than console.oidc_issuer says, to the letter")
        self._address(said, "authorization_endpoint")
        token, keys_at = self._address(said, "token_endpoint"), self._address(said, "jwks_uri")
        methods = said.get("token_endpoint_auth_methods_supported")
        in_form = (
            isinstance(methods, list)
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods
        )
        try:
            document = await self._ask(keys_at, None, ())
            keys = await self._runtime.in_thread(KeySet, document)
        except (HttpsFailed, InvalidKeySet) as error:
            raise OidcFailed(f"{keys_at.name} gives no keys: {error}") from None
        ends = None
        with suppress(OidcFailed):  # logins go on without it
            self._address(said, "end_session_endpoint")
            ends = str(said["end_session_endpoint"])
        read = self._runtime.monotonic()
        return _Provider(said["authorization_endpoint"], token, in_form, ends, keys, read)

    def _address(self, said: Mapping[str, Any], field_name: str) -> HttpsAddress:
        """Only a provider on this machine may lead to one without TLS."""
        try:
            return parse_address(str(said[field_name]), plain_here=not self._at.encrypted)
        except (KeyError, ValueError):
            raise OidcFailed(f"{self.name} has no {field_name} with https") from None


def ask_provider(context: ssl.SSLContext) -> Ask:
    async def ask(at: HttpsAddress, form: bytes | None, headers: tuple[tuple[str, str], ...]) -> bytes:
        most = max(_LARGEST_ANSWER, LARGEST_KEY_SET)
        return await ask_https(at, context, headers=headers, form=form, most_bytes=most, seconds=SECONDS)

    return ask


def _object(document: bytes) -> Mapping[str, Any]:
    """Raises `ValueError`."""
    try:
        found = json.loads(document)
    except RecursionError:
        raise ValueError("too deep") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _granted(answer: Mapping[str, Any], user: str, left: float, refresh: str | None) -> Granted:
    """`left`: of the id token, where the answer does not say how long the access token is good for."""
    access = answer.get("access_token")
    if not isinstance(access, str) or not 0 < len(access) <= LONGEST_TOKEN:
        raise OidcFailed("the provider gives no access token")
    if str(answer.get("token_type", "bearer")).lower() != "bearer":
        raise OidcFailed("the provider's access token is no bearer token")
    stated = answer.get("expires_in")
    try:
        seconds = left if stated is None else float(stated)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise OidcFailed("the provider does not say how long its access token is good for")
    newer = answer.get("refresh_token", refresh)
    if not isinstance(newer, str) or not 0 < len(newer) <= LONGEST_TOKEN:
        newer = None
    return Granted(user, access, seconds, newer)
