"""Read Kafka's schema out of `kio` and merge its versions.

`kio` has one module per API, version and direction. Here the versions of a struct become one `Struct` whose
fields know in which versions they exist, in which they may be null, and under which tag they travel.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import types
import typing
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from kio.schema.index import api_key_map

# kio's types that only dress up a number; the schema's names of these fields end in `Ms`.
TIMES = {"timedelta_i32": "int32", "timedelta_i64": "int64", "datetime_i64": "int64"}
NUMBERS = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
}
FIXED = {**NUMBERS, "bool": ("?", 1), "uuid": ("16s", 16)}
STRUCT = "struct"

# kio drops the defaults of arrays of structs. Of those here, the schema gives only these null.
NULL_BY_DEFAULT = {
    ("ConsumerGroupHeartbeatRequest", "topic_partitions"),
    ("ListPartitionReassignmentsRequest", "topics"),
}


@dataclasses.dataclass
class Field:
    name: str
    kind: str
    """A kind of the schema (`int32`, `string`, `records`, ...), or `STRUCT`."""
    struct: str | None
    array: bool
    tag: int | None
    default: Any
    """A number, a string, None, or `()` for an empty array. Ids and structs have None: see `emit`."""
    versions: set[int]
    nullable: set[int]

    @property
    def fixed(self) -> bool:
        return self.kind in FIXED and not self.array and self.tag is None


@dataclasses.dataclass
class Struct:
    name: str
    fields: list[Field]
    versions: set[int]


@dataclasses.dataclass
class Message:
    name: str
    direction: str
    """`request`, `response` or `data`."""
    api_key: int | None
    structs: list[Struct]
    """Those that others hold come first; the message itself is the last."""
    flexible: set[int]

    @property
    def versions(self) -> set[int]:
        return self.structs[-1].versions


def load(api: str) -> list[Message]:
    """The messages of one API: request and response, or the one message of a data schema."""
    keys = {name: key for key, name in api_key_map.items()}
    by_direction: dict[str, dict[int, types.ModuleType]] = {}
    for version, direction, module in _modules(api):
        by_direction.setdefault(direction, {})[version] = module
    messages = [
        _merge_message(direction, keys.get(api), modules)
        for direction, modules in sorted(by_direction.items())
    ]
    if len(messages) == 2:
        _tell_apart(*messages)
    return messages


def _tell_apart(request: Message, response: Message) -> None:
    """Two different structs of one name, in a request and in its response: the request's get another name. So
    do the structs that hold them, which differ by what they hold."""
    theirs = {struct.name: struct for struct in response.structs}
    clashing: set[str] = set()
    while True:
        found = {
            struct.name
            for struct in request.structs
            if struct.name in theirs
            and (struct != theirs[struct.name] or any(field.struct in clashing for field in struct.fields))
        }
        if found == clashing:
            break
        clashing = found
    for struct in request.structs:
        struct.name = f"Requested{struct.name}" if struct.name in clashing else struct.name
        for field in struct.fields:
            field.struct = f"Requested{field.struct}" if field.struct in clashing else field.struct


def _modules(api: str) -> Iterator[tuple[int, str, types.ModuleType]]:
    package = importlib.import_module(f"kio.schema.{api}")
    names = [entry.name for entry in pkgutil.iter_modules(package.__path__)]
    for name in sorted(names, key=lambda name: int(name[1:])):
        of_version = importlib.import_module(f"kio.schema.{api}.{name}")
        for entry in pkgutil.iter_modules(of_version.__path__):
            yield int(name[1:]), entry.name, importlib.import_module(f"{of_version.__name__}.{entry.name}")


def _merge_message(direction: str, api_key: int | None, modules: dict[int, types.ModuleType]) -> Message:
    fields: dict[str, dict[int, list[Field]]] = {}
    flexible = set()
    name = ""
    for version, module in modules.items():
        for entity in _entities(module):
            fields.setdefault(entity.__name__, {})[version] = [
                _field(field, version) for field in dataclasses.fields(entity)
            ]
            if entity.__type__.name != "nested":
                name = entity.__name__
                if entity.__flexible__:
                    flexible.add(version)
    for struct, by_version in fields.items():
        for field in (field for of_version in by_version.values() for field in of_version):
            if (struct, field.name) in NULL_BY_DEFAULT:
                field.default = None
    structs = {
        struct: Struct(struct, _merge_fields(by_version), set(by_version))
        for struct, by_version in fields.items()
    }
    return Message(name, direction, api_key, holders_last(structs, name), flexible)


def _entities(module: types.ModuleType) -> list[Any]:
    return [
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _field(source: dataclasses.Field[Any], version: int) -> Field:
    kind = source.metadata.get("kafka_type", STRUCT)
    inner, nullable = _without_none(source.type)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, _ = _without_none(typing.get_args(inner)[0])
    name = source.name
    if kind in TIMES:
        name += "_ms"
        nullable = False
    elif kind == "uuid" and not array:
        nullable = False
    return Field(
        name=name,
        kind="int16" if kind == "error_code" else TIMES.get(kind, kind),
        struct=inner.__name__ if kind == STRUCT else None,
        array=array,
        tag=source.metadata.get("tag"),
        default=_default(kind, array, source.default),
        versions={version},
        nullable={version} if nullable else set(),
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = [argument for argument in typing.get_args(annotation) if argument is not types.NoneType]
        if len(inner) != 1:
            raise ValueError(f"cannot read the type {annotation}")
        return inner[0], True
    return annotation, False


def _default(kind: str, array: bool, default: Any) -> Any:
    missing = default is dataclasses.MISSING
    if array:
        return () if missing else default
    if kind in (STRUCT, "uuid"):
        return None
    if isinstance(default, timedelta):
        return default // timedelta(milliseconds=1)
    if kind == "datetime_i64":
        if not missing and default is not None:
            raise ValueError(f"cannot read the default {default!r} of a timestamp")
        return 0 if missing else -1
    if missing:
        return {"string": "", "bytes": b"", "records": None, "bool": False, "float64": 0.0}.get(kind, 0)
    if isinstance(default, bool | str | bytes | float) or default is None:
        return default
    return int(default)


def _merge_fields(by_version: dict[int, list[Field]]) -> list[Field]:
    """One list in which every version's fields appear in that version's order."""
    merged: list[Field] = []
    for fields in (by_version[version] for version in sorted(by_version)):
        place = 0
        for field in fields:
            known = next((other for other in merged if other.name == field.name), None)
            if known is None:
                merged.insert(place, field)
                place += 1
                continue
            if dataclasses.replace(known, versions=set(), nullable=set()) != dataclasses.replace(
                field, versions=set(), nullable=set()
            ):
                raise ValueError(f"the field {field.name} changes between versions")
            known.versions |= field.versions
            known.nullable |= field.nullable
            place = merged.index(known) + 1
    for version, fields in by_version.items():
        order = [field.name for field in merged if version in field.versions]
        if order != [field.name for field in fields]:
            raise ValueError(f"no common order of fields fits version {version}: {order}")
    return merged


def holders_last(structs: dict[str, Struct], root: str) -> list[Struct]:
    ordered: dict[str, Struct] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        for field in structs[name].fields:
            if field.struct is not None:
                visit(field.struct)
        ordered[name] = structs[name]

    visit(root)
    return list(ordered.values())
