"""Finding offsets by time.

Producers' times are not monotonic, but the running maximum that every entry carries is: the first entry
whose running maximum reaches a time holds the first record that does. Only records below the
stream's start can spoil that, and then the search goes forward from the start.
"""

from __future__ import annotations

from dray.log.entries import IndexEntry
from dray.log.reader import Reader
from dray.log.types import Bounds, LogUnavailable, TimestampedOffset
from dray.objects.contract import ObjectMissing
from dray.records import decode, find_timestamp


class TimeLookup:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def first_at_or_after(self, stream: int, timestamp: int) -> TimestampedOffset | None:
        bounds = await self._reader.refresh(stream, barrier=True)
        offset = await self._search(stream, bounds, timestamp)
        while offset < bounds.end:
            entry = await self._reader.find(stream, offset)
            found = await self._first_in(stream, entry, bounds.start, timestamp)
            if found is not None:
                return found
            offset = entry.end
        return None

    async def latest_timestamp(self, stream: int) -> TimestampedOffset | None:
        """The first record that has the stream's greatest timestamp."""
        bounds = await self._reader.refresh(stream, barrier=True)
        if bounds.start >= bounds.end:
            return None
        last = await self._reader.find(stream, bounds.end - 1)
        if last.running_max_offset >= bounds.start:
            return TimestampedOffset(last.running_max_offset, last.running_max_timestamp)
        # The greatest of all is below the start: look through what is left.
        best = -1
        offset = bounds.start
        while offset < bounds.end:
            entry = await self._reader.find(stream, offset)
            best = max(best, entry.max_timestamp)
            offset = entry.end
        return await self.first_at_or_after(stream, best)

    async def _search(self, stream: int, bounds: Bounds, timestamp: int) -> int:
        """The start of the first entry whose running maximum reaches `timestamp`, or the end."""
        low, high = bounds.start, bounds.end
        while low < high:
            entry = await self._reader.find(stream, (low + high) // 2)
            if entry.running_max_timestamp >= timestamp:
                high = max(low, entry.start)
            else:
                low = entry.end
        return low

    async def _first_in(
        self, stream: int, entry: IndexEntry, start: int, timestamp: int
    ) -> TimestampedOffset | None:
        for place, (base_offset, batch) in enumerate(entry.batches()):
            if base_offset + batch.record_count <= start or batch.max_timestamp < timestamp:
                continue
            try:
                view = await self._reader.read_batch(stream, entry, place)
            except ObjectMissing as error:
                raise LogUnavailable(f"{entry.path} was just compacted: try again") from error
            if base_offset < start:
                found = _first_from(view, start, timestamp)
            elif (at := find_timestamp(view, timestamp)) is not None:
                found = TimestampedOffset(base_offset + at[0], at[1])
            else:
                found = None
            if found is not None:
                return found
        return None


def _first_from(batch: memoryview, start: int, timestamp: int) -> TimestampedOffset | None:
    """For the one batch that the stream's start cuts through: records below the start do not count."""
    columns = decode(batch)
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    for offset, time in zip(offsets, timestamps, strict=True):
        if offset >= start and time >= timestamp:
            return TimestampedOffset(offset, time)
    return None
