"""Segments as a stopped KafScale left them: `<namespace>/<topic>/<partition>/segment-<20 digits>.kfs`, and an
index beside it.

A segment without an index is one whose upload was not finished. There are no leaders' epochs: segments that
overlap are refused. All batches are read: its footer and index say nothing of times, which retention and
lookups by time rest on, and producers' times jump.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import NAMESPACE_URL, uuid5

from dray.kafka.records import BatchHeader
from dray.migration.attach.found import FoundSegment, MigrationRefused, naming, thinned
from dray.migration.attach.midnights import oldest_of
from dray.migration.attach.reading import SourceReader
from dray.migration.formats import ForeignDamage
from dray.migration.formats.kafscale import (
    FIRST_BATCH,
    FOOTER_SIZE,
    KafscaleSegment,
    read_bounds,
    read_index,
)
from dray.objects.contract import ObjectInfo

_NAME: Final = re.compile(
    r"(?:.*/)?(?P<topic>[A-Za-z0-9._-]{1,249})/(?P<partition>[0-9]{1,7})/"
    r"segment-(?P<base>[0-9]{20})\.(?P<suffix>kfs|index)"
)

_PART: Final = 1 << 20
"""Bytes that are read at a time, at least."""


class KafscaleFiles(NamedTuple):
    partition: int
    base_offset: int
    segment: ObjectInfo
    beside: ObjectInfo | None


def gather_kafscale(listed: Sequence[ObjectInfo], topic: str) -> list[KafscaleFiles]:
    """Raises `MigrationRefused` where two namespaces of one bucket have the topic."""
    found: dict[tuple[int, int], dict[str, ObjectInfo]] = {}
    homes: set[str] = set()
    for info in listed:
        name = _NAME.fullmatch(info.path)
        if name is None or name["topic"] != topic or int(name["base"]) >= 2**63:
            continue
        homes.add(info.path.rsplit("/", 2)[0])
        found.setdefault((int(name["partition"]), int(name["base"])), {})[name["suffix"]] = info
    if len(homes) > 1:
        raise MigrationRefused(
            f"topic {topic} lies in {' and in '.join(sorted(homes))}: name one with --from"
        )
    return [
        KafscaleFiles(partition, base, files["kfs"], files.get("index"))
        for (partition, base), files in sorted(found.items())
        if "kfs" in files
    ]


async def read_kafscale(source: SourceReader, files: KafscaleFiles) -> FoundSegment | None:
    """None where its upload was not finished."""
    info, index = files.segment, files.beside
    if index is None:
        return None
    if info.size < FIRST_BATCH + FOOTER_SIZE:
        raise MigrationRefused(f"{info.path}, byte {info.size}: a segment of {info.size} bytes")
    header, footer, rows_data = await asyncio.gather(
        source.range(info.path, 0, FIRST_BATCH),
        source.range(info.path, info.size - FOOTER_SIZE, FOOTER_SIZE),
        source.whole(index),
    )
    with naming(info.path):
        segment, _ = read_bounds(header, footer, info.size)
        if segment.base_offset != files.base_offset:
            raise ForeignDamage(f"it begins at offset {segment.base_offset}, and has the name of another", 8)
    with naming(index.path):
        rows = read_index(rows_data, segment)
    first, newest = await _read_batches(source, info.path, segment, [row.position for row in rows])
    return FoundSegment(
        segment_id=uuid5(NAMESPACE_URL, info.path),
        path=info.path,
        object_size=info.size,
        segment_size=segment.body_end - FIRST_BATCH,
        start=segment.base_offset,
        end=segment.last_offset + 1,
        max_timestamp=newest,
        min_timestamp=oldest_of(first),
        rows=thinned(
            [
                (segment.base_offset, FIRST_BATCH),
                *[(row.offset, row.position) for row in rows if row.position > FIRST_BATCH],
            ]
        ),
    )


async def _read_batches(
    source: SourceReader, path: str, segment: KafscaleSegment, positions: Sequence[int]
) -> tuple[BatchHeader, int]:
    """The header of the first batch, and the greatest time of all. They are read in parts that begin where a
    row of the index does."""
    first: BatchHeader | None = None
    newest = -1
    following = segment.base_offset
    begin = FIRST_BATCH
    for end in [*positions, segment.body_end]:
        if end - begin < _PART and end < segment.body_end:
            continue
        for batch in await source.batches(path, begin, end, following):
            first = first or batch.header
            newest = max(newest, batch.header.max_timestamp)
            following = batch.last_offset + 1
        begin = end
    if first is None or following != segment.last_offset + 1:
        raise MigrationRefused(f"{path}: its last batch does not end at offset {segment.last_offset}")
    return first, newest
