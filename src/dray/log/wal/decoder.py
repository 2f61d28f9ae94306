"""From bytes to a WAL object, believing nothing that was not checked.

`decode` takes a whole object and checks all of it. A reader of ranges takes `decode_header`, then
`decode_chunk_index`, then `decode_chunk`: it sees every number checked against the others, but only
the whole object has a checksum. The record batches carry their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from dray.kafka.records import crc32c
from dray.log.wal.format import (
    FOOTER,
    HEADER,
    INDEX_ENTRY,
    LENGTH,
    MAGIC,
    SMALLEST_BATCH_ENTRY,
    VERSION,
    ChunkEntry,
    WalCorrupt,
    WalHeader,
    WalNewer,
)

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    entry: ChunkEntry
    batches: list[memoryview]
    """Views into the buffer that was decoded."""


@dataclass(frozen=True, slots=True)
class WalObject:
    header: WalHeader
    chunks: list[DecodedChunk]
    """By rising stream id."""


def decode(buffer: Buffer, name: str) -> WalObject:
    """A whole object, or `WalCorrupt` with its name."""
    view = memoryview(buffer)
    size = len(view)
    header = decode_header(view[: HEADER.size], name, size)
    check_footer(view[size - FOOTER.size :], crc32c(view[: size - FOOTER.size], 0), name)
    index_end = header.chunk_index_offset + header.chunk_index_length
    entries = decode_chunk_index(view[header.chunk_index_offset : index_end], header, name, size)
    chunks = [
        DecodedChunk(entry, decode_chunk(view[entry.offset : entry.offset + entry.length], entry, name))
        for entry in entries
    ]
    return WalObject(header, chunks)


def decode_header(buffer: Buffer, name: str, size: int) -> WalHeader:
    """The header, from at least the first 49 bytes of an object of `size` bytes."""
    if len(buffer) < HEADER.size or size < HEADER.size + FOOTER.size:
        raise WalCorrupt(name, f"cut short: {size} bytes are less than a header and a footer")
    fields = HEADER.unpack_from(buffer)
    magic, version, wal_id, domain, created_ms, chunk_count, chunk_index_offset = fields
    if magic != MAGIC:
        raise WalCorrupt(name, f"starts with {magic!r}, not with {MAGIC!r}")
    if version > VERSION:
        raise WalNewer(name, f"has format version {version}; this Dray reads up to {VERSION}")
    if version != VERSION:
        raise WalCorrupt(name, f"has format version {version}, which never was")
    if chunk_index_offset != HEADER.size:
        raise WalCorrupt(name, f"chunk index offset is {chunk_index_offset}, not {HEADER.size}")
    header = WalHeader(UUID(bytes=wal_id), domain, created_ms, chunk_count, chunk_index_offset)
    smallest = HEADER.size + chunk_count * (INDEX_ENTRY.size + SMALLEST_BATCH_ENTRY) + FOOTER.size
    if chunk_count == 0 or smallest > size:
        raise WalCorrupt(name, f"{chunk_count} chunks cannot be in {size} bytes")
    return header


def decode_chunk_index(buffer: Buffer, header: WalHeader, name: str, size: int) -> list[ChunkEntry]:
    """The chunk index, from its own bytes and the size of the object it is in."""
    if len(buffer) != header.chunk_index_length:
        raise WalCorrupt(name, f"chunk index has {len(buffer)} bytes, not {header.chunk_index_length}")
    entries: list[ChunkEntry] = []
    expected_offset = header.chunk_index_offset + header.chunk_index_length
    bodies_end = size - FOOTER.size
    last_stream_id = -1
    for fields in INDEX_ENTRY.iter_unpack(buffer):
        entry = ChunkEntry(*fields)
        if entry.stream_id <= last_stream_id:
            raise WalCorrupt(name, f"stream {entry.stream_id} follows stream {last_stream_id} in the index")
        if entry.offset != expected_offset:
            raise WalCorrupt(name, f"{_chunk(entry)} starts at {entry.offset}, not {expected_offset}")
        if entry.batch_count == 0 or entry.batch_count * SMALLEST_BATCH_ENTRY > entry.length:
            raise WalCorrupt(
                name, f"{_chunk(entry)}: {entry.batch_count} batches cannot be in {entry.length} bytes"
            )
        if entry.min_timestamp > entry.max_timestamp:
            raise WalCorrupt(name, f"{_chunk(entry)} ends in time before it begins")
        expected_offset += entry.length
        if expected_offset > bodies_end:
            raise WalCorrupt(name, f"{_chunk(entry)} reaches past the end of the object")
        last_stream_id = entry.stream_id
        entries.append(entry)
    if expected_offset != bodies_end:
        raise WalCorrupt(name, f"its chunks end at {expected_offset}, its footer starts at {bodies_end}")
    return entries


def decode_chunk(buffer: Buffer, entry: ChunkEntry, name: str) -> list[memoryview]:
    """The batches of one chunk, as views into its bytes."""
    body = memoryview(buffer)
    if len(body) != entry.length:
        raise WalCorrupt(name, f"{_chunk(entry)} has {len(body)} bytes, not {entry.length}")
    batches: list[memoryview] = []
    position = 0
    while position < entry.length:
        length = batch_length(body[position : position + LENGTH.size], entry, entry.length - position, name)
        position += LENGTH.size
        batches.append(body[position : position + length])
        position += length
    if len(batches) != entry.batch_count:
        raise WalCorrupt(name, f"{_chunk(entry)} has {len(batches)} batches, not {entry.batch_count}")
    return batches


def batch_length(buffer: Buffer, entry: ChunkEntry, available: int, name: str) -> int:
    """The length before a batch, when `available` bytes of its chunk are left, the length included."""
    if len(buffer) == LENGTH.size:
        length: int = LENGTH.unpack(buffer)[0]
        if 0 < length <= available - LENGTH.size:
            return length
    raise WalCorrupt(name, f"{_chunk(entry)}: a batch does not end where its chunk does")


def check_footer(buffer: Buffer, checksum: int, name: str) -> None:
    (expected,) = FOOTER.unpack(buffer)
    if checksum != expected:
        raise WalCorrupt(name, f"its CRC32C is {checksum:#010x}, its footer says {expected:#010x}")


def _chunk(entry: ChunkEntry) -> str:
    return f"the chunk of stream {entry.stream_id}"


# --- an object as it arrives, in pieces of any size and with bounded memory
#
# No I/O in here: feed it what came, and take the events it gives. It holds the chunk index and at most
# one batch that is not whole yet.
#
# The checksum stands at the end of an object, so it is known last. A caller that acts on a batch before
# `ObjectVerified` came acts on bytes that only the structure vouches for so far.


@dataclass(frozen=True, slots=True)
class HeaderRead:
    header: WalHeader


@dataclass(frozen=True, slots=True)
class IndexRead:
    entries: list[ChunkEntry]


@dataclass(frozen=True, slots=True)
class BatchRead:
    entry: ChunkEntry
    number: int
    """Counted from 0 in each chunk."""
    data: memoryview
    """If the batch came in one piece, a view into what was fed."""


@dataclass(frozen=True, slots=True)
class ObjectVerified:
    """The object ended where it should, and its checksum is right."""


Event: TypeAlias = HeaderRead | IndexRead | BatchRead | ObjectVerified


class StreamingDecoder:
    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._checksum = 0
        self._unfinished = bytearray()
        self._events: list[Event] = []
        self._chunks: deque[ChunkEntry] = deque()
        self._header: WalHeader | None = None
        self._batches_seen = 0
        self._bytes_left = 0
        self._expect(HEADER.size, self._on_header)

    def feed(self, data: Buffer) -> list[Event]:
        """Take the next bytes of the object, and return what they complete. Nothing may be fed after a
        `WalCorrupt`."""
        view = memoryview(data)
        while view:
            if self._wanted == 0:
                raise WalCorrupt(self._name, f"{len(view)} bytes follow its footer")
            item, view = self._take(view)
            if item is None:
                break
            self._on_item(item)
        events, self._events = self._events, []
        return events

    def finish(self) -> None:
        """Say that there is no more: `WalCorrupt` unless the object was whole."""
        if self._wanted:
            raise WalCorrupt(self._name, "cut short: it ends before its footer does")

    def _expect(self, length: int, on_item: Callable[[memoryview], None]) -> None:
        self._wanted = length
        self._on_item = on_item

    def _take(self, view: memoryview) -> tuple[memoryview | None, memoryview]:
        """The item waited for, if it is whole now, and what comes after it."""
        if not self._unfinished and len(view) >= self._wanted:
            return view[: self._wanted], view[self._wanted :]
        missing = self._wanted - len(self._unfinished)
        self._unfinished += view[:missing]
        if len(view) < missing:
            return None, view[len(view) :]
        item, self._unfinished = memoryview(self._unfinished), bytearray()
        return item, view[missing:]

    def _on_header(self, item: memoryview) -> None:
        self._checksum = crc32c(item, 0)
        self._header = decode_header(item, self._name, self._size)
        self._events.append(HeaderRead(self._header))
        self._expect(self._header.chunk_index_length, self._on_index)

    def _on_index(self, item: memoryview) -> None:
        assert self._header is not None
        self._checksum = crc32c(item, self._checksum)
        entries = decode_chunk_index(item, self._header, self._name, self._size)
        self._events.append(IndexRead(entries))
        self._chunks.extend(entries)
        self._begin_chunk()

    def _begin_chunk(self) -> None:
        if self._chunks:
            self._batches_seen = 0
            self._bytes_left = self._chunks[0].length
            self._expect(LENGTH.size, self._on_length)
        else:
            self._expect(FOOTER.size, self._on_footer)

    def _on_length(self, item: memoryview) -> None:
        self._checksum = crc32c(item, self._checksum)
        length = batch_length(item, self._chunks[0], self._bytes_left, self._name)
        self._bytes_left -= LENGTH.size
        self._expect(length, self._on_batch)

    def _on_batch(self, item: memoryview) -> None:
        self._checksum = crc32c(item, self._checksum)
        entry = self._chunks[0]
        self._events.append(BatchRead(entry, self._batches_seen, item))
        self._batches_seen += 1
        self._bytes_left -= len(item)
        if self._bytes_left:
            self._expect(LENGTH.size, self._on_length)
            return
        if self._batches_seen != entry.batch_count:
            raise WalCorrupt(
                self._name,
                f"the chunk of stream {entry.stream_id} has {self._batches_seen} batches,"
                f" not {entry.batch_count}",
            )
        self._chunks.popleft()
        self._begin_chunk()

    def _on_footer(self, item: memoryview) -> None:
        check_footer(item, self._checksum, self._name)
        self._events.append(ObjectVerified())
        self._wanted = 0
