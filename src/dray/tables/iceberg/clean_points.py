"""The clean points of a table, among its properties: `dray.clean.<partition>` is an offset.

Below it no key has two rows of that partition, in the newest snapshot: a query of the last row of every key
need not compare these with each other. A point is set by the very commit that brings the cleaned file, and
stays true, since later commits take rows below it away and bring none. It is proven by what the table then
holds, not by what its job did: a table that was not written for a while may still have files that the log has
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestFile
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import LongType

from dray.tables.contract import CleanRange, TableChange
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.schema import CLEAN, OFFSET

MOST_POINTS: Final = 256
"""Each commit writes all properties again, so topics of more partitions publish those that came first."""


def clean_points(properties: Mapping[str, str]) -> dict[int, int]:
    """By partition. What is no number was not set by us, and says nothing."""
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
    """What a commit says of clean points; `manifests` are those of its last snapshot."""
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
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
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
