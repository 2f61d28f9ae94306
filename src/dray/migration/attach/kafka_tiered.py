"""Segments as Apache's LocalTieredStorage left them: the files of each segment, side by side.

A bucket says nothing of which copies were finished, so without Kafka's own topic of them a segment counts
if all its files are there. Its end is that of its last batch, which is read and checked; the batches before
are checked when they are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from dray.kafka.records import HEADER_SIZE, BatchHeader, read_header
from dray.kafka.records.header import MAGIC
from dray.migration.attach.found import FoundSegment, MigrationRefused, naming, thinned, thinned_times
from dray.migration.attach.midnights import oldest_of
from dray.migration.attach.reading import SourceReader
from dray.migration.formats import ForeignDamage, ForeignUnsupported
from dray.migration.formats.kafka_files import (
    AbortedTransaction,
    TimeRow,
    read_epochs,
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.remote_segments import RemoteSegment, TieredName, parse_local
from dray.objects.contract import Buffer, ObjectInfo

REQUIRED: Final = ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint")
_NO_TIMESTAMP: Final = -1


@dataclass(frozen=True, slots=True)
class TieredFiles:
    """The files of one segment, by what their names end in."""

    name: TieredName
    files: dict[str, ObjectInfo] = field(default_factory=dict)

    @property
    def missing(self) -> list[str]:
        return [suffix for suffix in REQUIRED if suffix not in self.files]

    @property
    def path(self) -> str:
        """Of its batches, or else of what there is."""
        return (self.files.get("log") or next(iter(self.files.values()))).path


def gather_local(listed: Sequence[ObjectInfo], topic: str) -> dict[UUID, list[TieredFiles]]:
    """The segments of a topic, by its id: a topic that was deleted and made again has several."""
    found: dict[UUID, dict[UUID, TieredFiles]] = {}
    for info in listed:
        name = parse_local(info.path)
        if name is not None and name.topic == topic:
            of_topic = found.setdefault(name.topic_id, {})
            of_topic.setdefault(name.segment_id, TieredFiles(name)).files[name.suffix] = info
    return {topic_id: list(segments.values()) for topic_id, segments in found.items()}


async def read_local(
    source: SourceReader, files: TieredFiles, finished: Mapping[UUID, RemoteSegment] | None
) -> FoundSegment | None:
    """None where its copy was not finished. `finished`: what Kafka says of that, if it can be asked."""
    said = None if finished is None else finished.get(files.name.segment_id)
    if finished is not None and said is None:
        return None
    if files.missing:
        if said is None:
            return None
        raise MigrationRefused(
            f"{files.path}: its .{files.missing[0]} is missing, and Kafka says it is finished"
        )
    found = await _read(source, files)
    if said is None:
        return found
    same = (said.start_offset, said.size) == (found.start, found.segment_size)
    if not same or said.end_offset + 1 < found.end:
        raise MigrationRefused(
            f"{files.path}: offsets {found.start} to {found.end - 1} in {found.segment_size} bytes, and "
            "Kafka says "
            f"{said.start_offset} to {said.end_offset} in {said.size}"
        )
    # If compaction removed the last records, the segment has a hole at its end that only Kafka knows of.
    return replace(found, end=said.end_offset + 1)


async def _read(source: SourceReader, files: TieredFiles) -> FoundSegment:
    name, log, index = files.name, files.files["log"], files.files["index"]
    data, epochs, aborted, times = await asyncio.gather(
        source.whole(index),
        source.whole(files.files["leader_epoch_checkpoint"]),
        _aborted(source, files.files.get("txnindex")),
        _times(source, files.files["timeindex"], name.base_offset),
    )
    with naming(files.files["leader_epoch_checkpoint"].path):
        starts = read_epochs(epochs)
    with naming(index.path):
        rows = read_offset_index(data, name.base_offset)
        last = rows[-1].position if rows else 0
        if last >= max(1, log.size):
            raise ForeignDamage(f"it names byte {last}, and the segment has {log.size}", len(data) - 8)
    if not log.size:
        raise MigrationRefused(f"{log.path}: it is empty")
    batches = await source.batches(log.path, last, log.size, name.base_offset)
    if rows and batches[0].last_offset != rows[-1].offset:
        raise MigrationRefused(
            f"{index.path}: its last row says offset {rows[-1].offset}, and the batch there ends at "
            f"{batches[0].last_offset}"
        )
    first = await _check_beginning(source, log.path, name.base_offset) if last else batches[0].header
    thin = thinned([(name.base_offset, 0), *[(row.offset, row.position) for row in rows if row.position]])
    newest = times[-1].timestamp if times else _NO_TIMESTAMP
    return FoundSegment(
        segment_id=name.segment_id,
        path=log.path,
        object_size=log.size,
        segment_size=log.size,
        start=name.base_offset,
        end=batches[-1].last_offset + 1,
        max_timestamp=max(newest, *[each.header.max_timestamp for each in batches]),
        min_timestamp=oldest_of(first),
        epochs=tuple(starts),
        rows=thin,
        times=thinned_times(times, thin),
        aborted=aborted,
        state_path=files.files["snapshot"].path,
    )


async def _check_beginning(source: SourceReader, path: str, base_offset: int) -> BatchHeader:
    """The header of a segment's first batch, where nothing else of its beginning is read."""
    data: Buffer = await source.range(path, 0, HEADER_SIZE)
    header = read_header(data)
    with naming(path):
        if header.magic in (0, 1):
            raise ForeignUnsupported(
                f"records of message format {header.magic}: rewrite them at the source first"
            )
        if header.magic != MAGIC:
            raise ForeignUnsupported(f"message format {header.magic} is not known")
        if header.base_offset < base_offset:
            raise ForeignDamage(f"offset {header.base_offset}, and its name says {base_offset}")
    return header


async def _aborted(source: SourceReader, info: ObjectInfo | None) -> tuple[AbortedTransaction, ...]:
    if info is None:
        return ()
    data = await source.whole(info)
    with naming(info.path):
        return tuple(read_transaction_index(data))


async def _times(source: SourceReader, info: ObjectInfo, base_offset: int) -> list[TimeRow]:
    data = await source.whole(info)
    with naming(info.path):
        return read_time_index(data, base_offset)
