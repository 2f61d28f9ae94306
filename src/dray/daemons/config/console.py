"""The console's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dray.base.config.kinds import Address, Choice, Either, HostPort, Switch, Text, TextList, TextMap
from dray.base.config.setting import setting

_FILE = Text(r"(?s:.+)", "a file")


@dataclass(frozen=True, kw_only=True)
class ConsoleSection:
    """The console: the cluster in a browser."""

    enabled: bool = setting(True, Switch(), "Whether `drayd up` runs a console beside its brokers.")
    listen: Address = setting(
        Address("127.0.0.1", 9640),
        HostPort(free_port=True),
        "Where browsers connect. An address that is not a loopback one needs `console.auth`, and "
        "a certificate or `console.behind_proxy`.",
    )
    command_config: str | None = setting(
        None,
        Either("none", _FILE),
        "How the console connects to brokers: a properties file of Kafka's clients, with "
        "security.protocol and the like. Needed where the listener that it uses asks for a login. With a "
        "login in it and `security.authorization: acls`, `drayd up` starts a console only if `auth` is set.",
    )
    listener: str | None = setting(
        None,
        Either("none", Text(r"[A-Z][A-Z0-9_]{0,99}", "a listener's name")),
        "Which of `broker.listeners` the console beside `drayd up` connects to; `none`: "
        "`broker.listen`, where clients are not asked who they are.",
    )
    auth: str = setting(
        "none",
        Choice("none", "sasl", "oidc"),
        "`sasl`: people log in with their user of the cluster, and see and change what that user "
        "may. `oidc`: they log in at an OpenID provider, whose access token the brokers are shown. `none`: "
        "the console's own identity serves all.",
    )
    mechanism: str = setting(
        "SCRAM-SHA-512",
        Choice("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"),
        "The SASL mechanism of logins; the brokers' listener has to take it.",
    )
    oidc_issuer: str | None = setting(
        None,
        Either("none", Text(r"https?://\S+", "https://HOST/PATH")),
        "The OpenID provider, as it calls itself (`iss`), to the letter. It must redirect to "
        "`/login/callback` of the console.",
    )
    oidc_client_id: str | None = setting(
        None, Either("none", Text(r"\S+", "text without spaces")), "What the provider knows the console as."
    )
    oidc_client_secret_file: str | None = setting(
        None,
        Either("none", _FILE),
        "A file with the client's secret. `none`: a public client, which has only PKCE.",
    )
    oidc_scopes: str = setting(
        "openid",
        Text(r"\S+(?: \S+)*", "scopes, with a space between them"),
        "The scopes that are asked for; `openid` must be one of them. Where the provider gives "
        "refresh tokens for `offline_access`, sessions outlast their first token with it.",
    )
    oidc_ca_file: str | None = setting(
        None,
        Either("system", _FILE),
        "The authorities (PEM) that the provider's certificate must be of. `system`: those of the machine.",
    )
    hosts: tuple[str, ...] = setting(
        (),
        TextList(r"[A-Za-z0-9.:\[\]-]{1,255}", "host names, with a comma between them"),
        "Names under which browsers reach the console, beside its own address. Requests for any "
        "other are refused.",
    )
    certificate_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The console's certificate and its chain, in PEM; with `console.key_file`.",
    )
    key_file: str | None = setting(None, Either("none", _FILE), "The key of the certificate, in PEM.")
    behind_proxy: bool = setting(
        False,
        Switch(),
        "Whether a proxy before the console speaks TLS to browsers. The console itself must then "
        "be reached by nothing else: it believes the last address of X-Forwarded-For.",
    )
    runs: str | None = setting(
        None,
        Either("none", Text(r"(?s:.+)", "a directory")),
        "A directory of simulated clusters to show: files that `drayd simulate --seed N --json` wrote.",
    )
    masked: Mapping[str, str] = setting(
        {},
        TextMap("patterns of topics' names, each with what is hidden of their records", r"(?s:.{1,249})"),
        "What of records is hidden, such as `payments*: value.card.number; header.token; "
        "~[0-9]{16}`: `key`, `value`, `headers`, fields of JSON, headers by name, or whatever matches an "
        "expression. Such topics have neither SQL nor replay.",
    )
