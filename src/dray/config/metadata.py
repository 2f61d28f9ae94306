"""The settings of metadata stores that are services of their own: one section each, under `metadata`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SecretStr

from dray.config.kinds import MINUTE, Duration, Either, SecretMap, Switch, Text
from dray.config.section import Section

_HOST_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
_ADDRESSES = Text(rf"{_HOST_PORT}(?:,{_HOST_PORT})*", "HOST:PORT, or several with commas between them")
_FILE = Text(r"(?s:.+)", "a path")
_NAMESPACE = Text(r"[^\s/]+", "a namespace without `/`, such as dray-production")
_SERVER_NAME = Text(r"[A-Za-z0-9._-]+", "a host name")


class OxiaSettings(Section):
    """An Oxia namespace. Its key sorting has to be `natural`, its notifications enabled."""

    addresses: Annotated[str, _ADDRESSES] = Field(
        default="127.0.0.1:6648",
        description="Servers of the Oxia cluster to begin with; the others are learnt from them.",
    )
    namespace: Annotated[str, _NAMESPACE] = Field(
        default="default",
        description="The namespace of this Dray cluster, and of no other.",
    )
    tls: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether to speak TLS to the servers.",
    )
    ca_file: Annotated[str | None, Either("system", _FILE)] = Field(
        default=None,
        description="The authority that the servers' certificates are checked against.",
    )
    certificate_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="Our own certificate, where the servers ask for one; with `key_file`.",
    )
    key_file: Annotated[str | None, Either("none", _FILE)] = Field(
        default=None,
        description="The key of our certificate.",
    )
    server_name: Annotated[str | None, Either("auto", _SERVER_NAME)] = Field(
        default=None,
        description="The name in the servers' certificates, where it is not their address.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("`token` with a text value, such as {token: ...}", r"token"),
    ] = Field(
        default_factory=dict,
        description="`token` is sent with every request. Better from the environment: "
        "`DRAY_METADATA__OXIA__SECRETS__TOKEN=...`.",
    )
    request_timeout: Annotated[float, Duration(0.1, 5 * MINUTE)] = Field(
        default=5.0,
        description="A write that is not answered by then is looked up before anything else is done.",
    )
    patience: Annotated[float, Duration(0.1, 60 * MINUTE)] = Field(
        default=15.0,
        description="How long a request waits for a leader, through elections, before it fails.",
    )
