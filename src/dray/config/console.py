"""The console's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from dray.config.kinds import Address, Choice, Either, HostPort, Switch, Text, TextList, TextMap
from dray.config.section import Section

_FILE = Text(r"(?s:.+)", "a file")


class ConsoleSection(Section):
    """The console: the cluster in a browser."""

    enabled: Annotated[bool, Switch()] = Field(
        default=True,
        description="Whether `drayd up` runs a console beside its brokers.",
    )
    listen: Annotated[Address, HostPort(free_port=True)] = Field(
        default=Address("127.0.0.1", 9640),
        description="Where browsers connect. An address that is not a loopback one needs `console.auth`, and "
        "a certificate or `console.behind_proxy`.",
    )
    command_config: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="How the console connects to brokers: a properties file of Kafka's clients, with "
        "security.protocol and the like. Needed where the listener that it uses asks for a login. With a "
        "login in it and `security.authorization: acls`, `drayd up` starts a console only if `auth` is set.",
    )
    listener: Annotated[str | None, Either("none", Text(r"[A-Z][A-Z0-9_]{0,99}", "a listener's name"))] = (
        Field(
            default=None,
            description="Which of `broker.listeners` the console beside `drayd up` connects to; `none`: "
            "`broker.listen`, where clients are not asked who they are.",
        )
    )
    auth: Annotated[str, Choice("none", "sasl", "oidc")] = Field(
        default="none",
        description="`sasl`: people log in with their user of the cluster, and see and change what that user "
        "may. `oidc`: they log in at an OpenID provider, whose access token the brokers are shown. `none`: "
        "the console's own identity serves all.",
    )
    mechanism: Annotated[str, Choice("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")] = Field(
        default="SCRAM-SHA-512",
        description="The SASL mechanism of logins; the brokers' listener has to take it.",
    )
    oidc_issuer: Annotated[str | None, Either("none", Text(r"https?://\S+", "https://HOST/PATH"))] = Field(
        default=None,
        description="The OpenID provider, as it calls itself (`iss`), to the letter. It must redirect to "
        "`/login/callback` of the console.",
    )
    oidc_client_id: Annotated[str | None, Either("none", Text(r"\S+", "text without spaces"))] = Field(
        default=None,
        description="What the provider knows the console as.",
    )
    oidc_client_secret_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="A file with the client's secret. `none`: a public client, which has only PKCE.",
    )
    oidc_scopes: Annotated[str, Text(r"\S+(?: \S+)*", "scopes, with a space between them")] = Field(
        default="openid",
        description="The scopes that are asked for; `openid` must be one of them. Where the provider gives "
        "refresh tokens for `offline_access`, sessions outlast their first token with it.",
    )
    oidc_ca_file: Annotated[str | None, Either("system", _FILE)] = Field(
        default=None,
        description="The authorities (PEM) that the provider's certificate must be of. `system`: those "
        "of the machine.",
    )
    hosts: Annotated[
        tuple[str, ...], TextList(r"[A-Za-z0-9.:\[\]-]{1,255}", "host names, with a comma between them")
    ] = Field(
        default=(),
        description="Names under which browsers reach the console, beside its own address. Requests for any "
        "other are refused.",
    )
    certificate_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The console's certificate and its chain, in PEM; with `console.key_file`.",
    )
    key_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The key of the certificate, in PEM.",
    )
    behind_proxy: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether a proxy before the console speaks TLS to browsers. The console itself must then "
        "be reached by nothing else.",
    )
    runs: Annotated[str | None, Either("none", Text(r"(?s:.+)", "a directory"))] = Field(
        default=None,
        description="A directory of simulated clusters to show: files that `drayd simulate --seed N --json` "
        "wrote.",
    )
    masked: Annotated[
        Mapping[str, str],
        TextMap("patterns of topics' names, each with what is hidden of their records", r"(?s:.{1,249})"),
    ] = Field(
        default_factory=dict,
        description="What of records is hidden, such as `payments*: value.card.number; header.token; "
        "~[0-9]{16}`: `key`, `value`, `headers`, fields of JSON, headers by name, or whatever matches an "
        "expression. Such topics have neither SQL nor replay.",
    )
