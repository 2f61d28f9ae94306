"""The places where a segment is cut because a day begins: a table by day takes no entry of two days.

Only logs whose broker stamped the times (LogAppendTime) are cut: their times rise with the offsets. So the
time index says where to look for a midnight, the headers at the rows of the offset index from there on say
between which of them it lies, and then one piece is read batch by batch. Clocks of two leaders may differ by
a little at midnight: what was then cut in the wrong place is found when it is compacted, and refused by name.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import takewhile
from typing import Final, Protocol

from dray.kafka.records import HEADER_SIZE, BatchHeader, read_header
from dray.kafka.records.header import LOG_APPEND_TIME
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.found import FoundSegment, MigrationRefused, naming
from dray.migration.attach.reading import LARGEST_TAIL, SourceReader
from dray.migration.entries.lay_down import DAY_MS, ForeignSegment, SegmentCut
from dray.migration.formats import ForeignFault, walk_batches
from dray.migration.formats.aiven import (
    LARGEST_MANIFEST,
    AivenManifest,
    SegmentChunk,
    read_chunk,
    read_manifest,
)
from dray.migration.formats.batches import ForeignDamage, SegmentBatch
from dray.objects.contract import Buffer, ObjectError

_MOST_CUTS: Final = 1_000
"""Of one segment: more days than that are in no segment whose times a broker stamped."""


def oldest_of(header: BatchHeader) -> int:
    """No record of the batch is older, as far as its header says. If the broker stamped the time, that of the
    producer still stands beside it."""
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp


async def cut_at_midnights(
    written: SegmentBytes, segment: ForeignSegment
) -> tuple[ForeignSegment, list[SegmentCut]]:
    """The segment with a row for every cut."""
    if segment.min_timestamp // DAY_MS == segment.max_timestamp // DAY_MS:
        return segment, []
    if not (await written.header(segment.rows[0][1])).attributes & LOG_APPEND_TIME:
        return segment, []
    cuts: list[SegmentCut] = []
    rows = {position: offset for offset, position in segment.rows}
    midnight = (segment.min_timestamp // DAY_MS + 1) * DAY_MS
    from_row = 0
    while midnight <= segment.max_timestamp and len(cuts) < _MOST_CUTS:
        from_row = await _last_before(written, segment, from_row, midnight)
        position, offset = segment.rows[from_row][1], segment.rows[from_row][0]
        behind = from_row + 1
        end = segment.rows[behind][1] if behind < len(segment.rows) else segment.end_position
        batches = await written.batches(position, end)
        found = next((each for each in batches if each.header.max_timestamp >= midnight), None)
        if found is None:
            if behind == len(segment.rows):
                break
            # It begins with the next row.
            header = await written.header(end)
            position, offset = end, segment.rows[behind][0]
        else:
            header, position, offset = found.header, found.position, found.last_offset
        midnight = header.max_timestamp // DAY_MS * DAY_MS
        if position > segment.rows[0][1]:
            rows.setdefault(position, offset)
            cuts.append(SegmentCut(position, header.base_offset, midnight))
        midnight += DAY_MS
    return replace(segment, rows=[(rows[position], position) for position in sorted(rows)]), cuts


async def _last_before(written: SegmentBytes, segment: ForeignSegment, low: int, midnight: int) -> int:
    """The last row whose batch is older: the first younger one lies behind it, up to the next row."""
    known = [row.offset for row in takewhile(lambda row: row.timestamp < midnight, segment.times)]
    if known:  # all up to this offset is older
        low = max(low, bisect_right(segment.rows, known[-1], key=lambda row: row[0]) - 1)
    high, step = low + 1, 1
    while high < len(segment.rows) and await _is_before(written, segment, high, midnight):
        low, step = high, 2 * step
        high = low + step
    high = min(high, len(segment.rows))
    while high - low > 1:
        middle = (low + high) // 2
        if await _is_before(written, segment, middle, midnight):
            low = middle
        else:
            high = middle
    return low


async def _is_before(written: SegmentBytes, segment: ForeignSegment, row: int, midnight: int) -> bool:
    return (await written.header(segment.rows[row][1])).max_timestamp < midnight


# --- a segment as its broker wrote it, wherever and however it lies


class SegmentBytes(Protocol):
    """It raises `MigrationRefused`."""

    async def header(self, position: int) -> BatchHeader:
        """Of the batch that begins there."""

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        """Those that lie between, each checked; their positions count from the segment's start."""


class PlainSegment:
    """As it was written."""

    def __init__(self, source: SourceReader, path: str) -> None:
        self._source = source
        self._path = path

    async def header(self, position: int) -> BatchHeader:
        return read_header(await self._source.range(self._path, position, HEADER_SIZE))

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        return await self._source.batches(self._path, position, end, 0)


class UnpackedSegment:
    """In chunks of Aiven's plugin. The manifest is read with the first byte that is asked for, and the chunk
    that was unpacked last is kept: places that are looked at lie close to each other."""

    def __init__(self, source: SourceReader, found: FoundSegment, keys: KeyRing) -> None:
        self._source = source
        self._path = found.path
        self._manifest_path = found.state_path
        self._keys = keys
        self._opened: tuple[AivenManifest, bytes | None] | None = None
        self._last: tuple[SegmentChunk, Buffer] | None = None

    async def header(self, position: int) -> BatchHeader:
        return read_header(await self._range(position, HEADER_SIZE))

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        with naming(self._path):
            if end - position > LARGEST_TAIL:
                raise ForeignDamage(f"{end - position} bytes without a row of an index", position)
            data = await self._range(position, end - position)
            try:
                found = list(walk_batches(data))
            except ForeignFault as fault:
                raise type(fault)(fault.reason, position + fault.position) from None
        return [each._replace(position=position + each.position) for each in found]

    async def _range(self, position: int, length: int) -> Buffer:
        manifest, key = self._opened or await self._open()
        if position + length > manifest.segment_size:
            raise MigrationRefused(
                f"{self._path}: it has {manifest.segment_size} bytes, and its index names byte {position}"
            )
        step = manifest.chunk_bytes
        parts = bytearray()
        for chunk in manifest.chunks[position // step : (position + length - 1) // step + 1]:
            data = await self._chunk(manifest, key, chunk)
            parts += memoryview(data)[max(0, position - chunk.original) : position + length - chunk.original]
        return parts

    async def _chunk(self, manifest: AivenManifest, key: bytes | None, chunk: SegmentChunk) -> Buffer:
        if self._last is None or self._last[0] != chunk:
            stored = await self._source.range(self._path, chunk.position, chunk.size)
            with naming(self._path):
                self._last = chunk, read_chunk(manifest, chunk, stored, key)
        return self._last[1]

    async def _open(self) -> tuple[AivenManifest, bytes | None]:
        try:
            info = await self._source.store.head(self._manifest_path)
        except ObjectError as error:
            raise MigrationRefused(f"the source cannot be read: {error}") from error
        data = await self._source.whole(info, LARGEST_MANIFEST)
        with naming(self._manifest_path):
            manifest = read_manifest(data)
            self._opened = manifest, self._keys.data_key(manifest)
        return self._opened
