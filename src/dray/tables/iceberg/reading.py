"""A table as a reader sees it: its current files and columns, from metadata alone; and rows for a log that
lost them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from pyiceberg import expressions
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from dray.tables.contract import TableSnapshot, parse_ends
from dray.tables.iceberg.identity import is_ours, topic_of, why_refused
from dray.tables.iceberg.manifests import end_of, ends_in, entries_of, read_list, start_of
from dray.tables.iceberg.schema import COLUMNS, OFFSET, PARTITION
from dray.tables.iceberg.snapshots import clean_points
from dray.tables.iceberg.view import ENDS, Column, TableView

if TYPE_CHECKING:
    import pyarrow


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
    # Its own word first: the last offsets of a file may have no row.
    said = parse_ends(current.summary.get(ENDS)) if current and current.summary else None
    ends: dict[int, int] = dict(said or {})
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in entries_of(manifest, table.io):
            file = entry.data_file
            files.append(file.file_path)
            rows += file.record_count
            size += file.file_size_in_bytes
            reached = end_of(file)
            if reached is not None:
                ends[reached[0]] = max(ends.get(reached[0], 0), reached[1])
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
        clean_points=clean_points(metadata.properties),
        columns=_columns(table),
        has_delete_files=any(manifest.content == ManifestContent.DELETES for manifest in manifests),
        trouble=why_refused(metadata, topic, cluster_id),
    )


class SnapshotFile(NamedTuple):
    """A file of rows whose offsets lie from `start` to before `end`."""

    location: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class SnapshotFiles:
    """The log's files in one snapshot. `ends` as in `TableView`; `trouble`: why they are not the log's
    rows."""

    topic_id: UUID
    files: Sequence[SnapshotFile]
    ends: Mapping[int, int]
    trouble: str | None


def snapshot_files(table: Table, cluster_id: str) -> SnapshotFiles | None:
    """Reads every manifest of the current snapshot. None for a table that is not of this cluster."""
    topic = topic_of(table.metadata, cluster_id)
    if topic is None:
        return None
    current = table.metadata.current_snapshot()
    trouble = why_refused(table.metadata, topic, cluster_id)
    files: list[SnapshotFile] = []
    said = parse_ends(current.summary.get(ENDS)) if current and current.summary else None
    ends = dict(said or {})
    for manifest in read_list(table.io, current.manifest_list) if current and trouble is None else []:
        if manifest.content == ManifestContent.DELETES:
            trouble = "another writer deleted rows in it"
        for entry in entries_of(manifest, table.io):
            first, reached = start_of(entry.data_file), end_of(entry.data_file)
            if first is None or reached is None:
                trouble = trouble or "it has files that do not say which offsets they hold"
                continue
            partition, end = reached
            files.append(SnapshotFile(entry.data_file.file_path, partition, first, end))
            ends[partition] = max(ends.get(partition, 0), end)
    return SnapshotFiles(topic.topic_id, files, ends, trouble)


def _columns(table: Table) -> list[Column]:
    ours = {field.field_id: field.name for field in COLUMNS.fields}
    return [
        Column(field.name, ours.get(field.field_id), str(field.field_type)) for field in table.schema().fields
    ]


def snapshots(table: Table, cluster_id: str) -> list[TableSnapshot]:
    """The history of the current snapshot, newest first; from the table's own metadata file alone."""
    metadata = table.metadata
    return [_snapshot(each, cluster_id) for each in ancestors_of(metadata.current_snapshot(), metadata)]


def _snapshot(snapshot: Snapshot, cluster_id: str) -> TableSnapshot:
    summary = snapshot.summary

    def count(name: str) -> int:
        text = summary.get(name) if summary else None
        return int(text) if text and text.isdecimal() else 0

    return TableSnapshot(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.timestamp_ms,
        summary.operation.value if summary else "unknown",
        count("added-records"),
        count("deleted-records"),
        count("added-data-files"),
        count("deleted-data-files"),
        count("total-records"),
        count("total-data-files"),
        count("total-files-size"),
        parse_ends(summary.get(ENDS)) if summary else None,
        is_ours(snapshot, cluster_id),
    )


def ends_of(table: Table, snapshot_id: int) -> Mapping[int, int] | None:
    """The ends of one snapshot: its own word, or its manifests'. None for one that has expired."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    said = parse_ends(snapshot.summary.get(ENDS)) if snapshot.summary else None
    return ends_in(read_list(table.io, snapshot.manifest_list), table.io) if said is None else said


# --- rows that a table still has, for offsets whose own file the log has lost


def rows_in(table: Table, partition: int, start: int, end: int) -> pyarrow.Table:
    """The rows of a range of offsets, each once, in their order. Files that are gone are passed over. Columns
    are found by field id, so that it does not matter how they are called by now."""
    import pyarrow as pa

    of = table.schema().find_column_name
    offset = str(of(OFFSET))
    make: Any = expressions  # whose types know only the names of their fields
    within = make.And(make.GreaterThanOrEqual(offset, start), make.LessThan(offset, end))
    wanted = make.And(make.EqualTo(str(of(PARTITION)), partition), within)
    tasks = [
        task
        for task in table.scan(row_filter=wanted).plan_files()
        if table.io.new_input(task.file.file_path).exists()
    ]
    batches = list(ArrowScan(table.metadata, table.io, COLUMNS, wanted).to_record_batches(tasks))
    if not batches:
        return pa.table({"offset": []})
    rows = pa.Table.from_batches(batches).sort_by("offset")
    offsets = rows.column("offset").to_pylist()
    first = [place for place, each in enumerate(offsets) if not place or each != offsets[place - 1]]
    return rows.take(first) if len(first) < len(offsets) else rows
