"""The WAL object, byte by byte (version 1). All numbers are big-endian.

    header         49 bytes
        magic              7   "DRAYWO1"
        version            2   u16, 1
        wal id            16   UUID
        domain             4   u32
        created            8   i64, milliseconds since the epoch
        chunk count        4   u32, at least 1
        chunk index offset 8   u64, always 49
    chunk index    44 bytes per chunk, stream ids strictly rising
        stream id          8   u64
        chunk offset       8   u64, from the start of the object
        chunk length       4   u32
        record count       4   u32
        batch count        4   u32, at least 1
        min timestamp      8   i64
        max timestamp      8   i64
    chunk bodies   in the order of the index, without gaps
        per batch: length  4   u32, at least 1
                   bytes       a Kafka record batch as the producer sent it
    footer         4 bytes
        CRC32C of every byte before it

The specification leaves three things open, and this is how they are closed. The index stands before
the bodies, so that one read of the object's start finds every chunk, and a reader that takes the
object as a stream knows where it is. There are no gaps, so every byte means something and is checked.
The footer is always there, and is nothing but the CRC.

A batch keeps the base offset its producer gave it; which offset it really has, the offset index says.
So the index, not the object, decides which batches exist: one that was refused after the upload is
still in here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

MAGIC = b"DRAYWO1"
VERSION = 1

HEADER = struct.Struct(">7sH16sIqIQ")
INDEX_ENTRY = struct.Struct(">QQIIIqq")
LENGTH = struct.Struct(">I")
FOOTER = struct.Struct(">I")

SMALLEST_BATCH_ENTRY = LENGTH.size + 1
LARGEST_U32 = 2**32 - 1


class WalCorrupt(Exception):
    """These bytes are not a whole WAL object as it was written. They must not be served."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"WAL object {name}: {what}")
        self.name = name
        self.what = what


class WalNewer(WalCorrupt):
    """The object says that a newer Dray wrote it; reading it by the old rules could go wrong unseen."""


@dataclass(frozen=True, slots=True)
class WalHeader:
    wal_id: UUID
    domain: int
    created_ms: int
    chunk_count: int
    chunk_index_offset: int

    @property
    def chunk_index_length(self) -> int:
        return self.chunk_count * INDEX_ENTRY.size


@dataclass(frozen=True, slots=True)
class ChunkEntry:
    """One line of the chunk index: where a stream's batches are, and what they hold."""

    stream_id: int
    offset: int
    length: int
    record_count: int
    batch_count: int
    min_timestamp: int
    max_timestamp: int
