"""The properties of a client that logs in with tokens (OAUTHBEARER), by the names that Java and librdkafka
have for them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from dray.client.tokens import TokenCredential, TokenEndpoint, TokenFile
from dray.security.https import parse_address

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = (
    "sasl.oauthbearer.client.id",  # librdkafka
    "sasl.oauthbearer.client.credentials.client.id",  # Java, from Kafka 4.1 on
)
_SECRET: Final = (
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.secret",
)
_SECRET_FILE: Final = "client.secret.file"
_SCOPE: Final = "sasl.oauthbearer.scope"
_METHOD: Final = "sasl.oauthbearer.method"
_HANDLER: Final = "sasl.login.callback.handler.class"
_AUTHORITIES: Final = "https.ca.location"
TOKEN_KEYS: Final = (
    ENDPOINT,
    *_CLIENT_ID,
    *_SECRET,
    _SECRET_FILE,
    _SCOPE,
    _METHOD,
    _HANDLER,
    _AUTHORITIES,
)
"""`client.secret.file` is our own, in place of a secret in the file of properties."""

_JAAS: Final = ("clientId", "clientSecret", "scope")
_LARGEST_FILE: Final = 1 << 20


class PropertiesRefused(ValueError):
    """A property cannot be what it is. One line, without secrets."""


def token_credential(given: Mapping[str, str], jaas: Mapping[str, str]) -> TokenCredential:
    """`jaas`: the options of Kafka's `OAuthBearerLoginModule`, where older files of Java have the client."""
    unknown = [name for name in jaas if name not in _JAAS]
    if unknown:
        raise PropertiesRefused(f"sasl.jaas.config: {unknown[0]}: the options are {', '.join(_JAAS)}")
    if given.get(_METHOD, "oidc").lower() != "oidc":
        raise PropertiesRefused(f"{_METHOD}: must be oidc")
    if not given.get(_HANDLER, "OAuthBearerLoginCallbackHandler").endswith("OAuthBearerLoginCallbackHandler"):
        raise PropertiesRefused(f"{_HANDLER}: must be Kafka's OAuthBearerLoginCallbackHandler, or absent")
    url = given.get(ENDPOINT)
    if url is None:
        raise PropertiesRefused(f"{ENDPOINT}: is needed: https://..., or file:///... of a file with a token")
    if url.startswith("file:"):
        return TokenCredential(TokenFile(Path(unquote(urlsplit(url).path))))
    try:
        address = parse_address(url)
    except ValueError as error:
        raise PropertiesRefused(f"{ENDPOINT}: {error}, or file:///PATH") from error
    client = _one_of(given, _CLIENT_ID) or jaas.get("clientId")
    secret = _one_of(given, _SECRET) or jaas.get("clientSecret")
    if _SECRET_FILE in given:
        if secret is not None:
            raise PropertiesRefused(f"{_SECRET_FILE}: give it, or the secret itself, not both")
        secret = text_of(Path(given[_SECRET_FILE])).strip()
    if not client or not secret:
        raise PropertiesRefused(f"{_CLIENT_ID[0]}: is needed, with {_SECRET_FILE} or {_SECRET[0]}")
    authorities = given.get(_AUTHORITIES)
    return TokenCredential(
        TokenEndpoint(
            address,
            client,
            secret,
            given.get(_SCOPE, jaas.get("scope")),
            None if authorities is None else text_of(Path(authorities)),
        )
    )


def _one_of(given: Mapping[str, str], keys: tuple[str, ...]) -> str | None:
    found = [given[key] for key in keys if key in given]
    if len(found) > 1:
        raise PropertiesRefused(f"{', '.join(keys)}: give one of them")
    return found[0] if found else None


def text_of(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise PropertiesRefused(f"cannot read {str(file)!r}: {error.strerror}") from error
    if len(raw) > _LARGEST_FILE:
        raise PropertiesRefused(f"{str(file)!r} is larger than {_LARGEST_FILE} bytes")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise PropertiesRefused(f"{str(file)!r} is no UTF-8 text (a Java store must be PEM)") from None
