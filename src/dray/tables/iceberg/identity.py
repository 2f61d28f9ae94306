"""The owner of a table, and whether it can still be written: the rules for a table that others may have
changed.

The history in its snapshots says which jobs are in it, and whether another writer changed its rows. The
table is a view of the log. Rows that another writer added, deleted or rewrote would make it say something
else than the log does, and later changes would build on that. So such a table is not written until the log's
own files were put back, in one commit that says so: what lies below that in the history no longer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, ancestors_of

from dray.tables.contract import TopicTable
from dray.tables.iceberg.schema import JOBS, PUT_BACK, SCHEMA_VERSION, VERSION, find_spec, why_unfit
from dray.tables.iceberg.view import CLUSTER_ID, TOPIC, TOPIC_ID

# --- history

_CHANGES: Final = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")
TOPIC_HERE: Final = "<topic>"
"""Stands for the topic's name in what is said here."""
REMEDY: Final = f"drayd admin table {TOPIC_HERE} --put-back says what that would change"


@dataclass(frozen=True, slots=True)
class Divergence:
    """How the table came to say something else than the log."""

    line: str
    rows_changed: bool
    """False where other files hold the very same rows, as far as their writer says."""


def jobs_of(snapshot: Snapshot) -> set[str]:
    named = snapshot.summary.get(JOBS) if snapshot.summary else None
    return set(named.split(",")) if named else set()


def jobs_in(metadata: TableMetadata) -> set[str]:
    """The jobs that any live snapshot names."""
    return {job for snapshot in metadata.snapshots for job in jobs_of(snapshot)}


def is_ours(snapshot: Snapshot, cluster_id: str) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(CLUSTER_ID) == cluster_id


def divergence(metadata: TableMetadata, cluster_id: str) -> Divergence | None:
    """Which change in the table's history is not ours; None if all are ours, or what was not is undone."""
    current = metadata.current_snapshot()
    newest = max(
        (snapshot for snapshot in metadata.snapshots if is_ours(snapshot, cluster_id)),
        key=_sequence,
        default=None,
    )
    if newest is not None and (current is None or _sequence(newest) > _sequence(current)):
        was = "none" if current is None else str(current.snapshot_id)
        line = (
            f"its current snapshot was set back to {was}, and rows of the log are missing in it; "
            f"set it to {newest.snapshot_id} again, or put the log's files back: {REMEDY}"
        )
        return Divergence(line, rows_changed=True)
    last_ours = None
    foreign: list[Snapshot] = []
    for snapshot in ancestors_of(current, metadata):
        if is_ours(snapshot, cluster_id):
            last_ours = last_ours or snapshot
            if snapshot.summary is not None and snapshot.summary.get(PUT_BACK) is not None:
                break
        elif _changes_files(snapshot):
            foreign.append(snapshot)
            last_ours = None
    if not foreign:
        return None
    if all(map(_keeps_rows, foreign)):
        line = f"snapshot {foreign[0].snapshot_id} of another writer put its rows into other files"
        return Divergence(f"{line}: the log's own files are put back", rows_changed=False)
    remedy = (
        f"roll it back to snapshot {last_ours.snapshot_id}, the last one of the log, "
        "or put the log's files back"
        if last_ours is not None
        else "put the log's files back"
    )
    operation = "unknown" if foreign[-1].summary is None else foreign[-1].summary.operation.value
    line = f"snapshot {foreign[-1].snapshot_id} of another writer ({operation}) changed its rows"
    return Divergence(f"{line}; {remedy}: {REMEDY}", rows_changed=True)


def _changes_files(snapshot: Snapshot) -> bool:
    """Rewriting manifests and the like leaves every row in its file: that is fine."""
    if snapshot.summary is None:
        return True
    return any(snapshot.summary.get(name) not in (None, "0") for name in _CHANGES)


def _keeps_rows(snapshot: Snapshot) -> bool:
    """Does its writer say that it holds the same rows, in other files?"""
    summary = snapshot.summary
    if summary is None or summary.operation is not Operation.REPLACE:
        return False
    return summary.get("added-records", "0") == summary.get("deleted-records", "0")


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


# --- the owner

_FORMAT: Final = 2
REBUILD: Final = (
    f"drayd admin table {TOPIC_HERE} --rebuild makes it again, once it has seen that the log has all files"
)


def topic_of(metadata: TableMetadata, cluster_id: str) -> TopicTable | None:
    """The topic that a table of this cluster says it belongs to; None for any other table."""
    properties = metadata.properties
    name, number = properties.get(TOPIC), properties.get(TOPIC_ID)
    if properties.get(CLUSTER_ID) != cluster_id or not name or not number:
        return None
    try:
        topic_id = UUID(number)
    except ValueError:
        return None
    return TopicTable(name, topic_id, find_spec(metadata, day_partitioned=True) is not None)


def is_of(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> bool:
    found = topic_of(metadata, cluster_id)
    return found is not None and (found.topic, found.topic_id) == (topic.topic, topic.topic_id)


def why_refused(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> str | None:
    """One line for the operator, or None if the table can be written."""
    unusable = why_unusable(metadata, topic, cluster_id)
    if unusable is not None:
        return unusable
    changed = why_changed(metadata, topic, cluster_id)
    return None if changed is None else changed.line


def why_changed(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> Divergence | None:
    """How another writer changed its files, with the command that puts them back."""
    found = divergence(metadata, cluster_id)
    return None if found is None else replace(found, line=found.line.replace(TOPIC_HERE, topic.topic))


def why_unusable(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> str | None:
    """The reason against any commit, whatever files the table has."""
    found = _why_unusable(metadata, topic, cluster_id)
    return None if found is None else found.replace(TOPIC_HERE, topic.topic)


def _why_unusable(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> str | None:
    properties = metadata.properties
    if TOPIC_ID not in properties:
        return (
            f"it is not of this cluster ({TOPIC_ID} is not among its properties); rename it, "
            "set the property back, or choose another iceberg.namespace"
        )
    if properties.get(CLUSTER_ID) != cluster_id:
        return (
            f"it belongs to the cluster {properties.get(CLUSTER_ID)}, and this one is {cluster_id}; "
            "choose another iceberg.namespace"
        )
    if not is_of(metadata, topic, cluster_id):
        return (
            f"it belongs to the topic id {properties[TOPIC_ID]}, and {topic.topic} is {topic.topic_id} now; "
            "the table of the deleted topic has to be dropped first"
        )
    if properties.get(VERSION) != SCHEMA_VERSION:
        return f"its schema version is {properties.get(VERSION)}, and this program knows {SCHEMA_VERSION}"
    if metadata.format_version != _FORMAT:
        return (
            f"its format was changed to version {metadata.format_version}, and this program writes "
            f"version 2; {REBUILD}"
        )
    unfit = why_unfit(metadata)
    if unfit is not None:
        return f"{unfit}; set the schema back, or {REBUILD}"
    if find_spec(metadata, topic.day_partitioned) is None:
        how = "partition and day" if topic.day_partitioned else "partition"
        return f"it is not partitioned by {how}, as the topic is; {REBUILD}"
    return None


def numbered_otherwise(metadata: TableMetadata, topic: TopicTable, cluster_id: str) -> bool:
    """Is it a table that was just made, whose catalog numbered the columns in a way of its own?"""
    return not metadata.snapshots and is_of(metadata, topic, cluster_id) and why_unfit(metadata) is not None


def mended_properties(
    metadata: TableMetadata, topic: TopicTable, cluster_id: str, place: str
) -> dict[str, str]:
    """The properties to set back: so that no other program's maintenance deletes files of the log, and, of a
    table at `place`, where only the topic's own is made, those that say whose it is and are gone."""
    mended = {} if metadata.properties.get("gc.enabled") == "false" else {"gc.enabled": "false"}
    if metadata.location.rstrip("/") == place:
        whose = {
            TOPIC: topic.topic,
            TOPIC_ID: str(topic.topic_id),
            CLUSTER_ID: cluster_id,
            VERSION: SCHEMA_VERSION,
        }
        mended |= {name: value for name, value in whose.items() if name not in metadata.properties}
    elif not is_of(metadata, topic, cluster_id):
        return {}
    return mended
