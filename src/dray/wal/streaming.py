"""Reading a WAL object as it arrives, in pieces of any size and with bounded memory.

No I/O in here: feed it what came, and take the events it gives. It holds the chunk index and at most
one batch that is not whole yet.

The checksum stands at the end of an object, so it is known last. A caller that acts on a batch before
`ObjectVerified` came acts on bytes that only the structure vouches for so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from dray.records import crc32c
from dray.wal.decoder import (
    Buffer,
    batch_length,
    check_footer,
    decode_chunk_index,
    decode_header,
)
from dray.wal.format import FOOTER, HEADER, LENGTH, ChunkEntry, WalCorrupt, WalHeader


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
    """Where the batch came in one piece, a view into what was fed."""


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
        """What the next bytes of the object complete. Nothing may be fed after a `WalCorrupt`."""
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
