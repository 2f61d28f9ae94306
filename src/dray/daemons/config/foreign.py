"""Stores in which other systems keep their logs: topics that were attached are read from there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dray.base.config.kinds import GIB, KIB, MIB, InvalidValue, Secret, SecretMap, Size, Text, TextMap
from dray.base.config.setting import setting

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


@dataclass(frozen=True, kw_only=True)
class ForeignSection:
    """Stores in which other systems keep the segments of topics that were attached (`drayd migrate`). Dray
    only reads them, so credentials that can only read are enough."""

    stores: Mapping[str, str] = setting(
        {},
        _StoreMap(),
        "Names of stores with their URLs, such as `{old: s3://bucket/prefix}`. Attached topics "
        "name their store: every broker and compactor needs it under the same name. A broker that does not "
        "know it answers KAFKA_STORAGE_ERROR for what lies there.",
    )
    options: Mapping[str, str] = setting(
        {},
        TextMap("options with text values, such as {old.region: eu-west-1}", rf"{_NAME}\.[a-z0-9_]+"),
        "Options of the stores' clients, as in `objects.options`, behind the name of their store and a dot.",
    )
    secrets: Mapping[str, Secret] = setting(
        {},
        SecretMap("credentials with text values, such as {old.access_key_id: ...}", rf"{_NAME}\.[a-z0-9_]+"),
        "Credentials of the stores' clients, never printed, named as their options are.",
    )
    keys: Mapping[str, str] = setting(
        {},
        TextMap("names of keys with paths, such as {old.key1: /etc/dray/key1.pem}", rf"{_NAME}\.\S+"),
        "Where segments are encrypted: files with the RSA private keys (PKCS 8, PEM or DER) that "
        "unwrap their data keys, behind the name of their store, a dot and the key's own name.",
    )
    cache_bytes: int = setting(
        64 * MIB,
        Size(256 * KIB, 64 * GIB),
        "What a broker keeps of foreign segments in memory, checked and ready to be served; and "
        "as much again of chunks that were unpacked, where segments are compressed or encrypted. All "
        "partitions that are read share it.",
    )
