"""The settings of metadata stores that are services of their own: one section each, under `metadata`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, SecretStr

from dray.config.kinds import KIB, MIB, MINUTE, Duration, Either, SecretMap, Size, Switch, Text, Whole
from dray.config.section import Section

_HOST_PORT = r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
_ADDRESSES = Text(rf"{_HOST_PORT}(?:,{_HOST_PORT})*", "HOST:PORT, or several with commas between them")
_FILE = Text(r"(?s:.+)", "a path")
_NAMESPACE = Text(r"[^\s/]+", "a namespace without `/`, such as dray-production")
_PREFIX = Text(r"[!-~]{1,64}", "1 to 64 characters of ASCII without spaces, such as dray/production/")
_USER = Text(r"\S+", "a user name")
_SERVER_NAME = Text(r"[A-Za-z0-9._-]+", "a host name")


class _Servers(Section):
    """How servers of either kind are spoken to."""

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
    request_timeout: Annotated[float, Duration(0.1, 5 * MINUTE)] = Field(
        default=5.0,
        description="A write that is not answered by then is looked up before anything else is done.",
    )
    patience: Annotated[float, Duration(0.1, 60 * MINUTE)] = Field(
        default=15.0,
        description="How long a request waits for a leader, through elections, before it fails.",
    )


class OxiaSection(_Servers):
    """An Oxia namespace. Its notifications have to be enabled."""

    addresses: Annotated[str, _ADDRESSES] = Field(
        default="127.0.0.1:6648",
        description="Servers of the Oxia cluster to begin with; the others are learnt from them.",
    )
    namespace: Annotated[str, _NAMESPACE] = Field(
        default="default",
        description="The namespace of this Dray cluster, and of no other.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("`token` with a text value, such as {token: ...}", r"token"),
    ] = Field(
        default_factory=dict,
        description="`token` is sent with every request. Better from the environment: "
        "`DRAY_METADATA__OXIA__SECRETS__TOKEN=...`.",
    )


class EtcdSection(_Servers):
    """An etcd cluster, 3.4.31, 3.5.13 or newer."""

    endpoints: Annotated[str, _ADDRESSES] = Field(
        default="127.0.0.1:2379",
        description="The servers. One that fails is left for the next.",
    )
    prefix: Annotated[str, _PREFIX] = Field(
        default="dray/",
        description="What the keys of this Dray cluster begin with, and those of no other.",
    )
    user: Annotated[str | None, Either("none", _USER)] = Field(
        default=None,
        description="Who to log in as, with the password in `secrets`.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("`password` or `token` with a text value, such as {password: ...}", r"password|token"),
    ] = Field(
        default_factory=dict,
        description="`password` of the user, or a `token` that is sent as it is. Better from the "
        "environment: `DRAY_METADATA__ETCD__SECRETS__PASSWORD=...`.",
    )

    serializable_reads: Annotated[bool, Switch()] = Field(
        default=False,
        description="Whether reads are answered by one server alone: faster, and perhaps behind the newest "
        "writes where that does no harm.",
    )
    max_txn_ops: Annotated[int, Whole(100, 1_000_000)] = Field(
        default=128,
        description="The servers' `--max-txn-ops`.",
    )
    max_request_bytes: Annotated[int, Size(MIB, 64 * MIB)] = Field(
        default=1536 * KIB,
        description="The servers' `--max-request-bytes`.",
    )
