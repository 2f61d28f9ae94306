"""Which copies of segments Kafka says are finished: from the log of its topic of them, in a broker's log
directory."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from dray.foreign import cut_torn_tail, walk_batches
from dray.foreign.remote_segments import TOPIC, RemoteSegment, RemoteSegments
from dray.migration.found import MigrationRefused, naming
from dray.migration.log_dir import gather_log_dir
from dray.migration.reading import LARGEST_TAIL, SourceReader
from dray.objects.contract import Buffer
from dray.records import RecordError, decode

_MOST_UNFOLDED = 256 << 20


async def read_remote_metadata(source: SourceReader, topic: str) -> Mapping[UUID, RemoteSegment]:
    """Raises `MigrationRefused` where the topic is not there, or damaged."""
    partitions = gather_log_dir(await source.listed(), TOPIC)
    if not partitions:
        raise MigrationRefused(f"there is no partition of {TOPIC} in that directory")
    segments = RemoteSegments(topic)
    for files in partitions:
        bases = sorted(files.segments)
        for base in bases:
            info = files.segments[base]
            data = await source.whole(info, LARGEST_TAIL)
            with naming(info.path):
                end = cut_torn_tail(data) if base == bases[-1] else len(data)
                take_records(segments, memoryview(data)[:end], info.path)
    return segments.finished()


def take_records(segments: RemoteSegments, data: Buffer, path: str) -> None:
    """All records of these batches."""
    view = memoryview(data)
    for batch in walk_batches(view):
        if batch.is_control:
            continue
        try:
            columns = decode(
                view[batch.position : batch.end], max_decompressed_bytes=_MOST_UNFOLDED, sparse=True
            )
        except RecordError as error:
            raise MigrationRefused(f"{path}, byte {batch.position}: {error}") from None
        for record in columns.records():
            if record.value is not None:
                segments.take(record.value)
