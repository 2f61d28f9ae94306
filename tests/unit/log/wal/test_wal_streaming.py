"""Taken as a stream, an object is the same as taken whole, however it is cut."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.wal.samples import CREATED_MS, WAL_ID, chunk_lists, joined

from dray.log.wal import (
    BatchRead,
    Chunk,
    ChunkBatch,
    Event,
    HeaderRead,
    IndexRead,
    ObjectVerified,
    StreamingDecoder,
    WalCorrupt,
    decode,
    encode,
)

V1 = Path(__file__).parents[3] / "fixtures" / "wal" / "v1.wo"


def streamed(data: bytes, cuts: list[int], size: int | None = None) -> list[Event]:
    decoder = StreamingDecoder("object", len(data) if size is None else size)
    events: list[Event] = []
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        events += decoder.feed(data[start:end])
    decoder.finish()
    return events


def expected_events(data: bytes) -> list[Event]:
    whole = decode(data, "object")
    return [
        HeaderRead(whole.header),
        IndexRead([chunk.entry for chunk in whole.chunks]),
        *(
            BatchRead(chunk.entry, number, batch)
            for chunk in whole.chunks
            for number, batch in enumerate(chunk.batches)
        ),
        ObjectVerified(),
    ]


@given(chunk_lists(), st.lists(st.integers(0, 1000)))
def test_any_cuts_give_the_same_events(chunks: list[Chunk], cuts: list[int]) -> None:
    data = joined(encode(WAL_ID, 1, CREATED_MS, chunks))
    assert streamed(data, cuts) == expected_events(data)


def test_byte_by_byte() -> None:
    data = V1.read_bytes()
    assert streamed(data, list(range(len(data)))) == expected_events(data)


def test_a_batch_in_one_piece_is_not_copied() -> None:
    data = V1.read_bytes()
    (batch, *_) = [event for event in streamed(data, []) if isinstance(event, BatchRead)]
    assert batch.data.obj is data


def test_only_one_batch_is_held() -> None:
    data = joined(encode(WAL_ID, 1, 0, _large_chunks()))
    decoder = StreamingDecoder("object", len(data))
    for start in range(0, len(data), 1000):
        decoder.feed(data[start : start + 1000])
        assert len(decoder._unfinished) < 5_000
    decoder.finish()


def _large_chunks() -> list[Chunk]:
    return [Chunk(stream, [ChunkBatch(b"x" * 4_000, 1, 0, 0)] * 20) for stream in range(5)]


def test_verified_comes_last_and_only_if_true() -> None:
    data = bytearray(V1.read_bytes())
    data[300] ^= 1
    decoder = StreamingDecoder("the/path.wo", len(data))
    events = decoder.feed(data[:-1])
    assert not any(isinstance(event, ObjectVerified) for event in events)
    with pytest.raises(WalCorrupt, match=r"the/path\.wo: its CRC32C is"):
        decoder.feed(data[-1:])


def test_no_byte_can_change_unseen() -> None:
    data = V1.read_bytes()
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 0x55
        with pytest.raises(WalCorrupt):
            streamed(bytes(changed), [100, 200])


def test_a_cut_object_is_seen() -> None:
    data = V1.read_bytes()
    for length in range(len(data)):
        with pytest.raises(WalCorrupt, match="cut short"):
            streamed(data[:length], [], size=len(data))


def test_bytes_after_the_end_are_seen() -> None:
    data = V1.read_bytes()
    with pytest.raises(WalCorrupt, match="1 bytes follow its footer"):
        streamed(data + b"x", [], size=len(data))


def test_an_index_larger_than_the_object_is_not_waited_for() -> None:
    data = bytearray(V1.read_bytes())
    data[37:41] = b"\xff\xff\xff\xff"
    with pytest.raises(WalCorrupt, match="4294967295 chunks cannot be in"):
        StreamingDecoder("object", len(data)).feed(data[:49])
