"""Who may do what, and whose tokens are believed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dray.config.kinds import DAY, HOUR, MINUTE, Choice, Duration, Either, Switch, Text, TextList
from dray.config.section import Section

_SOME_TEXT = Text(r"\S+", "text without spaces")


class SecuritySection(Section):
    """What clients may do."""

    authorization: Annotated[str, Choice("none", "acls")] = Field(
        default="none",
        description="`none`: every client may do everything. `acls`: what ACLs allow (`drayd admin acl`, "
        "`kafka-acls.sh`), as Kafka's StandardAuthorizer decides; clients of listeners that do not ask who "
        "they are, `drayd` commands and the console among them, are `User:ANONYMOUS`. All brokers of a "
        "cluster must have the same.",
    )
    super_users: Annotated[
        tuple[str, ...],
        TextList(
            r"User:(?!\*$)[^;\s][^;]*",
            "principals such as User:admin, as a list or with semicolons between them",
            ";",
        ),
    ] = Field(
        default=(),
        description="Those who may do everything: Kafka's `super.users`. With `authorization: acls` there "
        "must be one, or nobody could create the first ACL.",
    )
    allow_if_no_acl: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether all may do everything to a resource that no ACL names: Kafka's "
        "`allow.everyone.if.no.acl.found`.",
    )
    tls_library: Annotated[str, Choice("bundled", "system")] = Field(
        default="bundled",
        description="Whose OpenSSL encrypts the listeners of brokers: the newer one that the package "
        "`cryptography` brings along (`bundled`), which takes less of the processor, or (`system`) the one "
        "that Python uses here. Where the former cannot be loaded, the latter is used, and a line in the "
        "log says so. Health, metrics and the console always use the latter.",
    )


class OAuthSection(Section):
    """Tokens of clients (the SASL mechanism OAUTHBEARER)."""

    key_set_file: Annotated[str | None, Either("none", _SOME_TEXT)] = Field(
        default=None,
        description="The keys that sign tokens: a JSON Web Key Set (RFC 7517) of RSA, EC or Ed25519 keys. "
        "Listeners with OAUTHBEARER need it, or `key_set_url`. It is re-read when it changes.",
    )
    key_set_url: Annotated[str | None, Either("none", Text(r"https://\S+", "https://HOST/PATH"))] = Field(
        default=None,
        description="Where the same is fetched from, in place of `key_set_file`. While the address is away, "
        "the keys that were fetched last hold.",
    )
    key_set_ca_file: Annotated[str | None, Either("system", _SOME_TEXT)] = Field(
        default=None,
        description="The authorities (PEM) that the certificate of `key_set_url` must be of. `system`: those "
        "of the machine.",
    )
    key_set_refresh: Annotated[float, Duration(MINUTE, 365 * DAY)] = Field(
        default=HOUR,
        description="How often the keys are fetched again. A token of an unknown key has them fetched at "
        "once, at most every 10 seconds.",
    )
    issuer: Annotated[str | None, Either("any", _SOME_TEXT)] = Field(
        default=None,
        description="The `iss` that a token must have.",
    )
    audiences: Annotated[str | None, Either("any", _SOME_TEXT)] = Field(
        default=None,
        description="The `aud` of a token must be one of these, separated by commas.",
    )
    subject_claim: Annotated[str, _SOME_TEXT] = Field(
        default="sub",
        description="The claim that names the user.",
    )
