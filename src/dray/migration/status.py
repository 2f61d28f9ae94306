"""How far migrations have come, and what of them is still somebody else's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata import keys
from dray.migration.entries.segments import ForeignSegments, SegmentPresence, presences
from dray.migration.record import MigrationRecord, MigrationState

_UNSEEN: Final = (MigrationState.ATTACHING, MigrationState.PUBLISHING, MigrationState.ABORTING)


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    topic: str
    record: MigrationRecord
    deleted: bool
    """The topic is gone since."""
    segments: int
    """That are still read from where another system wrote them."""
    borrowed: int
    """Those of them that still belong to the source."""
    borrowed_bytes: int
    """The bytes that those take where they lie."""
    end: int
    """Of all partitions together."""
    missing: int | None = None
    """Segments that are not in their store, or are not what they were; None where nobody looked."""
    unseen: str = ""
    """Why their store did not say."""


async def status_of(
    streams: StreamStore,
    topic: str,
    record: MigrationRecord,
    *,
    exists: bool,
    stores: ForeignSegments | None = None,
) -> MigrationStatus:
    """With `stores`, each segment is asked for where it lies: a request for each."""
    segments: dict[UUID, IndexEntry] = {}
    borrowed = borrowed_bytes = 0
    end = 0
    for stream in record.streams:
        view = await streams.view(stream)
        if view is None or view.high_watermark.value.closed:
            continue
        end += view.high_watermark.value.end
        found = {
            entry.value.object_id: entry.value
            for entry in view.entries
            if entry.value.is_outside and entry.value.end > view.start
        }
        segments.update(found)
        for segment, entry in found.items():
            if await streams.get_in(streams.domain(stream), keys.wal_object(segment)) is None:
                borrowed += 1
                borrowed_bytes += entry.outside().object_size
    deleted = record.state not in _UNSEEN and not exists
    status = MigrationStatus(topic, record, deleted, len(segments), borrowed, borrowed_bytes, end)
    if stores is None or deleted:
        return status
    try:
        seen = await presences(stores, segments)
    except LogError as error:
        return replace(status, unseen=str(error))
    return replace(status, missing=sum(each is not SegmentPresence.THERE for each in seen.values()))
