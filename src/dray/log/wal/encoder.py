"""From batches to a WAL object, without copying a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from dray.kafka.records import crc32c
from dray.log.wal.format import FOOTER, HEADER, INDEX_ENTRY, LARGEST_U32, LENGTH, MAGIC, VERSION

Buffer = bytes | bytearray | memoryview


@dataclass(slots=True)
class ChunkBatch:
    data: Buffer
    """The record batch as it was received. It must not change until the object is uploaded."""
    record_count: int
    min_timestamp: int
    max_timestamp: int


@dataclass(slots=True)
class Chunk:
    """The batches of one stream in one object."""

    stream_id: int
    batches: Sequence[ChunkBatch]


@dataclass(slots=True)
class ChunkPlacement:
    offset: int
    """The chunk's first byte in the object."""
    length: int
    batch_positions: list[int]
    """The first byte of each batch, from the chunk's offset on."""


@dataclass(slots=True)
class EncodedObject:
    parts: list[Buffer]
    """The object in pieces, to be written one after the other; most of them are the batches themselves."""
    size: int
    placements: dict[int, ChunkPlacement]
    """By stream id."""


def encode(wal_id: UUID, domain: int, created_ms: int, chunks: Sequence[Chunk]) -> EncodedObject:
    """Lay out an object. One pass over all bytes, for the checksum: for large objects, off the event loop.

    `ValueError` says that the chunks make no object: none at all, two of one stream, an empty one, or
    one too large for its numbers.
    """
    if not chunks:
        raise ValueError("a WAL object needs at least one chunk")
    offset = HEADER.size + len(chunks) * INDEX_ENTRY.size
    start = [HEADER.pack(MAGIC, VERSION, wal_id.bytes, domain, created_ms, len(chunks), HEADER.size)]
    bodies: list[Buffer] = []
    placements: dict[int, ChunkPlacement] = {}
    for chunk in sorted(chunks, key=_stream_id):
        if chunk.stream_id in placements:
            raise ValueError(f"stream {chunk.stream_id} has two chunks in one WAL object")
        placement = _place(chunk, offset, bodies)
        placements[chunk.stream_id] = placement
        start.append(_index_entry(chunk, placement))
        offset += placement.length

    parts: list[Buffer] = [b"".join(start), *bodies]
    checksum = 0
    for part in parts:
        checksum = crc32c(part, checksum)
    parts.append(FOOTER.pack(checksum))
    return EncodedObject(parts, offset + FOOTER.size, placements)


def _stream_id(chunk: Chunk) -> int:
    return chunk.stream_id


def _place(chunk: Chunk, offset: int, bodies: list[Buffer]) -> ChunkPlacement:
    """Append the chunk's body to `bodies`."""
    if not chunk.batches:
        raise ValueError(f"the chunk of stream {chunk.stream_id} has no batches")
    pack = LENGTH.pack
    positions: list[int] = []
    position = 0
    for batch in chunk.batches:
        data = batch.data
        length = len(data)
        if not length:
            raise ValueError(f"the chunk of stream {chunk.stream_id} has an empty batch")
        bodies += (pack(length), data)
        position += LENGTH.size
        positions.append(position)
        position += length
    if position > LARGEST_U32:
        raise ValueError(f"the chunk of stream {chunk.stream_id} has {position} bytes, more than fit")
    return ChunkPlacement(offset, position, positions)


def _index_entry(chunk: Chunk, placement: ChunkPlacement) -> bytes:
    batches = chunk.batches
    record_count = sum([batch.record_count for batch in batches])
    min_timestamp = min([batch.min_timestamp for batch in batches])
    max_timestamp = max([batch.max_timestamp for batch in batches])
    if min_timestamp > max_timestamp:
        raise ValueError(f"the chunk of stream {chunk.stream_id} ends in time before it begins")
    return INDEX_ENTRY.pack(
        chunk.stream_id,
        placement.offset,
        placement.length,
        record_count,
        len(batches),
        min_timestamp,
        max_timestamp,
    )
