"""Finding offsets by time.

Producers' times are not monotonic, but the running maximum that every entry carries is: no record before the
first entry whose running maximum reaches a time does so. As a rule that entry holds the first one that does.
If that one is gone, below the stream's start or compacted away by key, the search goes forward from there.

Batches are opened in threads, within the broker's allowance of what may be unfolded at once: a small one may
unfold to a hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

from dray.base.runtime import Allowance, Runtime
from dray.kafka.records import RecordError, RecordFault, decode, find_timestamp, unfolds_to
from dray.log.entries import IndexEntry
from dray.log.read.doubts import WHOLE, InDoubt
from dray.log.read.reader import StreamReader
from dray.log.types import Bounds, LogUnavailable, ObjectCorrupt, OffsetOutOfRange, TimestampedOffset
from dray.objects.contract import ObjectMissing

_TRIES: Final = 5
_FIRST_PAUSE: Final = 0.1
_COLUMNS: Final = 8  # what a batch of small records takes as columns, of its bytes
_UNFOLDED_MOST: Final = 2**31 - 1

T = TypeVar("T")


class TimeLookup:
    def __init__(self, reader: StreamReader, runtime: Runtime, unfolding: Allowance) -> None:
        self._reader = reader
        self._runtime = runtime
        self._unfolding = unfolding

    async def first_at_or_after(self, stream: int, timestamp: int) -> TimestampedOffset | None:
        return await self._steadily(stream, lambda bounds: self._first(stream, bounds, timestamp))

    async def latest_timestamp(self, stream: int) -> TimestampedOffset | None:
        """The first record that has the stream's greatest timestamp."""
        return await self._steadily(stream, lambda bounds: self._greatest(stream, bounds))

    async def _steadily(
        self, stream: int, look: Callable[[Bounds], Awaitable[TimestampedOffset | None]]
    ) -> TimestampedOffset | None:
        """Search again when records are deleted, or moved elsewhere, during the search, or cannot be read: a
        client that looks for an offset asks once."""
        missing: list[str] = []
        unanswered: LogUnavailable | None = None
        pause = _FIRST_PAUSE
        for _ in range(_TRIES):
            bounds = await self._reader.refresh(stream, barrier=True)
            try:
                return await look(bounds)
            except OffsetOutOfRange:
                self._reader.forget_entries(stream)
                continue
            except ObjectMissing as gone:
                self._reader.forget_entries(stream)
                missing.append(str(gone))
                if missing.count(str(gone)) == 1:
                    continue
            except LogUnavailable as error:
                unanswered = error
            await self._runtime.sleep(pause)
            pause *= 2
        if len(missing) == _TRIES and len(set(missing)) == 1:
            path = missing[0].removesuffix(": no such object")
            text = f"stream {stream}: the index names an object that is gone: {missing[0]}"
            lost = ObjectCorrupt(text, path=path, place=-1, missing=True)
            raise self._reader.doubts.failed(path, WHOLE, lost) or InDoubt(f"{text}: it is read again")
        if unanswered is not None:
            raise unanswered
        raise LogUnavailable(f"stream {stream}: its records move faster than they can be searched: try again")

    async def _first(self, stream: int, bounds: Bounds, timestamp: int) -> TimestampedOffset | None:
        offset = await self._search(stream, bounds, timestamp)
        while offset < bounds.end:
            entry = await self._reader.find(stream, offset)
            found = await self._first_in(stream, entry, bounds.start, timestamp)
            if found is not None:
                return found
            offset = entry.end
        return None

    async def _greatest(self, stream: int, bounds: Bounds) -> TimestampedOffset | None:
        if bounds.start >= bounds.end:
            return None
        last = await self._reader.find(stream, bounds.end - 1)
        if last.running_max_offset >= bounds.start:
            holder = await self._reader.find(stream, last.running_max_offset)
            if holder.lists_batches or (holder.is_parquet and not holder.sparse):
                return TimestampedOffset(last.running_max_offset, last.running_max_timestamp)
            # Its record may have been compacted away by key, or dropped with a transaction; and of an outside
            # object only the greatest time is known, not where it is.
            found = await self._first(stream, bounds, last.running_max_timestamp)
            if found is not None:
                return found
        return await self._greatest_left(stream, bounds)

    async def _greatest_left(self, stream: int, bounds: Bounds) -> TimestampedOffset | None:
        """The record with the stream's greatest time is gone, so search what is left. The index says enough,
        except for the batch that the start cuts through: that one must be opened to see which of its records
        count."""
        best: TimestampedOffset | None = None
        best_batch: tuple[IndexEntry, int, int] | None = None
        offset = bounds.start
        while offset < bounds.end:
            entry = await self._reader.find(stream, offset)
            offset = entry.end
            if entry.is_parquet:
                if best is None or entry.max_timestamp > best.timestamp:
                    found = await self._reader.parquet.greatest(entry, bounds.start)
                    if found is not None and (best is None or found.timestamp > best.timestamp):
                        best, best_batch = found, None
                continue
            if entry.is_outside:
                above = -1 if best is None else best.timestamp
                if entry.max_timestamp > above:
                    later = await self._reader.outside.greatest(
                        entry, self._reader.leader_epoch(stream), bounds.start, above, self._look_into
                    )
                    if later is not None:
                        best, best_batch = later, None
                continue
            for place, (base_offset, batch) in enumerate(entry.batches()):
                if base_offset + batch.record_count <= bounds.start:
                    continue
                if base_offset < bounds.start:
                    view = await self._reader.read_batch(stream, entry, place)
                    best = await self._look_into(view, _greatest_from, bounds.start)
                elif best is None or batch.max_timestamp > best.timestamp:
                    best = TimestampedOffset(base_offset, batch.max_timestamp)
                    best_batch = entry, place, base_offset
        if best is None or best_batch is None:
            return best
        entry, place, base_offset = best_batch
        view = await self._reader.read_batch(stream, entry, place)
        at = await self._look_into(view, _find, best.timestamp)
        if at is None:
            raise ObjectCorrupt(f"{entry.place}: no record has the time that the index says")
        return TimestampedOffset(base_offset + at[0], at[1])

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
        if entry.is_parquet:
            return await self._reader.parquet.first_at_or_after(entry, start, timestamp)
        if entry.is_outside:
            epoch = self._reader.leader_epoch(stream)
            return await self._reader.outside.first_at_or_after(
                entry, epoch, start, timestamp, self._look_into
            )
        for place, (base_offset, batch) in enumerate(entry.batches()):
            if base_offset + batch.record_count <= start or batch.max_timestamp < timestamp:
                continue
            view = await self._reader.read_batch(stream, entry, place)
            if base_offset < start:
                found = await self._look_into(view, _first_from, start, timestamp)
            elif (at := await self._look_into(view, _find, timestamp)) is not None:
                found = TimestampedOffset(base_offset + at[0], at[1])
            else:
                found = None
            if found is not None:
                return found
        return None

    async def _look_into(self, view: memoryview, look: Callable[..., T], *arguments: int) -> T:
        """Run `look` on a batch, and return its finding. The batch may unfold to the size that it says. If
        that is not enough, it may unfold to the limit it was accepted with: a frame may state a wrong size,
        and the batch was checked when it was produced."""
        for limit in (unfolds_to(view), _UNFOLDED_MOST):
            taken = len(view) + (limit if look is _find else _COLUMNS * max(limit, len(view)))
            try:
                return await self._unfolding.in_thread(self._runtime, taken, look, view, limit, *arguments)
            except RecordError as error:
                if error.fault is not RecordFault.TOO_LARGE or limit == _UNFOLDED_MOST:
                    raise
        raise AssertionError("the last limit either holds or is an error")


def _find(batch: memoryview, limit: int, timestamp: int) -> tuple[int, int] | None:
    return find_timestamp(batch, timestamp, max_decompressed_bytes=limit)


def _first_from(batch: memoryview, limit: int, start: int, timestamp: int) -> TimestampedOffset | None:
    return next((at for at in _records_from(batch, limit, start) if at.timestamp >= timestamp), None)


def _greatest_from(batch: memoryview, limit: int, start: int) -> TimestampedOffset:
    return max(_records_from(batch, limit, start), key=lambda record: record.timestamp)


def _records_from(batch: memoryview, limit: int, start: int) -> Iterator[TimestampedOffset]:
    """For the one batch that the stream's start cuts through: records below the start do not count."""
    columns = decode(batch, max_decompressed_bytes=limit)
    offsets = memoryview(columns.offsets).cast("B").cast("q")
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    for offset, time in zip(offsets, timestamps, strict=True):
        if offset >= start:
            yield TimestampedOffset(offset, time)


def time_in(entry: IndexEntry, offset: int) -> int:
    """When the record at an offset was written, to its batch or row group."""
    found = entry.min_timestamp
    if entry.is_parquet:
        for group in entry.row_groups():
            if offset <= group.last_offset:
                return group.min_timestamp
            found = group.max_timestamp
        return found
    if not entry.lists_batches:
        return found
    for base, batch in entry.batches():
        if base <= offset < base + batch.record_count:
            return batch.min_timestamp
    return found
