"""Where a segment is cut because a day begins: a table by day takes no entry of two days.

Only logs whose broker stamped the times (LogAppendTime) are cut: their times rise with the offsets. So the
time index says where to look for a midnight, the headers at the rows of the offset index from there on say
between which of them it lies, and then one piece is read batch by batch. Clocks of two leaders may differ by
a little at midnight: what was then cut in the wrong place is found when it is compacted, and refused by name.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from itertools import takewhile
from typing import Final

from dray.log.foreign_attach import DAY_MS, ForeignSegment, SegmentCut
from dray.migration.segment_bytes import SegmentBytes
from dray.records import BatchHeader
from dray.records.header import LOG_APPEND_TIME

_MOST_CUTS: Final = 1_000
"""Of one segment: more days than that are in no segment whose times a broker stamped."""


def oldest_of(header: BatchHeader) -> int:
    """No record of the batch is older, as far as its header says. Where the broker stamped the time, that of
    the producer still stands beside it."""
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
