"""The WAL object: its format, its paths, writing and reading it. Bytes in, bytes out; no I/O.

`format` describes the bytes.
"""

from dray.wal.decoder import (
    DecodedChunk,
    WalObject,
    decode,
    decode_chunk,
    decode_chunk_index,
    decode_header,
)
from dray.wal.encoder import Chunk, ChunkBatch, ChunkPlacement, EncodedObject, encode
from dray.wal.format import ChunkEntry, WalCorrupt, WalHeader, WalNewer
from dray.wal.paths import PREFIX, WalPath, object_path, parse_object_path
from dray.wal.streaming import BatchRead, Event, HeaderRead, IndexRead, ObjectVerified, StreamingDecoder

__all__ = [
    "PREFIX",
    "BatchRead",
    "Chunk",
    "ChunkBatch",
    "ChunkEntry",
    "ChunkPlacement",
    "DecodedChunk",
    "EncodedObject",
    "Event",
    "HeaderRead",
    "IndexRead",
    "ObjectVerified",
    "StreamingDecoder",
    "WalCorrupt",
    "WalHeader",
    "WalNewer",
    "WalObject",
    "WalPath",
    "decode",
    "decode_chunk",
    "decode_chunk_index",
    "decode_header",
    "encode",
    "object_path",
    "parse_object_path",
]
