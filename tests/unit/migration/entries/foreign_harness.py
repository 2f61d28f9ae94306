"""Streams laid over segments that Kafka, Aiven's plugin and KafScale wrote: the fixtures, attached."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from random import Random
from struct import pack
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from tests.unit.log.harness import DOMAINS, World, batch_bytes
from tests.unit.migration.formats.fixture_files import (
    AIVEN,
    KAFSCALE,
    LOCAL,
    aiven_partition,
    local_partition,
)

from dray.kafka.records import Buffer, Codec, read_header
from dray.kafka.records.compression import compress
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.origins import epoch_above
from dray.log.outside_table import AbortedRange
from dray.log.stream_store import StreamStore
from dray.migration.entries.lay_down import (
    AttachedStream,
    ForeignSegment,
    SegmentCut,
    cut_positions,
    entries_of,
    lay_down,
    open_transactions,
)
from dray.migration.entries.segments import ForeignLayout, ForeignStore
from dray.migration.formats import SegmentBatch, kafscale, walk_batches
from dray.migration.formats.aiven import read_chunk, read_index_part, read_manifest, unwrap_key
from dray.migration.formats.kafka_files import (
    ProducerRow,
    TimeRow,
    read_offset_index,
    read_producer_snapshot,
    read_time_index,
    read_transaction_index,
)
from dray.migration.formats.remote_segments import parse_local
from dray.objects.memory import MemoryBucket, MemoryObjects

EPOCH = epoch_above(0)
STORE = "old"


@dataclass
class Source:
    """A partition of a log that another system wrote, as a test knows it."""

    segments: list[tuple[ForeignSegment, list[SegmentCut]]] = field(default_factory=list)
    contents: list[memoryview] = field(default_factory=list)  # of each segment, as its broker wrote it
    aborted: list[AbortedRange] = field(default_factory=list)
    producers: Sequence[ProducerRow] = ()
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    keys: dict[str, bytes] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.segments[-1][0].end

    @property
    def batches(self) -> list[SegmentBatch]:
        return [batch for data in self.contents for batch in walk_batches(data)]

    def served(self, epoch: int = EPOCH) -> bytes:
        """All of it, as it must be served: the bytes of the source but for the leader epoch."""
        found = bytearray()
        for data in self.contents:
            for batch in walk_batches(data):
                one = bytearray(data[batch.position : batch.end])
                one[12:16] = epoch.to_bytes(4, "big")
                found += one
        return bytes(found)

    def entries(self, piece_bytes: int = 64 << 10) -> list[IndexEntry]:
        undecided = open_transactions(self.producers, self.end)
        return entries_of(self.segments, [*self.aborted, *undecided], 1_790_000_000_000, piece_bytes)

    def attached(self, **changes: Any) -> AttachedStream:
        start = self.segments[0][0].start
        entries = self.entries()
        return AttachedStream(entries, start, self.end, EPOCH, self.producers, **changes)


def kafka(partition: int, cut_bytes: int | None = None) -> Source:
    """What Kafka 4.2 left with its LocalTieredStorage."""
    source = Source()
    folder = local_partition(partition)
    for path in sorted(folder.glob("*.log")):
        name = parse_local(str(path.relative_to(LOCAL)))
        assert name is not None
        data = path.read_bytes()
        batches = list(walk_batches(data))
        rows = read_offset_index(path.with_suffix(".index").read_bytes(), name.base_offset)
        if path.with_suffix(".txnindex").exists():
            for one in read_transaction_index(path.with_suffix(".txnindex").read_bytes()):
                source.aborted.append(AbortedRange(one.producer_id, one.first_offset, one.last_offset))
        source.producers = read_producer_snapshot(path.with_suffix(".snapshot").read_bytes())
        segment = ForeignSegment(
            name.segment_id,
            STORE,
            str(path.relative_to(LOCAL)),
            ForeignLayout.KAFKA,
            batches[0].header.base_offset,
            batches[-1].last_offset + 1,
            max(batch.header.max_timestamp for batch in batches),
            min(batch.header.base_timestamp for batch in batches),
            [(name.base_offset, 0), *rows],
            len(data),
            len(data),
            times=read_time_index(path.with_suffix(".timeindex").read_bytes(), name.base_offset),
        )
        cuts = [] if cut_bytes is None else _cuts(segment, batches, cut_bytes)
        source.segments.append((segment, cuts))
        source.contents.append(memoryview(data))
    _fill(source.bucket, LOCAL, folder)
    return source


def aiven(partition: int) -> Source:
    """What Aiven's plugin left: compressed and encrypted."""
    private = (AIVEN / "throwaway-key.der").read_bytes()
    source = Source()
    folder = aiven_partition(partition)
    for path in sorted(folder.glob("*.rsm-manifest")):
        manifest = read_manifest(path.read_bytes())
        assert manifest.key_id is not None
        source.keys[manifest.key_id] = private
        key = unwrap_key(manifest.wrapped_key, private)
        log = path.with_suffix(".log")
        stored = log.read_bytes()
        data = b"".join(
            bytes(read_chunk(manifest, chunk, stored[chunk.position : chunk.position + chunk.size], key))
            for chunk in manifest.chunks
        )
        indexes = path.with_suffix(".indexes").read_bytes()
        part = {name: read_index_part(manifest, name, indexes, key) for name in manifest.indexes}
        rows = read_offset_index(part["offset"] or b"", manifest.start_offset)
        if part.get("transaction"):
            for one in read_transaction_index(part["transaction"] or b""):
                source.aborted.append(AbortedRange(one.producer_id, one.first_offset, one.last_offset))
        source.producers = read_producer_snapshot(part["producerSnapshot"] or b"")
        segment = ForeignSegment(
            manifest.segment_id,
            STORE,
            str(log.relative_to(AIVEN)),
            ForeignLayout.AIVEN,
            manifest.start_offset,
            manifest.end_offset + 1,
            manifest.max_timestamp,
            0,
            [(manifest.start_offset, 0), *rows],
            manifest.segment_size,
            len(stored),
            str(path.relative_to(AIVEN)),
            read_time_index(part["timestamp"] or b"", manifest.start_offset),
        )
        source.segments.append((segment, []))
        source.contents.append(memoryview(data))
    _fill(source.bucket, AIVEN, folder)
    return source


def packed(
    batch_count: int = 64,
    record_bytes: int = 16 << 10,
    chunk_bytes: int = 64 << 10,
    cut_bytes: int | None = None,
) -> Source:
    """One segment of many batches as Aiven's plugin stores it: compressed chunks, without encryption. (Those
    of its fixtures have a single batch each.) Each batch has a row in the index, as far as there is one."""
    values = [Random(number).randbytes(record_bytes) for number in range(batch_count)]
    plain = written([(number, one_record(value)) for number, value in enumerate(values)], batch_count)
    [data] = plain.contents
    tree = json.loads(next(aiven_partition(0).glob("*.rsm-manifest")).read_text())
    stored = [
        bytes(compress(Codec.ZSTD, data[at : at + chunk_bytes])) for at in range(0, len(data), chunk_bytes)
    ]
    sizes = [len(chunk) for chunk in stored]
    index = pack(">IIB", len(sizes), 0, 4) + pack(f">{len(sizes)}I", *sizes)
    del tree["encryption"]
    tree["chunkIndex"] = {
        "type": "variable",
        "originalChunkSize": chunk_bytes,
        "originalFileSize": len(data),
        "transformedChunks": b64encode(bytes(compress(Codec.ZSTD, index))).decode(),
    }
    [(segment, _)] = plain.segments
    path, manifest = "packed/segment.log", "packed/segment.rsm-manifest"
    source = Source(contents=[data])
    source.bucket.put(path, b"".join(stored), 0)
    source.bucket.put(manifest, json.dumps(tree).encode(), 0)
    changed = replace(
        segment, path=path, manifest=manifest, layout=ForeignLayout.AIVEN, object_size=sum(sizes)
    )
    cuts = [] if cut_bytes is None else _cuts(changed, list(walk_batches(data)), cut_bytes)
    source.segments.append((changed, cuts))
    return source


def one_record(value: bytes, time: int = 1_000) -> bytearray:
    return batch_bytes([value], timestamps=[time])


def kafscale_segment() -> Source:
    source = Source()
    [path] = KAFSCALE.glob("*.kfs")
    data = path.read_bytes()
    found = kafscale.read_segment(data)
    rows = kafscale.read_index(path.with_suffix(".index").read_bytes(), found)
    first = kafscale.FIRST_BATCH
    body = memoryview(data)[first : found.body_end]
    segment = ForeignSegment(
        uuid5(NAMESPACE_URL, path.name),
        STORE,
        path.name,
        ForeignLayout.KAFSCALE,
        found.base_offset,
        found.last_offset + 1,
        max(batch.header.max_timestamp for batch in walk_batches(body)),
        0,
        [(found.base_offset, first), *[row for row in rows if row.position > first]],
        found.body_end,
        len(data),
    )
    source.segments.append((segment, []))
    source.contents.append(body)
    _fill(source.bucket, KAFSCALE, KAFSCALE)
    return source


def written(batches: Sequence[tuple[int, Buffer]], end: int, **changes: Any) -> Source:
    """A segment of these batches, each at its base offset: there may be holes between them. Every one of them
    has a row in its index."""
    data = bytearray()
    rows: list[tuple[int, int]] = []
    for base_offset, batch in batches:
        one = bytearray(batch)
        one[:8] = base_offset.to_bytes(8, "big")
        last = base_offset + read_header(one).last_offset_delta
        rows.append((last if rows else base_offset, len(data)))
        data += one
    times = [read_header(batch).max_timestamp for _, batch in batches]
    running = accumulate(times, max)
    path = f"written/{batches[0][0]:020d}.log"
    segment = ForeignSegment(
        uuid5(NAMESPACE_URL, path),
        STORE,
        path,
        ForeignLayout.KAFKA,
        batches[0][0],
        end,
        max(times),
        min(times),
        rows,
        len(data),
        len(data),
        times=[TimeRow(time, offset) for time, (offset, _) in zip(running, rows, strict=True)],
    )
    source = Source([(segment, [])], [memoryview(bytes(data))], **changes)
    source.bucket.put(path, bytes(data), 0)
    return source


def _cuts(segment: ForeignSegment, batches: list[SegmentBatch], size: int) -> list[SegmentCut]:
    bases = {batch.position: batch.header.base_offset for batch in batches}
    return [SegmentCut(position, bases[position]) for position in cut_positions(segment, size)]


def _fill(bucket: MemoryBucket, root: Path, folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        bucket.put(str(path.relative_to(root)), path.read_bytes(), 0)


@dataclass
class ForeignWorld(World):
    """A world with a store of another system beside its own."""

    source: Source = field(default_factory=Source)
    knows_store: bool = True

    def foreign(self) -> dict[str, ForeignStore]:
        objects = MemoryObjects(self.runtime, self.source.bucket)
        return {STORE: ForeignStore(objects, self.source.keys)} if self.knows_store else {}

    def streams(self) -> StreamStore:
        return StreamStore(self.store, DOMAINS, self.settings.producer_expiry_ms)

    async def attach(self, log: Log, attached: AttachedStream | None = None) -> int:
        [stream] = await log.take_stream_ids(1)
        await lay_down(self.streams(), stream, attached or self.source.attached())
        return stream
