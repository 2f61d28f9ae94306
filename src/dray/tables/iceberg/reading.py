"""A table as a reader sees it: its current files and columns, from metadata alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.types import LongType

from dray.tables.iceberg.identity import topic_of, why_refused
from dray.tables.iceberg.manifests import read_list
from dray.tables.iceberg.schema import COLUMNS, OFFSET


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


def view(table: Table, cluster_id: str) -> TableView | None:
    """Reads every manifest of the current snapshot. None for a table that is not of this cluster."""
    metadata = table.metadata
    topic = topic_of(metadata, cluster_id)
    if topic is None:
        return None
    current = metadata.current_snapshot()
    manifests = read_list(table.io, current.manifest_list) if current else []
    rows = size = 0
    files: list[str] = []
    ends: dict[int, int] = {}
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            files.append(file.file_path)
            rows += file.record_count
            size += file.file_size_in_bytes
            partition = int(file.partition[0])
            last = (file.upper_bounds or {}).get(OFFSET)
            if last is not None:
                end = int(from_bytes(LongType(), last)) + 1
                ends[partition] = max(ends.get(partition, 0), end)
    return TableView(
        name=".".join(table.name()),
        topic=topic.topic,
        topic_id=topic.topic_id,
        table_uuid=metadata.table_uuid,
        location=table.location(),
        metadata_location=table.metadata_location,
        snapshot_id=current.snapshot_id if current else None,
        updated_ms=current.timestamp_ms if current else None,
        snapshots=len(metadata.snapshots),
        manifests=len(manifests),
        rows=rows,
        size=size,
        files=sorted(files),
        ends=ends,
        columns=_columns(table),
        has_delete_files=any(manifest.content == ManifestContent.DELETES for manifest in manifests),
        trouble=why_refused(metadata, topic, cluster_id),
    )


def _columns(table: Table) -> list[Column]:
    ours = {field.field_id: field.name for field in COLUMNS.fields}
    return [
        Column(field.name, ours.get(field.field_id), str(field.field_type)) for field in table.schema().fields
    ]
