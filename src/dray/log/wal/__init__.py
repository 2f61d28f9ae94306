"""The WAL object: its format, its paths, writing and reading it. Bytes in, bytes out; no I/O.

`format` describes the bytes.
"""

from dray.log.wal.decoder import (
    BatchRead,
    DecodedChunk,
    Event,
    HeaderRead,
    IndexRead,
    ObjectVerified,
    StreamingDecoder,
    WalObject,
    decode,
    decode_chunk,
    decode_chunk_index,
    decode_header,
)
from dray.log.wal.encoder import Chunk, ChunkBatch, ChunkPlacement, EncodedObject, encode
from dray.log.wal.format import (
    PREFIX,
    ChunkEntry,
    WalCorrupt,
    WalHeader,
    WalNewer,
    WalPath,
    object_path,
    parse_object_path,
)

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
