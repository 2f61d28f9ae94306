"""The rights of clients, and the issuers whose tokens are believed."""

from __future__ import annotations

from dataclasses import dataclass

from dray.base.config.kinds import HOUR, Choice, Either, Switch, Text, TextList
from dray.base.config.setting import setting

_FILE = Text(r"(?s:.+)", "a path")


@dataclass(frozen=True, kw_only=True)
class HttpSection:
    """Health and metrics over HTTP, of brokers and of compactors (`broker.http`, `compaction.http`)."""

    token_file: str | None = setting(
        None,
        Either("none", _FILE),
        "Holds the token that scrapers present (`Authorization: Bearer`), or several, a line "
        "each. Without it all may read everything; with it others only see whether a process is alive and "
        "ready. Re-read when it changes. The console presents the first.",
    )
    certificate_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The certificate with which health and metrics are served over HTTPS; with `key_file`. "
        "Both are re-read when they change.",
    )
    key_file: str | None = setting(None, Either("none", _FILE), "The key of the certificate.")
    client_ca_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The authorities of clients' certificates; with `certificate_file`. A client with such a "
        "certificate reads everything, as one with a token does, and one with neither sees only whether a "
        "process is alive and ready. Re-read when it changes. The console presents `certificate_file`.",
    )
    ca_file: str | None = setting(
        None,
        Either("none", _FILE),
        "The authority that signed those certificates: with it, the console reads the numbers of "
        "brokers and compactors over HTTPS.",
    )


_SOME_TEXT = Text(r"\S+", "text without spaces")


@dataclass(frozen=True, kw_only=True)
class SecuritySection:
    """The rights of clients."""

    authorization: str = setting(
        "none",
        Choice("none", "acls"),
        "`none`: every client may do everything. `acls`: what ACLs allow (`drayd admin acl`, "
        "`kafka-acls.sh`), as Kafka's StandardAuthorizer decides; clients of listeners that do not ask who "
        "they are, `drayd` commands and the console among them, are `User:ANONYMOUS`. All brokers of a "
        "cluster must have the same.",
    )
    super_users: tuple[str, ...] = setting(
        (),
        TextList(
            r"User:(?!\*$)[^;\s][^;]*",
            "principals such as User:admin, as a list or with semicolons between them",
            ";",
        ),
        "Those who may do everything: Kafka's `super.users`. With `authorization: acls` there "
        "must be one, or nobody could create the first ACL.",
    )
    allow_if_no_acl: bool = setting(
        False,
        Switch(),
        "Whether all may do everything to a resource that no ACL names: Kafka's "
        "`allow.everyone.if.no.acl.found`.",
    )


@dataclass(frozen=True, kw_only=True)
class OAuthSection:
    """Tokens of clients (the SASL mechanism OAUTHBEARER)."""

    key_set_file: str | None = setting(
        None,
        Either("none", _SOME_TEXT),
        "The keys that sign tokens: a JSON Web Key Set (RFC 7517) of RSA, EC or Ed25519 keys. "
        "Listeners with OAUTHBEARER need it, or `key_set_url`. It is re-read when it changes.",
    )
    key_set_url: str | None = setting(
        None,
        Either("none", Text(r"https://\S+", "https://HOST/PATH")),
        "Where the same is fetched from, in place of `key_set_file`. While the address is away, "
        "the keys that were fetched last hold.",
    )
    key_set_ca_file: str | None = setting(
        None,
        Either("system", _SOME_TEXT),
        "The authorities (PEM) that the certificate of `key_set_url` must be of. `system`: those "
        "of the machine.",
    )
    key_set_refresh: float = HOUR  # a token of an unknown key has them fetched at once
    issuer: str | None = setting(None, Either("any", _SOME_TEXT), "The `iss` that a token must have.")
    audiences: str | None = setting(
        None, Either("any", _SOME_TEXT), "The `aud` of a token must be one of these, separated by commas."
    )
    subject_claim: str = setting("sub", _SOME_TEXT, "The claim that names the user.")
