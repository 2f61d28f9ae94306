"""Read schemas that Kafka keeps beside its protocol, and `kio` has not: what its brokers write into topics
of their own.

`tools/schemas` holds them as Kafka's generator takes them, without the sentences.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.generator.schema import FIXED, STRUCT, Field, Message, Struct, holders_last
from tools.generator.source import snake_case

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"
NEWEST = 32767


def load_plain(name: str) -> Message:
    tree = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    versions = _versions(tree["validVersions"], NEWEST)
    last = max(versions)
    structs: dict[str, Struct] = {}
    _read_struct(tree["name"], tree["fields"], versions, last, structs)
    return Message(
        tree["name"],
        "data",
        tree["apiKey"],
        holders_last(structs, tree["name"]),
        _versions(tree["flexibleVersions"], last) & versions,
    )


def _read_struct(
    name: str, fields: list[dict[str, Any]], versions: set[int], last: int, structs: dict[str, Struct]
) -> None:
    read = [_field(tree, versions, last, structs) for tree in fields]
    structs[name] = Struct(name, read, versions)


def _field(tree: dict[str, Any], within: set[int], last: int, structs: dict[str, Struct]) -> Field:
    kind: str = tree["type"]
    array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    versions = _versions(tree["versions"], last) & within
    if "fields" in tree:
        _read_struct(kind, tree["fields"], versions, last, structs)
    is_struct = kind not in FIXED and kind not in ("string", "bytes")
    return Field(
        name=snake_case(tree["name"]),
        kind=STRUCT if is_struct else kind,
        struct=kind if is_struct else None,
        array=array,
        tag=tree.get("tag"),
        default=_default(kind, array, tree.get("default")),
        versions=versions,
        nullable=_versions(tree.get("nullableVersions", "none"), last) & versions,
    )


def _default(kind: str, array: bool, stated: object) -> Any:
    if array:
        return ()
    if stated == "null":
        return None
    if stated is not None:
        return int(str(stated))
    if kind == "bool":
        return False
    return {"string": "", "bytes": b"", "uuid": None}.get(kind, 0 if kind in FIXED else None)


def _versions(text: str, last: int) -> set[int]:
    """Kafka writes `none`, `3`, `0-4` or `3+`."""
    if text == "none":
        return set()
    first, dash, end = text.rstrip("+").partition("-")
    if text.endswith("+"):
        return set(range(int(first), last + 1))
    return set(range(int(first), int(end if dash else first) + 1))
