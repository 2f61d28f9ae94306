"""WAL objects to test with."""

from __future__ import annotations

from uuid import UUID

from hypothesis import strategies as st

from dray.log.wal import Chunk, ChunkBatch, EncodedObject

WAL_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")
CREATED_MS = 1_767_225_599_999
TIMESTAMPS = st.integers(-(2**63), 2**63 - 1)

# What tests/fixtures/wal/v1.wo holds. It was written once, by the first version of the format.
FIXTURE = [
    Chunk(
        stream_id=7,
        batches=[
            ChunkBatch(b"first batch of stream seven", 3, 1_000, 1_002),
            ChunkBatch(b"\x00\xff" * 40, 1, 999, 999),
        ],
    ),
    Chunk(stream_id=2**64 - 1, batches=[ChunkBatch(b"x", 1, -1, -1)]),
    Chunk(stream_id=0, batches=[ChunkBatch(bytes(range(256)), 256, -(2**63), 2**63 - 1)]),
]
FIXTURE_DOMAIN = 3


def joined(encoded: EncodedObject) -> bytes:
    return b"".join(encoded.parts)


@st.composite
def batches(draw: st.DrawFn) -> ChunkBatch:
    first, second = draw(TIMESTAMPS), draw(TIMESTAMPS)
    data = draw(st.binary(min_size=1, max_size=60))
    view = draw(st.sampled_from((bytes, bytearray, memoryview)))(data)
    return ChunkBatch(view, draw(st.integers(0, 2**20)), min(first, second), max(first, second))


@st.composite
def chunk_lists(draw: st.DrawFn) -> list[Chunk]:
    stream_ids = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6, unique=True))
    return [Chunk(stream_id, draw(st.lists(batches(), min_size=1, max_size=5))) for stream_id in stream_ids]
