"""Keys that sign tokens (RFC 7517), and what a token signed by one of them says (RFC 7515, RFC 7519).

A key says which algorithms it may be used with; the token only chooses among those. So `none` is refused,
and so is a token that calls a public key a shared secret (HS256).

PyJWT and the cryptography behind it are loaded with the first key: most brokers take no tokens.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from dray.base.https import HttpsAddress, HttpsFailed, ask_https
from dray.base.runtime import Runtime

LARGEST_KEY_SET: Final = 256 << 10
LONGEST_TOKEN: Final = 64 << 10
_MOST_KEYS: Final = 200

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_LEAST_RSA_BITS: Final = 2048
_CURVES: Final[Mapping[str, str]] = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


class InvalidKeySet(ValueError):
    """A document that is no set of keys, or has none that a token may be signed with."""


class InvalidToken(ValueError):
    """The message is for the log, and holds nothing of the token but the names of its parts."""


class UnknownKey(InvalidToken):
    """Signed by a key that is not in the set: a newer set may have it."""


@dataclass(frozen=True, slots=True)
class _Key:
    key: Any
    algorithms: tuple[str, ...]


class KeySet:
    """Immutable: a newer set takes its place as a whole."""

    def __init__(self, document: bytes) -> None:
        if len(document) > LARGEST_KEY_SET:
            raise InvalidKeySet(f"a key set of {len(document)} bytes is too large")
        try:
            entries = json.loads(document)["keys"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidKeySet("it is no JSON object with 'keys' (RFC 7517)") from None
        if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
            raise InvalidKeySet(f"'keys' is no list of at most {_MOST_KEYS}")
        found = [(str(entry.get("kid", "")), key) for entry in entries if (key := _parse(entry)) is not None]
        if not found:
            raise InvalidKeySet("it has no RSA, EC or Ed25519 key for signatures")
        self._keys = [key for _, key in found]
        self._by_id = {name: key for name, key in found if name}

    def __len__(self) -> int:
        return len(self._keys)

    def verified(self, token: str) -> Mapping[str, Any]:
        """The claims of a token whose signature is good. Takes up to a millisecond: in a thread."""
        if len(token) > LONGEST_TOKEN:
            raise InvalidToken("the token is too long")
        from jwt import PyJWS
        from jwt.exceptions import PyJWTError

        decoder = PyJWS()
        try:
            header = decoder.get_unverified_header(token)
        except (PyJWTError, ValueError, RecursionError):
            raise InvalidToken("the token is no JSON web signature") from None
        key = self._chosen(header)
        try:
            payload = decoder.decode(token, key.key, algorithms=list(key.algorithms))
            claims = json.loads(payload)
        except (PyJWTError, ValueError, TypeError, RecursionError):
            raise InvalidToken("the signature, or its algorithm, is not good") from None
        if not isinstance(claims, dict):
            raise InvalidToken("the token has no claims")
        return claims

    def _chosen(self, header: Mapping[str, Any]) -> _Key:
        algorithm, name = header.get("alg"), header.get("kid")
        if name is not None:
            key = self._by_id.get(name) if isinstance(name, str) else None
            if key is None:
                raise UnknownKey("the token is signed by a key that is not known")
            return key
        fitting = [key for key in self._keys if algorithm in key.algorithms]
        if len(fitting) != 1:
            raise InvalidToken("the token names no key, and its algorithm fits not exactly one")
        return fitting[0]


def _parse(entry: object) -> _Key | None:
    """None for what signs no tokens: keys for encryption, shared secrets, kinds that are not known."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    algorithms = _algorithms(entry)
    stated = entry.get("alg")
    if stated is not None:
        algorithms = tuple(each for each in algorithms if each == stated)
    if not algorithms:
        return None
    from jwt import PyJWK
    from jwt.exceptions import PyJWTError

    try:
        key = PyJWK({**entry, "alg": algorithms[0]}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    if getattr(key, "key_size", _LEAST_RSA_BITS) < _LEAST_RSA_BITS and algorithms[0] in _RSA:
        return None
    return _Key(key, algorithms)


def _algorithms(entry: Mapping[str, Any]) -> tuple[str, ...]:
    match entry.get("kty"), entry.get("crv"):
        case "RSA", _:
            return _RSA
        case "EC", str(curve) if curve in _CURVES:
            return (_CURVES[curve],)
        case "OKP", "Ed25519":
            return ("EdDSA",)
    return ()


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The rules for a token's claims: Kafka's `sasl.oauthbearer.expected.audience`, `.issuer`,
    `.clock.skew.seconds` and `.sub.claim.name`."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_seconds: float = 30.0
    subject_claim: str = "sub"


@dataclass(frozen=True, slots=True)
class TokenOwner:
    name: str
    expires_ms: int


def owner_of(claims: Mapping[str, Any], rules: ClaimRules, wall_ms: int) -> TokenOwner:
    """Raises `InvalidToken`."""
    now, skew = wall_ms / 1000, rules.skew_seconds
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    if expires is None or issued is None:
        raise InvalidToken("the token has no time of expiry (exp), or none of issue (iat)")
    if now - skew >= expires:
        raise InvalidToken("the token has expired")
    begins = _time(claims, "nbf")
    if begins is not None and now + skew < begins:
        raise InvalidToken("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken("the token is of another issuer")
    if rules.audiences and not rules.audiences & _texts(claims.get("aud")):
        raise InvalidToken("the token is for another audience")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        raise InvalidToken(f"the token has no {rules.subject_claim}")
    return TokenOwner(subject.strip(), round(expires * 1000))


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise InvalidToken(f"{name} is no time")
    return float(value)


def _texts(value: object) -> frozenset[str]:
    values = value if isinstance(value, list) else [value]
    return frozenset(each for each in values if isinstance(each, str))


# --- keys from an address
#
# They are fetched again now and then, and when a token names a key that is not known, at a bounded rate. The
# keys that were fetched last hold while the address is away.

_log = structlog.get_logger(__name__)

LEAST_SECONDS: Final = 10.0
"""Between two attempts, whatever tokens clients send: an unknown key must not become a load for others."""

LOOK_SECONDS: Final = 1.0
"""How soon an unknown key is noticed."""

FETCH_SECONDS: Final = 10.0


class KeySetAddress:
    """`fetch` gives the document, or raises `HttpsFailed`."""

    def __init__(
        self, fetch: Callable[[], Awaitable[bytes]], runtime: Runtime, refresh_seconds: float
    ) -> None:
        self._fetch = fetch
        self._runtime = runtime
        self._refresh_seconds = refresh_seconds
        self._newer_wanted = False
        self._failed = False
        self.current: KeySet | None = None
        """None until the first set was fetched: no token is good until then."""

    async def refresh(self) -> None:
        """Fetches once. A failure is one line, and the keys stay."""
        try:
            document = await self._fetch()
            # Parsing loads libraries, the first time.
            self.current = await self._runtime.in_thread(KeySet, document)
        except (HttpsFailed, InvalidKeySet) as error:
            self._failed = True
            _log.error(
                "the key set cannot be fetched: no token is good until it can"
                if self.current is None
                else "the key set cannot be fetched: the last keys hold",
                setting="oauth.key_set_url",
                error=str(error),
            )
            return
        if self._failed:
            _log.info("the key set was fetched again", keys=len(self.current))
        self._failed = False

    async def follow(self) -> None:
        """Runs for ever."""
        while True:
            self._newer_wanted = False
            await self.refresh()
            fetched = self._runtime.monotonic()
            while not self._is_due(self._runtime.monotonic() - fetched):
                await self._runtime.sleep(LOOK_SECONDS)

    def _is_due(self, age: float) -> bool:
        return age >= (LEAST_SECONDS if self._failed or self._newer_wanted else self._refresh_seconds)

    def want_newer(self) -> None:
        """A token named a key that is not known. Called from any thread."""
        self._newer_wanted = True


def fetch_from(address: HttpsAddress, context: ssl.SSLContext) -> Callable[[], Awaitable[bytes]]:
    async def fetch() -> bytes:
        return await ask_https(address, context, most_bytes=LARGEST_KEY_SET, seconds=FETCH_SECONDS)

    return fetch
