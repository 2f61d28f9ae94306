"""How far migrations have come, and what of them is still somebody else's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from dray.log.stream_store import StreamStore
from dray.metadata import keys
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
    """What those take where they lie."""
    end: int
    """Of all partitions together."""


async def status_of(
    streams: StreamStore, topic: str, record: MigrationRecord, *, exists: bool
) -> MigrationStatus:
    segments: set[UUID] = set()
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
            if entry.value.is_foreign and entry.value.end > view.start
        }
        segments.update(found)
        for segment, entry in found.items():
            if await streams.get_in(streams.domain(stream), keys.wal_object(segment)) is None:
                borrowed += 1
                borrowed_bytes += entry.segment().object_size
    deleted = record.state not in _UNSEEN and not exists
    return MigrationStatus(topic, record, deleted, len(segments), borrowed, borrowed_bytes, end)
