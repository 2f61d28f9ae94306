"""A table as its readers see it; and a plain one read without the library, which takes longer to load than a
small query takes.

Plain is what `drayd up` makes: a SQLite catalog and local files, a snapshot of ours with its ends, no delete
files, manifests in the codecs that Python has. Of anything else this module says nothing, and the library is
asked (`reading.py`), so that nothing is decided here that is not decided there.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from dray.tables.contract import parse_ends
from dray.tables.iceberg.settings import CATALOG_NAME, CatalogSettings

TOPIC: Final = "dray.topic"
TOPIC_ID: Final = "dray.topic_id"
CLUSTER_ID: Final = "dray.cluster_id"
ENDS: Final = "dray.ends"

SOURCES: Final = {
    1: "partition",
    2: "offset",
    3: "timestamp",
    4: "key",
    5: "value",
    6: "headers",
    7: "producer_id",
    8: "producer_epoch",
    9: "base_sequence",
    10: "attributes",
}
"""The names of the columns in the log's files, by their ids (`schema.COLUMNS`)."""

_KINDS: Final = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamptz",
    "headers": "list",
    "producer_id": "long",
    "producer_epoch": "int",
    "base_sequence": "int",
    "attributes": "int",
}

MOST_FILES: Final = 2000
"""Of a table with more, the library reads the manifests faster, with its compiled parts."""


@dataclass(frozen=True)
class Column:
    """`source` is its name in the files; None for a column that the owner of the table added."""

    name: str
    source: str | None
    kind: str


@dataclass(frozen=True)
class TableView:
    name: str
    topic: str
    topic_id: UUID
    table_uuid: UUID
    location: str
    metadata_location: str
    snapshot_id: int | None
    updated_ms: int | None
    snapshots: int
    manifests: int
    rows: int
    size: int
    files: Sequence[str]
    """The locations of the data files."""
    ends: Mapping[int, int]
    """Per partition, the offset after the last one that the table has."""
    columns: Sequence[Column]
    has_delete_files: bool
    trouble: str | None
    """Why the table is not written any more, if so."""
    clean_points: Mapping[int, int] = field(default_factory=dict)
    """Per partition, the offset below which no key has two rows; of partitions that have one."""


def no_table_yet(topic: str, topic_id: UUID) -> TableView:
    """The view of a topic that no compactor has touched."""
    columns = [Column(name, name, _KINDS.get(name, "binary")) for name in SOURCES.values()]
    return TableView(
        topic, topic, topic_id, UUID(int=0), "", "", None, None, 0, 0, 0, 0, (), {}, columns, False, None
    )


class NotPlain(Exception):
    """The library has to be asked."""


def plain_view(settings: CatalogSettings, cluster_id: str, topic: str) -> TableView | None:
    """None where the catalog has no table of this topic of this cluster. Raises `NotPlain`; blocks."""
    try:
        location = _metadata_location(settings, topic)
        return None if location is None else _view(settings, cluster_id, topic, location)
    except NotPlain:
        raise
    except Exception as error:  # whatever it is, the library says what
        raise NotPlain(str(error)) from error


def _metadata_location(settings: CatalogSettings, topic: str) -> str | None:
    scheme, file = "sqlite:///", settings.uri or ""
    if settings.kind != "sql" or not file.startswith(scheme) or "?" in file:
        raise NotPlain("another catalog")
    path = Path(file.removeprefix(scheme))
    if not path.exists():  # nothing was compacted yet
        return None
    *namespace, name = settings.identifier(topic)
    with closing(sqlite3.connect(path.absolute().as_uri() + "?mode=ro", uri=True)) as catalog:
        found = catalog.execute(
            "select metadata_location from iceberg_tables"
            " where catalog_name = ? and table_namespace = ? and table_name = ?",
            (CATALOG_NAME, ".".join(namespace), name),
        ).fetchone()
    return None if found is None else str(found[0])


def _view(settings: CatalogSettings, cluster_id: str, topic: str, location: str) -> TableView | None:
    metadata = json.loads(_read(location))
    if metadata["format-version"] != 2:
        raise NotPlain("another format")
    properties = metadata.get("properties", {})
    if properties.get(CLUSTER_ID) != cluster_id or properties.get(TOPIC) != topic:
        return None
    [schema] = [each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"]]
    columns = [
        Column(each["name"], SOURCES.get(each["id"]), _kind(each["type"])) for each in schema["fields"]
    ]
    current = metadata.get("current-snapshot-id")
    manifests: list[dict[str, Any]] = []
    ends: Mapping[int, int] | None = {}
    updated_ms = None
    if current in (None, -1):
        current = None
    else:
        [snapshot] = [each for each in metadata["snapshots"] if each["snapshot-id"] == current]
        updated_ms = snapshot["timestamp-ms"]
        ends = parse_ends(snapshot["summary"].get(ENDS))
        manifests = avro_records(_read(snapshot["manifest-list"]))
    if ends is None or any(each["content"] for each in manifests):
        raise NotPlain("no ends, or delete files")
    if sum(each["added_files_count"] + each["existing_files_count"] for each in manifests) > MOST_FILES:
        raise NotPlain("many files")
    entries = [entry for each in manifests for entry in avro_records(_read(each["manifest_path"]))]
    files = [entry["data_file"] for entry in entries if entry["status"] != _DELETED]
    return TableView(
        name=".".join(settings.identifier(topic)),
        topic=topic,
        topic_id=UUID(properties[TOPIC_ID]),
        table_uuid=UUID(metadata["table-uuid"]),
        location=metadata["location"],
        metadata_location=location,
        snapshot_id=current,
        updated_ms=updated_ms,
        snapshots=len(metadata.get("snapshots", ())),
        manifests=len(manifests),
        rows=sum(file["record_count"] for file in files),
        size=sum(file["file_size_in_bytes"] for file in files),
        files=sorted(file["file_path"] for file in files),
        ends=ends,
        columns=columns,
        has_delete_files=False,
        trouble=None,
    )


_DELETED: Final = 2


def _kind(given: Any) -> str:
    return given if isinstance(given, str) else str(given["type"])


def _read(location: str) -> bytes:
    prefix = "file://"
    if not location.startswith(prefix):
        raise NotPlain("not a local file")
    return Path(location.removeprefix(prefix)).read_bytes()


# --- Avro, as manifests are written

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_Read = Callable[[BytesIO], Any]


def avro_records(data: bytes) -> list[Any]:
    """Every record of an object container file."""
    source = BytesIO(data)
    if source.read(len(_MAGIC)) != _MAGIC:
        raise NotPlain("not Avro")
    header = _map_of(_bytes)(source)
    sync = source.read(_SYNC_BYTES)
    codec = header.get("avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise NotPlain("another codec")
    read = _reader(json.loads(header["avro.schema"]), {})
    found: list[Any] = []
    while source.tell() < len(data):
        count, block = _long(source), _bytes(source)
        inside = BytesIO(zlib.decompress(block, -zlib.MAX_WBITS) if codec == b"deflate" else block)
        found += [read(inside) for _ in range(count)]
        if source.read(_SYNC_BYTES) != sync:
            raise NotPlain("damaged")
    return found


def _reader(schema: Any, named: dict[str, _Read]) -> _Read:
    if isinstance(schema, list):
        branches = [_reader(each, named) for each in schema]
        return lambda source: branches[_long(source)](source)
    if isinstance(schema, str):
        return named.get(schema) or _PRIMITIVES[schema]
    kind = schema["type"]
    if kind == "record":
        fields: list[tuple[str, _Read]] = []

        def record(source: BytesIO) -> dict[str, Any]:
            return {name: read(source) for name, read in fields}

        named[schema["name"]] = record
        fields += [(each["name"], _reader(each["type"], named)) for each in schema["fields"]]
        return record
    if kind == "array":
        return _array_of(_reader(schema["items"], named))
    if kind == "map":
        return _map_of(_reader(schema["values"], named))
    if kind == "fixed":
        size = schema["size"]
        named[schema["name"]] = lambda source: source.read(size)
        return named[schema["name"]]
    return _reader(kind, named)


def _long(source: BytesIO) -> int:
    found = shift = 0
    while True:
        [byte] = source.read(1)
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
        shift += 7


def _bytes(source: BytesIO) -> bytes:
    return source.read(_long(source))


def _text(source: BytesIO) -> str:
    return _bytes(source).decode()


def _array_of(read: _Read) -> _Read:
    def array(source: BytesIO) -> list[Any]:
        found: list[Any] = []
        while count := _long(source):
            if count < 0:
                count = -count
                _long(source)  # the bytes of the block
            found += [read(source) for _ in range(count)]
        return found

    return array


def _map_of(read: _Read) -> _Read:
    pairs = _array_of(lambda source: (_text(source), read(source)))
    return lambda source: dict(pairs(source))


_PRIMITIVES: Final[Mapping[str, _Read]] = {
    "null": lambda _: None,
    "boolean": lambda source: source.read(1) == b"\x01",
    "int": _long,
    "long": _long,
    "float": lambda source: struct.unpack("<f", source.read(4))[0],
    "double": lambda source: struct.unpack("<d", source.read(8))[0],
    "bytes": _bytes,
    "string": _text,
}
