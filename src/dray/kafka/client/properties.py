"""Kafka's client properties, as people have them in a file: what they say about TLS and SASL, as a `Dialer`.

Other settings of a client are passed over. One about security that is not known here is refused: a connection
must not be less safe than its owner wrote. An error is one line, without any value that may be secret.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from dray.base.https import parse_address
from dray.base.runtime import Runtime
from dray.kafka.client.connection import DEFAULT_LARGEST_FRAME, Dialer
from dray.kafka.client.login import Login
from dray.kafka.client.tokens import BearerTokenFile, TokenCredential, TokenEndpoint
from dray.kafka.sasl.client import MECHANISMS, OAUTHBEARER, PLAIN, ClientCredential

__all__ = [
    "KEYS",
    "ClientSecurity",
    "PropertiesRefused",
    "TlsSettings",
    "make_context",
    "parse_properties",
    "parse_security",
    "read_security",
]


# --- a client that logs in with tokens (OAUTHBEARER)
#
# By the names that Java and librdkafka have for them.


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
        return TokenCredential(BearerTokenFile(Path(unquote(urlsplit(url).path))))
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


# --- a client, of all that it is given


PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_KEYS: Final = (
    "sasl.mechanism",
    "sasl.jaas.config",
    "username",
    "password.file",
    "plain.without.tls",
    *TOKEN_KEYS,
)
TLS_KEYS: Final = (
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
KEYS: Final = ("security.protocol", *SASL_KEYS, *TLS_KEYS)
"""All that is understood. `username`, `password.file` and `plain.without.tls` are our own."""

_ABOUT_SECURITY: Final = ("security.", "sasl.", "ssl.")
_MODULES: Final = {
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}
_IN_CLEAR: Final = {PLAIN: "password", OAUTHBEARER: "token"}
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_JAAS_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|(?P<mark>[=;])|(?P<word>[^\s=;"']+))"""
)
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_FORM: Final = 'MODULE required username="..." password="...";'


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """`authorities`: PEM text; None: those of the system. `identity`: a file with a key and its
    certificates."""

    authorities: str | None = None
    identity: str | None = None
    identity_password: str = field(default="", repr=False)
    check_name: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How a client is to connect, before it has a runtime. It may travel to another process."""

    tls: TlsSettings | None = None
    credential: ClientCredential | TokenCredential | None = None

    @property
    def logs_in(self) -> bool:
        """Does the broker learn who this is? By SASL, or by a certificate."""
        return self.credential is not None or (self.tls is not None and self.tls.identity is not None)

    @property
    def protocol(self) -> str:
        """Kafka's `security.protocol`."""
        if self.credential is None:
            return PLAINTEXT if self.tls is None else "SSL"
        return "SASL_PLAINTEXT" if self.tls is None else "SASL_SSL"

    def dialer(self, client_id: str, runtime: Runtime, largest_frame: int = DEFAULT_LARGEST_FRAME) -> Dialer:
        """Raises `PropertiesRefused` for certificates that cannot be used."""
        return Dialer(
            client_id=client_id,
            tls=None if self.tls is None else make_context(self.tls),
            login=None if self.credential is None else Login(self.credential, runtime),
            largest_frame=largest_frame,
        )


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """TLS 1.2 or newer, and a server whose certificate is verified."""
    try:
        context = ssl.create_default_context(cadata=settings.authorities)
    except ssl.SSLError as error:
        raise PropertiesRefused("ssl.truststore.location: holds no certificates in PEM") from error
    context.check_hostname = settings.check_name
    if settings.identity is not None:
        try:
            # A password is always given: without one, OpenSSL would ask for it on the terminal.
            context.load_cert_chain(settings.identity, password=settings.identity_password)
        except ssl.SSLError as error:
            raise PropertiesRefused(
                "ssl.keystore.location: holds no private key and certificate in PEM, or ssl.key.password "
                "is not its password"
            ) from error
        except OSError as error:
            raise PropertiesRefused(f"ssl.keystore.location: {error.strerror}") from error
    return context


def read_security(file: Path) -> ClientSecurity:
    """Of a properties file. Raises `PropertiesRefused`."""
    return parse_security(parse_properties(text_of(file)))


def parse_security(given: Mapping[str, str]) -> ClientSecurity:
    for key in given:
        if key not in KEYS and key.startswith(_ABOUT_SECURITY):
            raise PropertiesRefused(f"{key}: is not known here; known: {', '.join(KEYS)}")
    if "password" in given:
        raise PropertiesRefused("password: is not taken; write it to a file, and name that as password.file")
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise PropertiesRefused(
            f"security.protocol = {given['security.protocol']!r}: must be one of {', '.join(PROTOCOLS)}"
        )
    encrypted, asked = protocol.endswith("SSL"), protocol.startswith("SASL")
    for keys, used in ((TLS_KEYS, encrypted), (SASL_KEYS, asked)):
        unused = [key for key in keys if key in given]
        if unused and not used:
            raise PropertiesRefused(f"{unused[0]}: has no effect, since security.protocol is {protocol}")
    return ClientSecurity(
        tls=_tls(given) if encrypted else None,
        credential=_credential(given, encrypted=encrypted) if asked else None,
    )


# --- TLS


def _tls(given: Mapping[str, str]) -> TlsSettings:
    for key in ("ssl.truststore.type", "ssl.keystore.type"):
        if given.get(key, "PEM").upper() != "PEM":
            raise PropertiesRefused(
                f"{key} = {given[key]!r}: must be PEM; a Java store is converted with keytool -exportcert "
                "-rfc, or openssl pkcs12"
            )
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", ""):
        raise PropertiesRefused(
            "ssl.endpoint.identification.algorithm: must be https, or empty: then any name is accepted"
        )
    settings = TlsSettings(
        authorities=_authorities(given),
        identity=given.get("ssl.keystore.location"),
        identity_password=given.get("ssl.key.password", ""),
        check_name=algorithm == "https",
    )
    make_context(settings)
    return settings


def _authorities(given: Mapping[str, str]) -> str | None:
    location, inline = given.get("ssl.truststore.location"), given.get("ssl.truststore.certificates")
    if location is not None and inline is not None:
        raise PropertiesRefused("ssl.truststore.location, ssl.truststore.certificates: give one of them")
    if location is None:
        return inline
    try:
        return text_of(Path(location))
    except PropertiesRefused as error:
        raise PropertiesRefused(f"ssl.truststore.location: {error}") from error


# --- SASL


def _credential(given: Mapping[str, str], *, encrypted: bool) -> ClientCredential | TokenCredential:
    mechanism = given.get("sasl.mechanism", "").upper()
    known = (*MECHANISMS, OAUTHBEARER)
    if mechanism not in known:
        raise PropertiesRefused(f"sasl.mechanism: must be one of {', '.join(known)}")
    allowed = given.get("plain.without.tls", "false").lower()
    if allowed not in ("true", "false"):
        raise PropertiesRefused("plain.without.tls: must be true or false")
    if mechanism in _IN_CLEAR and not encrypted and allowed == "false":
        raise PropertiesRefused(
            f"sasl.mechanism = {mechanism}: would send the {_IN_CLEAR[mechanism]} in clear; use a SCRAM "
            "mechanism or SASL_SSL, or say plain.without.tls=true"
        )
    options = _from_jaas(given["sasl.jaas.config"], mechanism) if "sasl.jaas.config" in given else None
    if mechanism == OAUTHBEARER:
        unused = [key for key in ("username", "password.file") if key in given]
        if unused:
            raise PropertiesRefused(f"{unused[0]}: has no effect, since sasl.mechanism is OAUTHBEARER")
        return token_credential(given, options or {})
    unused = [key for key in TOKEN_KEYS if key in given]
    if unused:
        raise PropertiesRefused(f"{unused[0]}: has no effect, since sasl.mechanism is {mechanism}")
    user, password = _user(given, options)
    if not user or not password or "\0" in user + password:
        raise PropertiesRefused("the user name and the password must not be empty, or hold NUL")
    return ClientCredential(mechanism, user, password)


def _user(given: Mapping[str, str], options: Mapping[str, str] | None) -> tuple[str, str]:
    user, file = given.get("username"), given.get("password.file")
    if options is not None:
        if user is not None or file is not None:
            raise PropertiesRefused("sasl.jaas.config: give it, or username and password.file, not both")
        if options.keys() != {"username", "password"}:
            # The text there is not shown: it may be a password without its quotes.
            raise PropertiesRefused('sasl.jaas.config: its options must be username="..." and password="..."')
        return options["username"], options["password"]
    if user is None or file is None:
        raise PropertiesRefused(f"sasl.jaas.config: is needed ({_JAAS_FORM}), or username and password.file")
    try:
        return user, text_of(Path(file)).removesuffix("\n").removesuffix("\r")
    except PropertiesRefused as error:
        raise PropertiesRefused(f"password.file: {error}") from error


def _from_jaas(text: str, mechanism: str) -> dict[str, str]:
    """The options of the module."""
    tokens = list(_jaas_tokens(text))
    if len(tokens) < 3 or tokens[-1] != (";", True) or tokens[1][0].lower() not in _FLAGS:
        raise PropertiesRefused(f"sasl.jaas.config: must be {_JAAS_FORM} (mind the semicolon)")
    kind = _MODULES.get(tokens[0][0])
    if kind is None:
        raise PropertiesRefused(f"sasl.jaas.config: the module must be one of {', '.join(_MODULES)}")
    if not mechanism.startswith(kind):
        raise PropertiesRefused(f"sasl.jaas.config: its module is for {kind}, sasl.mechanism is {mechanism}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=False):
        if name[1] or equals != ("=", True) or value[1]:
            return {}
        options[name[0]] = value[0]
    return options if len(rest) == 3 * len(options) else {}


def _jaas_tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words, quoted or not, and marks: whether it is one is said beside it."""
    position, text = 0, text.strip()
    while position < len(text):
        found = _JAAS_TOKEN.match(text, position)
        if found is None:
            raise PropertiesRefused("sasl.jaas.config: a quote is not closed")
        if found["quoted"]:
            yield _unescaped(found["quoted"][1:-1]), False
        else:
            yield found["mark"] or found["word"], bool(found["mark"])
        position = found.end()


# --- the file


def parse_properties(text: str) -> dict[str, str]:
    """Java's format: comments, `=`, `:` or space, lines that go on behind a backslash, escapes."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in "=: \t\f":
            end += 2 if line[end] == "\\" else 1
        rest = line[end:].lstrip(" \t\f")
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(" \t\f")
        found[_unescaped(line[:end])] = _unescaped(rest)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    for physical in re.split(r"\r\n|\r|\n", text):
        line = physical.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        line = begun + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            begun = line[:-1]
            continue
        begun = ""
        yield line
    if begun:
        yield begun


def _unescaped(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[1].startswith("u") and len(found[1]) == 5:
            return chr(int(found[1][1:], 16))
        return _ESCAPES.get(found[1], found[1])

    return re.sub(r"\\(u[0-9A-Fa-f]{4}|.)", plain, text, flags=re.DOTALL)
