"""The snapshots of one commit.

A commit adds one snapshot per kind of change, each on top of the one before: files rewritten (`replace`),
files of new records (`append`), files that expired (`delete`). Only the last becomes the table's current one,
so the commit is still one step; but a reader that follows the table sees appends as appends, and can skip
the others. One snapshot of everything would be an `overwrite`, at which Spark's streaming reader gives up.

A commit also sets the *clean points* of a table, among its properties: `dray.clean.<partition>` is an offset.
Below it no key has two rows of that partition, in the newest snapshot: a query of the last row of every key
need not compare these with each other. A point is set by the very commit that brings the cleaned file, and
stays true, since later commits take rows below it away and bring none. It is proven by what the table then
holds, not by what its job did: a table that was not written for a while may still have files that the log has
replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.types import LongType

from dray.tables.contract import TOO_MANY, CleanRange, TableChange, TableFile, ends_text, parse_ends
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.manifests import KnownManifests, Manifests, data_file, ends_in, entries_of
from dray.tables.iceberg.schema import CLEAN, JOBS, OFFSET, PUT_BACK
from dray.tables.iceberg.view import CLUSTER_ID, ENDS

_ENGINE: Final = "engine-name"
_DELETE_TOTALS: Final = ("total-delete-files", "total-position-deletes", "total-equality-deletes")
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
    """The parts of a commit from chance and the clock, so that the rest is a function of its input."""

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
    known: KnownManifests
    ids: CommitIds
    written: list[str] = field(default_factory=list)
    present: set[str] = field(default_factory=set)

    def prepare(self, changes: Sequence[TableChange]) -> PreparedCommit:
        """Raises what the file system raises; the caller then owns `written`."""
        metadata = self.table.metadata
        base = metadata.current_snapshot()
        parent = base
        manifests = self.known.manifests(self.table.io, base.manifest_list) if base else []
        self.present = self._present(changes, manifests)
        sequence = metadata.next_sequence_number() - 1
        updates: list[TableUpdate] = []
        for snapshot_id, group in zip(self.ids.snapshots, grouped(changes), strict=False):
            sequence += 1
            parent, manifests = self._snapshot(group, snapshot_id, parent, manifests, sequence)
            updates.append(AddSnapshotUpdate(snapshot=parent))
        assert parent is not None  # there is at least one group
        return self._commit(parent, updates, changes, manifests)

    def put_back(self, name: str, files: Sequence[TableFile]) -> PreparedCommit:
        """A snapshot of exactly these files, whatever the one below it has."""
        base = self.table.metadata.current_snapshot()
        io = self.table.io
        manifests = self.known.manifests(io, base.manifest_list) if base else []
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        there = {path for manifest in data for path in self.known.paths(manifest, io)}
        wanted = {self.locations.location_of(file.path): file for file in files}
        missing = tuple(file for location, file in wanted.items() if location not in there)
        change = TableChange(name, missing)
        sequence = self.table.metadata.next_sequence_number()
        parent, left = self._snapshot(
            [change], self.ids.snapshots[0], base, data, sequence, gone=there - wanted.keys(), put_back=True
        )
        return self._commit(parent, [AddSnapshotUpdate(snapshot=parent)], [change], left)

    def _commit(
        self,
        parent: Snapshot,
        updates: list[TableUpdate],
        changes: Sequence[TableChange],
        manifests: Sequence[ManifestFile],
    ) -> PreparedCommit:
        metadata = self.table.metadata
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
            found |= wanted & self.known.paths(manifest, self.table.io)
        return found

    def _snapshot(
        self,
        changes: Sequence[TableChange],
        snapshot_id: int,
        parent: Snapshot | None,
        manifests: list[ManifestFile],
        sequence: int,
        gone: Iterable[str] = (),
        put_back: bool = False,
    ) -> tuple[Snapshot, list[ManifestFile]]:
        """`gone`: locations of files to be taken out beside those that the changes name."""
        made = Manifests(self.table, snapshot_id, self.ids.commit, self.written, self.known)
        first_written = len(self.written)
        io = self.table.io
        gone = {self.locations.location_of(path) for change in changes for path in change.removed} | {*gone}
        left, removed = made.without(manifests, gone) if gone else (manifests, [])
        added = [
            data_file(file, self.locations.location_of(file.path), self.spec, self.day_partitioned)
            for change in changes
            for file in change.added
            if self.locations.location_of(file.path) not in self.present
        ]
        if added:
            left = [made.added(added, self.spec), *left]
        left = made.merged(left)
        location, left = made.listed(left, parent.snapshot_id if parent else None, sequence)
        named = {location, *(manifest.manifest_path for manifest in left)}
        for passing in [path for path in self.written[first_written:] if path not in named]:
            # Written on the way to a merged manifest, and named nowhere.
            io.delete(passing)
            self.written.remove(passing)
        totals = parent.summary if parent else None
        ends = self._ends(changes, parent, manifests)
        said = summary(added, removed, totals, jobs_property(changes), self.cluster_id, ends)
        if put_back:
            said = _without_deletes(said)
        snapshot = Snapshot.model_validate(
            {
                "snapshot-id": made.snapshot_id,
                "parent-snapshot-id": parent.snapshot_id if parent else None,
                "sequence-number": sequence,
                "timestamp-ms": max(self.ids.now_ms, parent.timestamp_ms if parent else 0),
                "manifest-list": location,
                "summary": said,
                "schema-id": self.table.metadata.current_schema_id,
            }
        )
        return snapshot, left

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
    """The assertions of a commit: this very table, at this very snapshot. The topic's id needs no assertion
    of its own: it was read from the table with this UUID, and only the owner of the table changes it
    there."""
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


def _without_deletes(said: Summary) -> Summary:
    """The same of a snapshot that takes no delete file over. Rows that these hid are seen again: a reader
    that follows the table must not take that for files that were only rewritten."""
    texts = dict(said.additional_properties)
    hidden = [name for name in _DELETE_TOTALS if texts.get(name, "0") != "0"]
    texts |= dict.fromkeys(hidden, "0")
    operation = Operation.OVERWRITE if hidden else said.operation
    return Summary(operation=operation, **{**texts, PUT_BACK: "true"})


def _operation(counts: Mapping[str, int]) -> Operation:
    """By what really happened: files to be removed may have been gone. If files were written again with fewer
    rows, rows were deleted and none came: readers that follow the table skip that as they skip files that
    expired. An `overwrite` says that there may be new rows among the copies, and stops them."""
    if counts["added-data-files"] and not counts["deleted-data-files"]:
        return Operation.APPEND
    if counts["deleted-data-files"] and not counts["added-data-files"]:
        return Operation.DELETE
    if counts["added-records"] < counts["deleted-records"]:
        return Operation.DELETE
    if counts["added-records"] > counts["deleted-records"]:
        return Operation.OVERWRITE
    return Operation.REPLACE


# --- clean points

MOST_POINTS: Final = 256
"""Each commit writes all properties again, so topics of more partitions publish those that came first."""


def clean_points(properties: Mapping[str, str]) -> dict[int, int]:
    """By partition. A text that is no number was not set by us, and says nothing."""
    found: dict[int, int] = {}
    for name, text in properties.items():
        partition = name.removeprefix(CLEAN)
        if name.startswith(CLEAN) and partition.isdecimal() and text.isdecimal():
            found[int(partition)] = int(text)
    return found


def updates_of(
    changes: Sequence[TableChange],
    properties: Mapping[str, str],
    manifests: Sequence[ManifestFile],
    io: FileIO,
    locations: Locations,
) -> list[TableUpdate]:
    """The part of a commit about clean points; `manifests` are those of its last snapshot."""
    ranges = [change.clean for change in changes if change.clean is not None]
    if not ranges:
        return []
    proven = _proven(ranges, manifests, io, locations)
    known = clean_points(properties)
    room = MOST_POINTS - len(known)
    setting: dict[str, str] = {}
    for clean in proven:
        if clean.partition in known or len(setting) < room:
            setting[f"{CLEAN}{clean.partition}"] = str(clean.end)
    failed = {clean.partition for clean in ranges} - {clean.partition for clean in proven}
    removing = [f"{CLEAN}{partition}" for partition in sorted(failed & known.keys())]
    updates: list[TableUpdate] = []
    if setting:
        updates.append(SetPropertiesUpdate(updates=setting))
    if removing:
        updates.append(RemovePropertiesUpdate(removals=removing))
    return updates


def _proven(
    ranges: Sequence[CleanRange], manifests: Sequence[ManifestFile], io: FileIO, locations: Locations
) -> list[CleanRange]:
    """Those for which the table has no other file below their end."""
    left = {clean.partition: clean for clean in ranges}
    named = {clean.partition: {locations.location_of(path) for path in clean.files} for clean in ranges}
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            return []  # rows that another writer deleted: then nothing is claimed
        for entry in entries_of(manifest, io):
            file = entry.data_file
            partition = int(file.partition[0])
            clean = left.get(partition)
            if clean is not None and file.file_path not in named[partition] and _begins(file) < clean.end:
                del left[partition]
    return list(left.values())


def _begins(file: DataFile) -> int:
    """The first offset of a file; one that does not say may have any."""
    first = (file.lower_bounds or {}).get(OFFSET)
    return 0 if first is None else int(from_bytes(LongType(), first))
