"""Stores in which other systems keep their logs: topics that were attached are read from there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field, SecretStr

from dray.config.kinds import GIB, HOUR, KIB, MIB, Duration, InvalidValue, SecretMap, Size, Text, TextMap
from dray.config.section import Section

_NAME: Final = r"[a-z0-9][a-z0-9-]{0,62}"
_URL: Final = Text(
    r"(?:file:.+|(?:s3|gs|az)://[^/\s]+(?:/\S*)?)",
    "file:PATH, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX",
)


class _StoreMap(TextMap):
    """URLs by the names of stores."""

    def __init__(self) -> None:
        super().__init__(f"names of stores with their URLs: {_URL.allowed()}", _NAME, "-")

    def _text(self, value: Any) -> Any:
        if not isinstance(value, str):
            raise InvalidValue
        return _URL.parse(value)


class ForeignSection(Section):
    """Stores in which other systems keep the segments of topics that were attached (`drayd migrate`). Dray
    only reads them, so credentials that can only read are enough."""

    stores: Annotated[Mapping[str, str], _StoreMap()] = Field(
        default_factory=dict,
        description="Names of stores with their URLs, such as `{old: s3://bucket/prefix}`. Attached topics "
        "name their store: every broker and compactor needs it under the same name. A broker that does not "
        "know it answers KAFKA_STORAGE_ERROR for what lies there.",
    )
    options: Annotated[
        Mapping[str, str],
        TextMap("options with text values, such as {old.region: eu-west-1}", rf"{_NAME}\.[a-z0-9_]+"),
    ] = Field(
        default_factory=dict,
        description="Options of the stores' clients, as in `objects.options`, behind the name of their store "
        "and a dot.",
    )
    secrets: Annotated[
        Mapping[str, SecretStr],
        SecretMap("credentials with text values, such as {old.access_key_id: ...}", rf"{_NAME}\.[a-z0-9_]+"),
    ] = Field(
        default_factory=dict,
        description="Credentials of the stores' clients, never printed, named as their options are.",
    )
    keys: Annotated[
        Mapping[str, str],
        TextMap("names of keys with paths, such as {old.key1: /etc/dray/key1.pem}", rf"{_NAME}\.\S+"),
    ] = Field(
        default_factory=dict,
        description="Where segments are encrypted: files with the RSA private keys (PKCS 8, PEM or DER) that "
        "unwrap their data keys, behind the name of their store, a dot and the key's own name.",
    )
    cache_bytes: Annotated[int, Size(256 * KIB, 64 * GIB)] = Field(
        default=64 * MIB,
        description="What a broker keeps of foreign segments in memory, checked and ready to be served; and "
        "as much again of chunks that were unpacked, where segments are compressed or encrypted. All "
        "partitions that are read share it.",
    )
    audit_interval: Annotated[float, Duration(60.0, 30 * 24 * HOUR)] = Field(
        default=24 * HOUR,
        description="How often a broker looks whether the objects of attached topics are still there.",
    )
