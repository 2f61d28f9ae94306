"""Old snapshots and the metadata files that only they needed.

Each commit reads and writes the whole list of snapshots, so it costs what is kept: a table is kept short.
Data files are not deleted here: the collector of compaction decides whether the log still needs them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from dray.tables.iceberg.identity import jobs_of
from dray.tables.iceberg.manifests import KnownManifests
from dray.tables.iceberg.snapshots import same_table


@dataclass(frozen=True)
class Expiry:
    """Which snapshots go, and what is left without a use then."""

    snapshot_ids: list[int]
    files: set[str]
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    oldest_ms: int | None
    """Of those that stay now and go some day: when the first was made."""


def plan_expiry(
    table: Table, unfinished_jobs: Collection[str], older_than_ms: int, known: KnownManifests
) -> Expiry:
    """The heads of branches and tags stay, and so does every snapshot that
    names a job that still has to find itself there."""
    metadata = table.metadata
    kept_ids = {ref.snapshot_id for ref in metadata.refs.values()}
    unfinished = set(unfinished_jobs)
    expired: list[Snapshot] = []
    kept: list[Snapshot] = []
    for snapshot in metadata.snapshots:
        stays = (
            snapshot.snapshot_id in kept_ids
            or snapshot.timestamp_ms >= older_than_ms
            or jobs_of(snapshot) & unfinished
        )
        (kept if stays else expired).append(snapshot)
    ids = [snapshot.snapshot_id for snapshot in expired]
    passing = [snapshot.timestamp_ms for snapshot in kept if snapshot.snapshot_id not in kept_ids]
    if not expired:
        return Expiry([], set(), (), (), min(passing, default=None))
    return Expiry(
        ids,
        metadata_of(expired, table.io, known) - metadata_of(kept, table.io, known),
        same_table(metadata),
        (RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),),
        min(passing, default=None),
    )


def metadata_of(snapshots: Iterable[Snapshot], io: FileIO, known: KnownManifests) -> set[str]:
    """The manifest lists and manifests of those snapshots."""
    found: set[str] = set()
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        found.update(known.names(io, snapshot.manifest_list))
    return found


def forgotten_versions(before: TableMetadata, after: TableMetadata) -> set[str]:
    """Metadata files that the table's log named before a commit and no longer names after it."""
    return {entry.metadata_file for entry in before.metadata_log} - {
        entry.metadata_file for entry in after.metadata_log
    }


def delete_files(io: FileIO, locations: Iterable[str]) -> int:
    """How many were there to be deleted. One that cannot be deleted is left to the audit of the bucket."""
    deleted = 0
    for location in sorted(locations):
        try:
            io.delete(location)
        except OSError:
            continue
        deleted += 1
    return deleted
