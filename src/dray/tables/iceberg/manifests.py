"""The manifests of one commit: files added, files taken out, and small manifests put together.

Appending writes one small manifest. Were they left alone, each commit would list, and each reader open, more
of them; were all of them merged at once, a commit would rewrite the whole table's list. So they are merged
in tiers: ten of about one size become one of the next. A file's entry is written about once per tier, and a
table of a million files has a few dozen manifests.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Final, Generic, TypeVar

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
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
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from dray.base.runtime import DAY_MS
from dray.tables.contract import TableFile
from dray.tables.iceberg.schema import OFFSET, PARTITION, TIMESTAMP

TIER: Final = 10
LARGEST_MERGE: Final = 20_000
"""Files in a merged manifest: about the 8 MB that Iceberg's writers aim at."""
REMEMBERED_PATHS: Final = 2_000_000
REMEMBERED_NAMES: Final = 4_000_000
"""Of manifests, in lists already read: 64 snapshots of 10 manifests are 640."""
REMEMBERED_MANIFESTS: Final = 20_000
"""In lists that are held whole, each about a kilobyte: a commit begins with the list of the last one."""

_CODEC: Final = "deflate"

V = TypeVar("V")


class FileDamaged(Exception):
    """A file is no manifest, and no list of manifests."""


@contextmanager
def _reading(location: str) -> Iterator[None]:
    """A file that is damaged, or in a codec that nobody has here, raises any error at all."""
    try:
        yield
    except OSError:
        raise  # the store does not hand it out
    except Exception as error:
        raise FileDamaged(f"{location} is damaged") from error


def entries_of(manifest: ManifestFile, io: FileIO) -> list[ManifestEntry]:
    """Those of live files. Raises `FileDamaged`."""
    with _reading(manifest.manifest_path):
        return manifest.fetch_manifest_entry(io, discard_deleted=True)


def read_list(io: FileIO, location: str) -> list[ManifestFile]:
    """Raises `FileDamaged`."""
    with _reading(location):
        return list(read_manifest_list(io.new_input(location)))


@dataclass
class Manifests:
    """Writes the manifests of one snapshot. Each file it makes is put into `written`, which the snapshots of
    a commit share: for when nothing comes of it."""

    table: Table
    snapshot_id: int
    commit_id: str
    written: list[str]
    known: KnownManifests

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
        return self._made(writer, [file.file_path for file in files])

    def without(
        self, manifests: Sequence[ManifestFile], locations: set[str]
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The manifests with those files taken out, and what the table said of them. A manifest that holds
        none of them stays as it is, and is not even read if its paths are known."""
        left: list[ManifestFile] = []
        removed: list[DataFile] = []
        io = self.table.io
        for manifest in manifests:
            if not locations & self.known.paths(manifest, io):
                left.append(manifest)
                continue
            kept: list[str] = []
            with self._writer(self.table.specs()[manifest.partition_spec_id]) as writer:
                for entry in entries_of(manifest, io):
                    if entry.data_file.file_path in locations:
                        writer.delete(entry)
                        removed.append(entry.data_file)
                    else:
                        writer.existing(entry)
                        kept.append(entry.data_file.file_path)
            left.append(self._made(writer, kept))
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

    def listed(
        self, manifests: Sequence[ManifestFile], parent: int | None, sequence: int
    ) -> tuple[str, list[ManifestFile]]:
        """Write the manifest list: its location, and what it says. In a list manifests get their sequence
        numbers."""
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
            numbered = [writer.prepare_manifest(manifest) for manifest in manifests]
            writer.add_manifests(numbered)
        self.known.learn_list(location, numbered)
        return location, numbered

    def _mergeable(self, manifest: ManifestFile) -> bool:
        """Files that this snapshot took out have to stand in a manifest of its own making, so that one is
        left alone."""
        fresh_deletes = manifest.added_snapshot_id == self.snapshot_id and manifest.deleted_files_count
        return manifest.content == ManifestContent.DATA and not fresh_deletes

    def _merge(self, group: Sequence[ManifestFile], spec_id: int) -> ManifestFile:
        paths: list[str] = []
        with self._writer(self.table.specs()[spec_id]) as writer:
            for manifest in group:
                fresh = manifest.added_snapshot_id == self.snapshot_id
                for entry in entries_of(manifest, self.table.io):
                    paths.append(entry.data_file.file_path)
                    if fresh and entry.status == ManifestEntryStatus.ADDED:
                        writer.add(entry)
                    else:
                        writer.existing(entry)
        return self._made(writer, paths)

    def _made(self, writer: ManifestWriter, paths: Sequence[str]) -> ManifestFile:
        """`paths`: of its live files. Paths that were just written need not be read."""
        made = writer.to_manifest_file()
        self.known.learn_paths(made.manifest_path, frozenset(paths))
        return made

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


class _Bounded(Generic[V]):
    """The values that were used last, as long as they are not too much. Asked from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._known: OrderedDict[str, tuple[V, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return self._count

    def get(self, location: str) -> V | None:
        with self._lock:
            found = self._known.get(location)
            if found is None:
                return None
            self._known.move_to_end(location)
            return found[0]

    def put(self, location: str, value: V, size: int) -> None:
        with self._lock:
            if location not in self._known:
                self._known[location] = value, size
                self._count += size
            while self._count > self._most and len(self._known) > 1:
                self._count -= self._known.popitem(last=False)[1][1]


class KnownManifests:
    """The contents of manifests and lists of manifests that were read or written already. Neither ever
    changes, so this never ages, and none is read twice as long as it is held."""

    def __init__(
        self,
        most_paths: int = REMEMBERED_PATHS,
        most_names: int = REMEMBERED_NAMES,
        most_manifests: int = REMEMBERED_MANIFESTS,
    ) -> None:
        self._paths: _Bounded[frozenset[str]] = _Bounded(most_paths)
        self._names: _Bounded[tuple[str, ...]] = _Bounded(most_names)
        self._lists: _Bounded[tuple[ManifestFile, ...]] = _Bounded(most_manifests)

    def __len__(self) -> int:
        return len(self._paths)

    def paths(self, manifest: ManifestFile, io: FileIO) -> frozenset[str]:
        """The live files of a manifest."""
        found = self._paths.get(manifest.manifest_path)
        if found is None:
            found = frozenset(entry.data_file.file_path for entry in entries_of(manifest, io))
            self.learn_paths(manifest.manifest_path, found)
        return found

    def manifests(self, io: FileIO, location: str) -> list[ManifestFile]:
        """The manifests in a list."""
        found = self._lists.get(location)
        if found is None:
            found = tuple(read_list(io, location))
            self.learn_list(location, found)
        return list(found)

    def names(self, io: FileIO, location: str) -> tuple[str, ...]:
        """The locations of the manifests in a list."""
        found = self._names.get(location)
        if found is None:
            found = tuple(each.manifest_path for each in self.manifests(io, location))
        return found

    def files(self, io: FileIO, lists: Iterable[str]) -> set[str]:
        """The live files of all these lists."""
        found: set[str] = set()
        seen: set[str] = set()
        for location in lists:
            new = [name for name in self.names(io, location) if name not in seen]
            seen.update(new)
            known = {name: self._paths.get(name) for name in new}
            if None in known.values():
                known = {each.manifest_path: self.paths(each, io) for each in self.manifests(io, location)}
            found.update(*[paths for paths in known.values() if paths])
        return found

    def learn_paths(self, location: str, paths: frozenset[str]) -> None:
        self._paths.put(location, paths, len(paths))

    def learn_list(self, location: str, manifests: Sequence[ManifestFile]) -> None:
        self._lists.put(location, tuple(manifests), len(manifests))
        names = tuple(sys.intern(manifest.manifest_path) for manifest in manifests)
        self._names.put(location, names, len(names))


def end_of(file: DataFile) -> tuple[int, int] | None:
    """The partition of a file and the offset after its last one; None for one without the bound."""
    last = (file.upper_bounds or {}).get(OFFSET)
    return None if last is None else (int(file.partition[0]), int(from_bytes(LongType(), last)) + 1)


def start_of(file: DataFile) -> int | None:
    """The first offset of a file; None for one without the bound."""
    first = (file.lower_bounds or {}).get(OFFSET)
    return None if first is None else int(from_bytes(LongType(), first))


def ends_in(manifests: Sequence[ManifestFile], io: FileIO) -> dict[int, int]:
    """Per partition, the offset after the last one in any live file. Reads every manifest."""
    ends: dict[int, int] = {}
    for manifest in manifests:
        if manifest.content != ManifestContent.DATA:
            continue
        for entry in entries_of(manifest, io):
            found = end_of(entry.data_file)
            if found is not None:
                ends[found[0]] = max(ends.get(found[0], 0), found[1])
    return ends


def live_count(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def tier_of(count: int) -> int:
    """0 for less than ten files, 1 for less than a hundred, and so on."""
    return len(str(count)) - 1 if count else 0


# --- data files as a table lists them, made from what their writer counted: no file is read again


def data_file(file: TableFile, location: str, spec: PartitionSpec, day_partitioned: bool) -> DataFile:
    """Bounds are given for the three columns that a query narrows by; they are exact, so engines may answer
    `max(offset)` from them. So they are those of the rows: a file with holes covers offsets beyond. Raises
    `ValueError` for a file that does not fit into one partition."""
    written = file.written
    groups = written.row_groups
    first, last = (
        (groups[0].first_offset, groups[-1].last_offset) if groups else (file.first_offset, file.last_offset)
    )
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=_partition(file, day_partitioned),
        record_count=written.record_count,
        file_size_in_bytes=written.file_size,
        column_sizes={column.field_id: column.compressed_bytes for column in written.columns} or None,
        value_counts={column.field_id: column.value_count for column in written.columns} or None,
        null_value_counts={column.field_id: column.null_count for column in written.columns} or None,
        nan_value_counts=None,
        lower_bounds=_bounds(file.partition, first, written.min_timestamp),
        upper_bounds=_bounds(file.partition, last, written.max_timestamp),
        key_metadata=None,
        split_offsets=list(written.split_offsets) or None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec.spec_id
    return made


def _partition(file: TableFile, day_partitioned: bool) -> Record:
    if not day_partitioned:
        return Record(file.partition)
    day = file.written.min_timestamp // DAY_MS
    if file.written.max_timestamp // DAY_MS != day:
        raise ValueError(
            f"{file.path}: its records are of more than one day, and its table is partitioned by day"
        )
    return Record(file.partition, day)


def _bounds(partition: int, offset: int, timestamp: int) -> dict[int, bytes]:
    return {
        PARTITION: to_bytes(IntegerType(), partition),
        OFFSET: to_bytes(LongType(), offset),
        TIMESTAMP: to_bytes(TimestamptzType(), timestamp * 1000),
    }
