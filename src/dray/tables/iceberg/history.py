"""What the snapshots of a table say: which jobs are in it, and whether another writer changed its rows.

The table is a view of the log. Rows that another writer added, deleted or rewrote would make it say something
else than the log does, and later changes would build on that: such a table is refused until its owner has
set it back.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from dray.tables.iceberg.schema import CLUSTER_ID, JOBS

_CHANGES: Final = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")


def jobs_of(snapshot: Snapshot) -> set[str]:
    named = snapshot.summary.get(JOBS) if snapshot.summary else None
    return set(named.split(",")) if named else set()


def jobs_in(metadata: TableMetadata) -> set[str]:
    """The jobs that any live snapshot names."""
    return {job for snapshot in metadata.snapshots for job in jobs_of(snapshot)}


def is_ours(snapshot: Snapshot, cluster_id: str) -> bool:
    return snapshot.summary is not None and snapshot.summary.get(CLUSTER_ID) == cluster_id


def why_diverged(metadata: TableMetadata, cluster_id: str) -> str | None:
    """Which change in the table's history is not ours, and how to set it back; None if all are ours."""
    current = metadata.current_snapshot()
    newest = max(
        (snapshot for snapshot in metadata.snapshots if is_ours(snapshot, cluster_id)),
        key=_sequence,
        default=None,
    )
    if newest is not None and (current is None or _sequence(newest) > _sequence(current)):
        was = "none" if current is None else str(current.snapshot_id)
        return (
            f"its current snapshot was set back to {was}, and rows of the log are missing in it; "
            f"set it to {newest.snapshot_id} again"
        )
    last_ours = None
    foreign = None
    for snapshot in ancestors_of(current, metadata):
        if is_ours(snapshot, cluster_id):
            last_ours = last_ours or snapshot
        elif _changes_rows(snapshot):
            foreign, last_ours = snapshot, None
    if foreign is None:
        return None
    remedy = (
        f"roll it back to snapshot {last_ours.snapshot_id}, the last one of the log"
        if last_ours is not None
        else "drop the table, and it is made again"
    )
    return f"snapshot {foreign.snapshot_id} of another writer changed its rows; {remedy}"


def _changes_rows(snapshot: Snapshot) -> bool:
    """Rewriting manifests and the like leaves every row in its file: that is fine."""
    if snapshot.summary is None:
        return True
    counts = (snapshot.summary.get(name) for name in _CHANGES)
    return any(count not in (None, "0") for count in counts)


def _sequence(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0
