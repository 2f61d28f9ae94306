"""The snapshots of one commit.

A commit adds one snapshot per kind of change, each on top of the one before: files rewritten (`replace`),
files of new records (`append`), files that expired (`delete`). Only the last becomes the table's current one,
so the commit is still one step; but a reader that follows the table sees appends as appends, and can skip
the others. One snapshot of everything would be an `overwrite`, at which Spark's streaming reader gives up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from dray.tables.contract import TableChange
from dray.tables.iceberg.clean_points import updates_of
from dray.tables.iceberg.files import data_file
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.manifests import KnownPaths, Manifests, ends_in, read_list
from dray.tables.iceberg.schema import CLUSTER_ID, ENDS, JOBS
from dray.tables.snapshots import TOO_MANY, ends_text, parse_ends

_ENGINE: Final = "engine-name"
_NO_TOTALS: Final = {
    "total-data-files": "0",
    "total-delete-files": "0",
    "total-records": "0",
    "total-files-size": "0",
    "total-position-deletes": "0",
    "total-equality-deletes": "0",
}
_TOTALS: Final = {
    "total-data-files": ("added-data-files", "deleted-data-files"),
    "total-records": ("added-records", "deleted-records"),
    "total-files-size": ("added-files-size", "removed-files-size"),
}


@dataclass(frozen=True)
class CommitIds:
    """What chance and the clock give to a commit, so that the rest of it is a function of its input."""

    commit: str
    snapshots: tuple[int, int, int]
    now_ms: int


@dataclass
class PreparedCommit:
    """A commit that only has to be sent. `written` are the files that it leaves if it fails."""

    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    written: list[str]
    snapshot_id: int


@dataclass
class CommitPreparation:
    """Prepares a commit on top of the table as it was loaded. Writes manifests; the catalog is not asked."""

    table: Table
    spec: PartitionSpec
    day_partitioned: bool
    locations: Locations
    cluster_id: str
    known: KnownPaths
    ids: CommitIds
    written: list[str] = field(default_factory=list)
    present: set[str] = field(default_factory=set)

    def prepare(self, changes: Sequence[TableChange]) -> PreparedCommit:
        """Raises what the file system raises; the caller then owns `written`."""
        metadata = self.table.metadata
        base = metadata.current_snapshot()
        parent = base
        manifests = read_list(self.table.io, base.manifest_list) if base else []
        self.present = self._present(changes, manifests)
        sequence = metadata.next_sequence_number() - 1
        updates: list[TableUpdate] = []
        for snapshot_id, group in zip(self.ids.snapshots, grouped(changes), strict=False):
            sequence += 1
            parent, manifests = self._snapshot(group, snapshot_id, parent, manifests, sequence)
            updates.append(AddSnapshotUpdate(snapshot=parent))
        assert parent is not None  # there is at least one group
        updates.append(
            SetSnapshotRefUpdate.model_validate(
                {"ref-name": MAIN_BRANCH, "type": SnapshotRefType.BRANCH, "snapshot-id": parent.snapshot_id}
            )
        )
        updates += updates_of(changes, metadata.properties, manifests, self.table.io, self.locations)
        requirements = same_table(metadata)
        return PreparedCommit(requirements, tuple(updates), self.written, parent.snapshot_id)

    def _present(self, changes: Sequence[TableChange], manifests: Sequence[ManifestFile]) -> set[str]:
        """Which files to be added are in the table already. Usually none: a job that was committed is found
        by its snapshot. But another program may have expired that snapshot. Then the job is found by its
        file, and not added twice."""
        wanted = {self.locations.location_of(file.path) for change in changes for file in change.added}
        found: set[str] = set()
        for manifest in manifests if wanted else ():
            found |= wanted & self.known.of(manifest, self.table.io)
        return found

    def _snapshot(
        self,
        changes: Sequence[TableChange],
        snapshot_id: int,
        parent: Snapshot | None,
        manifests: list[ManifestFile],
        sequence: int,
    ) -> tuple[Snapshot, list[ManifestFile]]:
        made = Manifests(self.table, snapshot_id, self.ids.commit, self.written)
        first_written = len(self.written)
        io = self.table.io
        gone = {self.locations.location_of(path) for change in changes for path in change.removed}
        left, removed = made.without(manifests, gone, self.known) if gone else (manifests, [])
        added = [
            data_file(file, self.locations.location_of(file.path), self.spec, self.day_partitioned)
            for change in changes
            for file in change.added
            if self.locations.location_of(file.path) not in self.present
        ]
        if added:
            left = [made.added(added, self.spec), *left]
        left = made.merged(left)
        location = made.listed(left, parent.snapshot_id if parent else None, sequence)
        named = {location, *(manifest.manifest_path for manifest in left)}
        for passing in [path for path in self.written[first_written:] if path not in named]:
            # Written on the way to a merged manifest, and named nowhere.
            io.delete(passing)
            self.written.remove(passing)
        totals = parent.summary if parent else None
        ends = self._ends(changes, parent, manifests)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": made.snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": sequence,
                "timestamp-ms": max(self.ids.now_ms, parent.timestamp_ms if parent else 0),
                "manifest-list": location,
                "summary": summary(added, removed, totals, jobs_property(changes), self.cluster_id, ends),
                "schema-id": self.table.metadata.current_schema_id,
            }
        )
        # Read back, since the list is where manifests get their sequence numbers.
        return snapshot, read_list(io, location)

    def _ends(
        self, changes: Sequence[TableChange], parent: Snapshot | None, manifests: Sequence[ManifestFile]
    ) -> str:
        """The parent's, raised by the files that are added. Files that expire lower none: what was in them
        was in the table. A parent that says nothing is of an older build or another writer: its manifests,
        which were just read, say it once."""
        before = parent.summary.get(ENDS) if parent and parent.summary else None
        if before == TOO_MANY:
            return TOO_MANY
        ends = parse_ends(before)
        if ends is None:
            ends = ends_in(manifests, self.table.io)
        for change in changes:
            for file in change.added:
                ends[file.partition] = max(ends.get(file.partition, 0), file.last_offset + 1)
        return ends_text(ends)


def same_table(metadata: TableMetadata) -> tuple[TableRequirement, ...]:
    """What a commit asserts: this very table, at this very snapshot. The topic's id needs no assertion of its
    own: it was read from the table with this UUID, and only the owner of the table changes it there."""
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": metadata.current_snapshot_id}),
    )


def grouped(changes: Iterable[TableChange]) -> list[list[TableChange]]:
    """Rewrites, appends, deletes. A change without files goes with any of them: it only has to be named in a
    snapshot."""
    rewrites: list[TableChange] = []
    appends: list[TableChange] = []
    deletes: list[TableChange] = []
    nothing: list[TableChange] = []
    for change in changes:
        if change.added and change.removed:
            rewrites.append(change)
        elif change.added:
            appends.append(change)
        elif change.removed:
            deletes.append(change)
        else:
            nothing.append(change)
    groups = [group for group in (rewrites, appends, deletes) if group] or [[]]
    groups[-1].extend(nothing)
    return groups


def jobs_property(changes: Iterable[TableChange]) -> str:
    return ",".join(change.job for change in changes)


def summary(
    added: Sequence[DataFile],
    removed: Sequence[DataFile],
    previous: Mapping[str, str] | None,
    jobs: str,
    cluster_id: str,
    ends: str,
) -> Summary:
    counts = {
        "added-data-files": len(added),
        "deleted-data-files": len(removed),
        "added-records": sum(file.record_count for file in added),
        "deleted-records": sum(file.record_count for file in removed),
        "added-files-size": sum(file.file_size_in_bytes for file in added),
        "removed-files-size": sum(file.file_size_in_bytes for file in removed),
        "changed-partition-count": len({file.partition for file in (*added, *removed)}),
    }
    texts = {name: str(count) for name, count in counts.items() if count}
    before = _NO_TOTALS if previous is None else previous
    for total in _NO_TOTALS:
        plus, minus = _TOTALS.get(total, ("", ""))
        if before.get(total) is not None:
            texts[total] = str(int(before[total]) + counts.get(plus, 0) - counts.get(minus, 0))
    return Summary(
        operation=_operation(counts),
        **texts,
        **{JOBS: jobs, CLUSTER_ID: cluster_id, ENDS: ends, _ENGINE: "dray"},
    )


def _operation(counts: Mapping[str, int]) -> Operation:
    """By what really happened: files to be removed may have been gone. Where files were written again with
    fewer rows, rows were deleted and none came: readers that follow the table skip that as they skip files
    that expired. An `overwrite` says that there may be new rows among the copies, and stops them."""
    if counts["added-data-files"] and not counts["deleted-data-files"]:
        return Operation.APPEND
    if counts["deleted-data-files"] and not counts["added-data-files"]:
        return Operation.DELETE
    if counts["added-records"] < counts["deleted-records"]:
        return Operation.DELETE
    if counts["added-records"] > counts["deleted-records"]:
        return Operation.OVERWRITE
    return Operation.REPLACE
