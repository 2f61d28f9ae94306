"""Are the objects of segments still in their stores, and of their size?

Those of other systems are asked for one by one: what lies around them there is not ours to list. A mirror,
though, leaves an object every few megabytes in our own store, so that a long one has very many. There the
folder is listed, a thousand objects in one request, once a stream has enough of them in it. What a list does
not have is asked for all the same: nothing counts as gone because a list was short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.log.foreign_segments import OWN_STORE, ForeignSegments
from dray.log.types import LogUnavailable
from dray.objects.contract import ObjectError, ObjectMissing

WORTH_A_LIST: Final = 100
"""So many objects of a stream in one folder. A folder is of a domain and a day, and other streams have theirs
in it too."""


class SegmentPresence(Enum):
    """What is found of a segment in its store."""

    THERE = "there"
    CHANGED = "changed"  # another size, or without its manifest
    GONE = "gone"


async def presences(
    segments: ForeignSegments, entries: Mapping[UUID, IndexEntry]
) -> dict[UUID, SegmentPresence]:
    """Of each segment, by an entry of it. Raises `LogUnavailable` where a store does not say."""
    try:
        listed = await _listed(segments, entries.values())
        return {
            segment: await _presence(segments, entry, listed.get(entry.path))
            for segment, entry in entries.items()
        }
    except ObjectError as error:
        raise LogUnavailable(f"the foreign object store did not answer: {error}") from error


async def _listed(segments: ForeignSegments, entries: Iterable[IndexEntry]) -> dict[str, int]:
    """Sizes of those that were seen in a list."""
    wanted: dict[str, set[str]] = {}
    for entry in entries:
        if entry.segment().store == OWN_STORE:
            wanted.setdefault(entry.path.rpartition("/")[0] + "/", set()).add(entry.path)
    found: dict[str, int] = {}
    for folder, paths in wanted.items():
        if len(paths) < WORTH_A_LIST:
            continue
        async for info in segments.objects_of(OWN_STORE).list(folder):
            if info.path in paths:
                found[info.path] = info.size
    return found


async def _presence(segments: ForeignSegments, entry: IndexEntry, size: int | None) -> SegmentPresence:
    """`size`: as a list has it, None where it is in none."""
    table = entry.segment()
    objects = segments.objects_of(table.store)
    try:
        if size is None:
            size = (await objects.head(entry.path)).size
    except ObjectMissing:
        return SegmentPresence.GONE
    try:
        if table.manifest:
            await objects.head(table.manifest)
    except ObjectMissing:
        return SegmentPresence.CHANGED
    return SegmentPresence.THERE if size == table.object_size else SegmentPresence.CHANGED
