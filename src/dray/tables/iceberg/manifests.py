"""The manifests of one commit: files added, files taken out, and small manifests put together.

Appending writes one small manifest. Were they left alone, each commit would list, and each reader open, more
of them; were all of them merged at once, a commit would rewrite the whole table's list. So they are merged
in tiers: ten of about one size become one of the next. A file's entry is written about once per tier, and a
table of a million files has a few dozen manifests.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.types import LongType

from dray.tables.iceberg.schema import OFFSET

TIER: Final = 10
LARGEST_MERGE: Final = 20_000
"""Files in a merged manifest: about the 8 MB that Iceberg's writers aim at."""
REMEMBERED_PATHS: Final = 2_000_000

_CODEC: Final = "deflate"


@dataclass
class Manifests:
    """Writes the manifests of one snapshot. Each file it makes is put into `written`, which the snapshots of
    a commit share: for when nothing comes of it."""

    table: Table
    snapshot_id: int
    commit_id: str
    written: list[str]

    def added(self, files: Sequence[DataFile], spec: PartitionSpec) -> ManifestFile:
        with self._writer(spec) as writer:
            for file in files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED,
                        snapshot_id=self.snapshot_id,
                        sequence_number=None,
                        file_sequence_number=None,
                        data_file=file,
                    )
                )
        return writer.to_manifest_file()

    def without(
        self, manifests: Sequence[ManifestFile], locations: set[str], known: KnownPaths
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests with those files taken out, and what the table said of them. A manifest that holds
        none of them stays as it is, and is not even read if its paths are known."""
        left: list[ManifestFile] = []
        removed: list[DataFile] = []
        io = self.table.io
        for manifest in manifests:
            if not locations & known.of(manifest, io):
                left.append(manifest)
                continue
            with self._writer(self.table.specs()[manifest.partition_spec_id]) as writer:
                for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                    if entry.data_file.file_path in locations:
                        writer.delete(entry)
                        removed.append(entry.data_file)
                    else:
                        writer.existing(entry)
            left.append(writer.to_manifest_file())
        return left, removed

    def merged(self, manifests: Sequence[ManifestFile]) -> list[ManifestFile]:
        """Manifests without a live file are left out, unless they say what this very snapshot took out."""
        kept = [
            manifest
            for manifest in manifests
            if live_count(manifest) or manifest.added_snapshot_id == self.snapshot_id
        ]
        fixed = [manifest for manifest in kept if not self._mergeable(manifest)]
        tiers: dict[tuple[int, int], list[ManifestFile]] = defaultdict(list)
        for manifest in kept:
            if self._mergeable(manifest):
                tiers[manifest.partition_spec_id, tier_of(live_count(manifest))].append(manifest)
        done: list[ManifestFile] = []
        while tiers:
            spec_id, tier = min(tiers)
            group = tiers.pop((spec_id, tier))
            total = sum(map(live_count, group))
            if len(group) < TIER or total > LARGEST_MERGE:
                done += group
                continue
            merged = self._merge(group, spec_id)
            tiers[spec_id, max(tier + 1, tier_of(total))].append(merged)
        return fixed + done

    def listed(self, manifests: Sequence[ManifestFile], parent: int | None, sequence: int) -> str:
        """Write the manifest list: its location."""
        name = f"snap-{self.snapshot_id}-0-{self.commit_id}.avro"
        location = self._location(name)
        with write_manifest_list(
            format_version=2,
            output_file=self.table.io.new_output(location),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent,
            sequence_number=sequence,
            avro_compression=_CODEC,
        ) as writer:
            writer.add_manifests(list(manifests))
        return location

    def _mergeable(self, manifest: ManifestFile) -> bool:
        """What this snapshot took out has to stand in a manifest of its own making, so it is left alone."""
        fresh_deletes = manifest.added_snapshot_id == self.snapshot_id and manifest.deleted_files_count
        return manifest.content == ManifestContent.DATA and not fresh_deletes

    def _merge(self, group: Sequence[ManifestFile], spec_id: int) -> ManifestFile:
        with self._writer(self.table.specs()[spec_id]) as writer:
            for manifest in group:
                fresh = manifest.added_snapshot_id == self.snapshot_id
                for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=True):
                    if fresh and entry.status == ManifestEntryStatus.ADDED:
                        writer.add(entry)
                    else:
                        writer.existing(entry)
        return writer.to_manifest_file()

    def _writer(self, spec: PartitionSpec) -> ManifestWriter:
        location = self._location(f"{self.commit_id}-{self.snapshot_id}-m{len(self.written)}.avro")
        return write_manifest(
            format_version=2,
            spec=spec,
            schema=self.table.schema(),
            output_file=self.table.io.new_output(location),
            snapshot_id=self.snapshot_id,
            avro_compression=_CODEC,
        )

    def _location(self, name: str) -> str:
        location = self.table.location_provider().new_metadata_location(name)
        self.written.append(location)
        return location


class KnownPaths:
    """The live files of manifests already read. A manifest never changes, so this never ages; it is
    bounded by the number of paths it holds."""

    def __init__(self, most: int = REMEMBERED_PATHS) -> None:
        self._most = most
        self._count = 0
        self._known: OrderedDict[str, frozenset[str]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return self._count

    def of(self, manifest: ManifestFile, io: FileIO) -> frozenset[str]:
        location = manifest.manifest_path
        with self._lock:
            found = self._known.get(location)
            if found is not None:
                self._known.move_to_end(location)
                return found
        entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
        read = frozenset(entry.data_file.file_path for entry in entries)
        with self._lock:
            if location not in self._known:
                self._known[location] = read
                self._count += len(read)
            while self._count > self._most and len(self._known) > 1:
                self._count -= len(self._known.popitem(last=False)[1])
        return read


def read_list(io: FileIO, location: str) -> list[ManifestFile]:
    return list(read_manifest_list(io.new_input(location)))


def end_of(file: DataFile) -> tuple[int, int] | None:
    """The partition of a file and the offset after its last one; None for one without the bound."""
    last = (file.upper_bounds or {}).get(OFFSET)
    return None if last is None else (int(file.partition[0]), int(from_bytes(LongType(), last)) + 1)


def ends_in(manifests: Sequence[ManifestFile], io: FileIO) -> dict[int, int]:
    """Per partition, the offset after the last one in any live file. Reads every manifest."""
    ends: dict[int, int] = {}
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            found = end_of(entry.data_file)
            if found is not None:
                ends[found[0]] = max(ends.get(found[0], 0), found[1])
    return ends


def live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def tier_of(count: int) -> int:
    """0 for less than ten files, 1 for less than a hundred, and so on."""
    return len(str(count)) - 1 if count else 0
