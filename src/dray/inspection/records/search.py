"""Records for people: the newest, or those from an offset or a time on, and what a search finds.

Every answer is bounded in records and in bytes read, and says where it stopped: its `continuation` goes on at
exactly that place, so that nothing is passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.base.runtime import Runtime, gather_some
from dray.base.runtime.shown import printable
from dray.inspection.records.matching import Match
from dray.inspection.records.reading import (
    Fetched,
    FetchedRecord,
    NoSuchPartition,
    OffsetBounds,
    OffsetGone,
    TopicReader,
    Unreadable,
)
from dray.inspection.records.shown import Shown, preview

DEFAULT_RECORDS: Final = 50
MOST_RECORDS: Final = 500
READ_BYTES: Final = 32 * 1024 * 1024
"""As much as one answer reads, when nothing is searched for."""
LARGEST_RECORD: Final = 1 << 40
"""The last record of a partition is read whatever it takes."""
SEARCH_BYTES: Final = 256 * 1024 * 1024
SEARCH_SECONDS: Final = 5.0

_AT_ONCE: Final = 8
_LEAST_SHARE: Final = 64 * 1024
"""The least share of the bytes to read that each partition gets."""


@dataclass(frozen=True)
class HeaderView:
    key: str
    value: Shown


@dataclass(frozen=True)
class RecordRow:
    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: int
    size: int
    trouble: str | None = None
    """Why it cannot be shown: then it stands for its whole batch."""


@dataclass(frozen=True)
class RecordsView:
    topic: str
    rows: Sequence[RecordRow]
    bounds: Mapping[int, OffsetBounds]
    scanned: int
    """Offsets that were looked at,"""
    to_scan: int
    """and how many there were to look at."""
    read_bytes: int
    continuation: str | None
    """The place to go on, as `partition:offset` of every partition that is not done; None: all are done."""
    gone: Sequence[str] = ()
    """The parts that were asked for and are no longer there."""
    large: bool = False
    """Whether fewer are shown than were asked for, since they take too much to read."""


def row_of(partition: int, item: FetchedRecord | Unreadable) -> RecordRow:
    if isinstance(item, Unreadable):
        nothing = Shown("null", "", 0)
        batch = item.batch
        return RecordRow(
            partition,
            batch.base_offset,
            batch.max_timestamp,
            nothing,
            nothing,
            0,
            batch.length,
            f"the batch of offsets {batch.base_offset} to {batch.last_offset} cannot be decoded: "
            f"{printable(item.reason)}",
        )
    record = item.record
    size = len(record.key or b"") + len(record.value or b"")
    return RecordRow(
        partition,
        record.offset,
        record.timestamp,
        preview(record.key, 120),
        preview(record.value),
        len(record.headers),
        size,
    )


async def newest(reader: TopicReader, partition: int | None, count: int) -> RecordsView:
    """The last records, newest first: of each partition its last `count` offsets, from the end, as long as
    there are bytes left to read."""
    bounds = await _chosen(reader, partition)
    share = max(READ_BYTES // max(len(bounds), 1), _LEAST_SHARE)

    last = (_last(reader, number, bound, count, share) for number, bound in bounds.items())
    parts = await gather_some(last, _AT_ONCE)
    rows = [row for part in parts for row in part.rows]
    rows.sort(key=lambda row: (row.timestamp, row.partition, row.offset), reverse=True)
    return RecordsView(
        reader.name,
        rows[:count],
        bounds,
        sum(part.scanned for part in parts),
        sum(bound.end - bound.start for bound in bounds.values()),
        sum(part.size for part in parts),
        None,
        large=any(part.cut for part in parts),
    )


async def _last(reader: TopicReader, number: int, bound: OffsetBounds, count: int, share: int) -> _Part:
    """Windows that grow towards the start. The first is the last offset alone, and is read whatever it takes;
    one that is too large to be read whole is left out, since its newest would be missing."""
    rows: list[RecordRow] = []
    stop, step, size = bound.end, 1, 0
    while stop > bound.start and len(rows) < count:
        begin = max(bound.start, stop - step)
        part = await _range(reader, number, begin, stop, share - size if size else LARGEST_RECORD)
        size += part.size
        if part.cut:
            return _Part(rows, size, bound.end - stop, True)
        rows += part.rows
        stop, step = begin, step * 4
    return _Part(rows, size, bound.end - stop, False)


async def onwards(
    reader: TopicReader,
    positions: Mapping[int, int],
    count: int,
    match: Match | None = None,
    *,
    ends: Mapping[int, int] | None = None,
    seconds: float = SEARCH_SECONDS,
) -> RecordsView:
    """From these offsets on, partition by partition. With a match only records that it accepts; then more
    is read, for as long as `seconds`, and the answer says how far it came."""
    all_bounds = await reader.bounds()
    for number in positions:
        if number not in all_bounds:
            raise NoSuchPartition(f"topic {reader.name} has no partition {number}")
    bounds = {number: all_bounds[number] for number in sorted(positions)}
    stops = {number: min((ends or {}).get(number, bound.end), bound.end) for number, bound in bounds.items()}
    at = {number: max(positions[number], bound.start) for number, bound in bounds.items()}
    gone = [
        f"partition {number} starts at {bound.start}, after {positions[number]}"
        for number, bound in bounds.items()
        if positions[number] < bound.start and positions[number] > 0
    ]
    to_scan = sum(max(0, stops[number] - at[number]) for number in bounds)
    rows: list[RecordRow] = []
    read = scanned = 0
    deadline = reader.brokers.runtime.monotonic() + seconds
    most_bytes = READ_BYTES if match is None else SEARCH_BYTES
    for number in bounds:
        while at[number] < stops[number] and len(rows) < count:
            if read >= most_bytes or reader.brokers.runtime.monotonic() > deadline:
                break
            try:
                fetched = (
                    await reader.fetch(number, at[number])
                    if match is None
                    else await reader.fetch_gently(number, at[number], match)
                )
            except OffsetGone as error:
                gone.append(f"partition {number}: {error}")
                scanned += max(0, error.start - at[number])
                at[number] = max(error.start, at[number] + 1)
                continue
            read += fetched.size
            found, following = _taken(fetched, stops[number], count - len(rows))
            rows += [row_of(number, item) for item in found]
            scanned += following - at[number]
            if following <= at[number]:
                break  # the end moved back: there is nothing more
            at[number] = following
    left = {number: at[number] for number in bounds if at[number] < stops[number]}
    continuation = ",".join(f"{number}:{offset}" for number, offset in left.items()) or None
    return RecordsView(reader.name, rows, bounds, scanned, to_scan, read, continuation, gone)


def positions_in(text: str) -> dict[int, int]:
    """The offsets in a continuation, by partition. Raises `ValueError`."""
    found = {}
    for part in text.split(","):
        number, _, offset = part.partition(":")
        found[int(number)] = int(offset)
    if any(number < 0 or not 0 <= offset < 2**63 for number, offset in found.items()):
        raise ValueError(f"{text!r} is no continuation")
    return found


@dataclass(frozen=True)
class _Part:
    rows: Sequence[RecordRow]
    size: int
    scanned: int
    cut: bool
    """Whether it was too much to be read whole."""


async def _range(reader: TopicReader, partition: int, begin: int, stop: int, most: int) -> _Part:
    rows: list[RecordRow] = []
    size = 0
    at = begin
    while at < stop:
        if size >= most:
            return _Part(rows, size, at - begin, True)
        try:
            fetched = await reader.fetch(partition, at)
        except OffsetGone as error:
            if error.start <= at:
                break
            at = error.start
            continue
        size += fetched.size
        rows += [row_of(partition, item) for item in fetched.items if _offset(item) < stop]
        if fetched.following <= at:
            break
        at = fetched.following
    return _Part(rows, size, stop - begin, False)


def _taken(fetched: Fetched, stop: int, room: int) -> tuple[list[FetchedRecord | Unreadable], int]:
    """The records of a fetch that are shown, and the offset after the last one that was looked at."""
    found: list[FetchedRecord | Unreadable] = []
    for item in _below(fetched.items, stop):
        if len(found) == room:
            return found, _offset(item)
        found.append(item)
    return found, min(fetched.following, max(stop, 0))


def _below(items: Sequence[FetchedRecord | Unreadable], stop: int) -> Iterator[FetchedRecord | Unreadable]:
    return (item for item in items if _offset(item) < stop)


def _offset(item: FetchedRecord | Unreadable) -> int:
    return item.batch.base_offset if isinstance(item, Unreadable) else item.record.offset


async def _chosen(reader: TopicReader, partition: int | None) -> Mapping[int, OffsetBounds]:
    bounds = await reader.bounds()
    if partition is None:
        return bounds
    if partition not in bounds:
        raise NoSuchPartition(f"topic {reader.name} has no partition {partition}")
    return {partition: bounds[partition]}


# --- new records as they come
# Nothing is dropped and nothing is missed: a position moves only behind what was handed on, and a slow reader
# is waited for, since the log keeps what it has not read yet.


MOST_PARTITIONS: Final = 32
"""As many are followed at once: each has a connection of its own."""

_WAIT_MS: Final = 1000
_AHEAD: Final = 4
"""Fetches that may wait to be handed on, over all partitions."""


@dataclass(frozen=True)
class TailPiece:
    """Rows of one partition, and where every partition stands after them."""

    rows: list[RecordRow]
    positions: Mapping[int, int]
    gone: str | None = None


async def follow(
    readers: Mapping[int, TopicReader],
    positions: Mapping[int, int],
    runtime: Runtime,
    match: Match | None = None,
) -> AsyncIterator[TailPiece]:
    """Endless; close it to stop. A reader per partition, each with connections of its own, since a fetch
    that waits holds up what comes after it."""
    at = dict(positions)
    pieces: asyncio.Queue[tuple[int, list[RecordRow], int, str | None]] = asyncio.Queue(_AHEAD)

    async def read(partition: int, reader: TopicReader) -> None:
        position = at[partition]
        while True:
            try:
                fetched = await reader.fetch(partition, position, match=match, wait_ms=_WAIT_MS)
            except OffsetGone as error:
                if error.start > position:
                    await pieces.put((partition, [], error.start, str(error)))
                    position = error.start
                else:  # the end is behind us: a topic that was made anew, or a log that lost its end
                    await pieces.put((partition, [], error.end, str(error)))
                    position = error.end
                continue
            rows = [row_of(partition, item) for item in fetched.items]
            position = fetched.following
            await pieces.put((partition, rows, position, None))

    tasks = [
        runtime.spawn(read(partition, reader), f"follow partition {partition}")
        for partition, reader in readers.items()
    ]
    try:
        while True:
            taking = runtime.spawn(pieces.get(), "take what was followed")
            try:
                await asyncio.wait({taking, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()  # a reader ends only by failing
                if not taking.done():
                    continue
            finally:
                taking.cancel()
            partition, rows, position, gone = taking.result()
            at[partition] = position
            yield TailPiece(rows, dict(at), gone)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
