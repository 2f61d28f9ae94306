"""Whose tokens are believed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dray.config.kinds import Either, Text
from dray.config.section import Section

_SOME_TEXT = Text(r"\S+", "text without spaces")


class OAuthSection(Section):
    """Tokens of clients (the SASL mechanism OAUTHBEARER)."""

    key_set_file: Annotated[str | None, Either("none", _SOME_TEXT)] = Field(
        default=None,
        description="The keys that sign tokens: a JSON Web Key Set (RFC 7517) of RSA, EC or Ed25519 keys. "
        "Needed by listeners with OAUTHBEARER, and re-read when it changes.",
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
