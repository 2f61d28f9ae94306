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

import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote
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


# --- the path of an object
#
#     wal/v1/zone=<zone>/domain=<domain>/date=YYYY/MM/DD/<wal id>.wo
#
# Outside objects that come to lie here live and die as they do. They are no WAL objects: they end in
# `.batches`. The zone and the date are there for people. No reader goes by them: the path is kept in the
# metadata. The audit of the bucket goes by the domain and the id.


PREFIX = "wal/v1/"
WAL_ENDING = ".wo"
BATCHES_ENDING = ".batches"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATH = re.compile(
    rf"wal/v1/zone=([^/]*)/domain=(0|[1-9][0-9]{{0,9}})/date=[0-9]{{4}}/[0-9]{{2}}/[0-9]{{2}}/({_ID})"
    rf"(?:{re.escape(WAL_ENDING)}|{re.escape(BATCHES_ENDING)})"
)


@dataclass(frozen=True, slots=True)
class WalPath:
    zone: str
    domain: int
    wal_id: UUID


def object_path(zone: str, domain: int, created_ms: int, wal_id: UUID, ending: str = WAL_ENDING) -> str:
    """`created_ms` gives the date, in UTC."""
    day = _EPOCH + timedelta(milliseconds=created_ms)
    return f"{PREFIX}zone={quote(zone, safe='')}/domain={domain}/date={day:%Y/%m/%d}/{wal_id}{ending}"


def parse_object_path(path: str) -> WalPath | None:
    """None for a path that no WAL object has: something foreign, to be left alone."""
    matched = _PATH.fullmatch(path)
    if matched is None:
        return None
    zone, domain, wal_id = matched.groups()
    return WalPath(unquote(zone), int(domain), UUID(wal_id))
