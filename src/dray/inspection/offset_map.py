"""Where every offset of a topic lies: in WAL objects, or in Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dray.inspection.stored import StoredCluster
from dray.log.entries import IndexEntry
from dray.log.jobs import Job, JobState
from dray.log.stream_store import StreamView

MOST_PIECES: Final = 240
"""As many rectangles as a band has; more would be narrower than what a screen can show."""
MOST_PARTITIONS: Final = 64

PARQUET: Final = "parquet"
WAL: Final = "wal"
NEWEST: Final = "newest"


@dataclass(frozen=True)
class MapPiece:
    kind: str
    """parquet, wal, or newest: the last object, whose entry is not filed yet"""
    start: int
    end: int
    size: int
    """Bytes in the object store."""
    objects: int
    path: str
    """The path of the object; empty where several are drawn as one."""
    written_ms: int


@dataclass(frozen=True)
class JobRange:
    start: int
    end: int
    state: str


@dataclass(frozen=True)
class PartitionMap:
    partition: int
    stream: int
    start: int
    end: int
    pieces: Sequence[MapPiece]
    job: JobRange | None
    wal_bytes: int
    wal_objects: int
    parquet_bytes: int
    parquet_files: int
    table_end: int
    """The offset after the last one that is in a Parquet file."""


@dataclass(frozen=True)
class OffsetMap:
    topic: str
    partitions: Sequence[PartitionMap]
    total: int
    """The number of the topic's partitions; the first of them are shown."""

    @property
    def wal_bytes(self) -> int:
        return sum(each.wal_bytes for each in self.partitions)

    @property
    def parquet_bytes(self) -> int:
        return sum(each.parquet_bytes for each in self.partitions)


async def offset_map(stored: StoredCluster, topic: str) -> OffsetMap | None:
    known = await stored.topic(topic)
    if known is None:
        return None
    maps = []
    for partition, stream in enumerate(known.streams[:MOST_PARTITIONS]):
        view = await stored.view(stream)
        maps.append(map_of(partition, stream, view, await stored.job(stream)))
    return OffsetMap(topic, maps, len(known.streams))


def map_of(partition: int, stream: int, view: StreamView | None, job: Job | None) -> PartitionMap:
    if view is None:
        return PartitionMap(partition, stream, 0, 0, [], None, 0, 0, 0, 0, 0)
    mark = view.high_watermark.value
    pieces = [_piece(entry.value, view.start) for entry in view.split()[0]]
    if mark.head is not None and mark.head.end > view.start:
        pieces.append(_piece(mark.head, view.start, is_head=True))
    files = [piece for piece in pieces if piece.kind == PARQUET]
    objects = [piece for piece in pieces if piece.kind != PARQUET]
    return PartitionMap(
        partition,
        stream,
        view.start,
        mark.end,
        merged(pieces, mark.end - view.start),
        _range(job),
        sum(piece.size for piece in objects),
        len(objects),
        sum(piece.size for piece in files),
        len(files),
        max((piece.end for piece in files), default=view.start),
    )


def merged(pieces: Sequence[MapPiece], offsets: int) -> list[MapPiece]:
    """Neighbours of one kind become one where there are more than can be seen."""
    if len(pieces) <= MOST_PIECES:
        return list(pieces)
    narrow = offsets / MOST_PIECES
    result: list[MapPiece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and last.kind == piece.kind and piece.end - last.start <= narrow:
            result[-1] = replace(
                last,
                end=piece.end,
                size=last.size + piece.size,
                objects=last.objects + piece.objects,
                path="",
                written_ms=piece.written_ms,
            )
        else:
            result.append(piece)
    return result


def _piece(entry: IndexEntry, start: int, *, is_head: bool = False) -> MapPiece:
    kind = PARQUET if entry.is_parquet else NEWEST if is_head else WAL
    return MapPiece(
        kind, max(entry.start, start), entry.end, entry.stored_bytes, 1, entry.place, entry.created_ms
    )


def _range(job: Job | None) -> JobRange | None:
    if job is None or job.state is JobState.DONE or job.compaction is None:
        return None
    return JobRange(job.compaction.start, job.compaction.end, job.state.value)
