"""A WAL object reads back as it was written, and not at all once a byte of it changed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.wal.samples import CREATED_MS, FIXTURE, FIXTURE_DOMAIN, WAL_ID, chunk_lists, joined

from dray.kafka.records import crc32c
from dray.log.wal import (
    Chunk,
    ChunkBatch,
    WalCorrupt,
    WalNewer,
    WalObject,
    decode,
    decode_chunk,
    decode_chunk_index,
    decode_header,
    encode,
)

V1 = Path(__file__).parents[3] / "fixtures" / "wal" / "v1.wo"


def sealed(data: bytes | bytearray) -> bytes:
    """The object with a footer that fits it again."""
    body = bytes(data[:-4])
    return body + struct.pack(">I", crc32c(body, 0))


def check_holds(found: WalObject, chunks: list[Chunk]) -> None:
    assert [chunk.entry.stream_id for chunk in found.chunks] == sorted(chunk.stream_id for chunk in chunks)
    by_stream = {chunk.stream_id: chunk for chunk in chunks}
    for chunk in found.chunks:
        written = by_stream[chunk.entry.stream_id].batches
        assert [bytes(batch) for batch in chunk.batches] == [bytes(batch.data) for batch in written]
        assert chunk.entry.batch_count == len(written)
        assert chunk.entry.record_count == sum(batch.record_count for batch in written)
        assert chunk.entry.min_timestamp == min(batch.min_timestamp for batch in written)
        assert chunk.entry.max_timestamp == max(batch.max_timestamp for batch in written)


@given(st.uuids(), st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1), chunk_lists())
def test_round_trip(wal_id: UUID, domain: int, created_ms: int, chunks: list[Chunk]) -> None:
    encoded = encode(wal_id, domain, created_ms, chunks)
    data = joined(encoded)
    assert encoded.size == len(data)
    found = decode(data, "object")
    assert (found.header.wal_id, found.header.domain) == (wal_id, domain)
    assert found.header.created_ms == created_ms
    check_holds(found, chunks)


@given(chunk_lists())
def test_placements_say_where_the_batches_are(chunks: list[Chunk]) -> None:
    encoded = encode(WAL_ID, 1, CREATED_MS, chunks)
    data = joined(encoded)
    assert encoded.placements.keys() == {chunk.stream_id for chunk in chunks}
    for chunk in chunks:
        placement = encoded.placements[chunk.stream_id]
        assert len(placement.batch_positions) == len(chunk.batches)
        body = data[placement.offset : placement.offset + placement.length]
        for batch, position in zip(chunk.batches, placement.batch_positions, strict=True):
            assert body[position : position + len(batch.data)] == bytes(batch.data)
            assert struct.unpack_from(">I", body, position - 4) == (len(batch.data),)


@given(chunk_lists())
def test_a_reader_of_ranges_sees_the_same(chunks: list[Chunk]) -> None:
    data = joined(encode(WAL_ID, 1, CREATED_MS, chunks))
    whole = decode(data, "object")
    header = decode_header(data[:49], "object", len(data))
    assert header == whole.header
    index = data[header.chunk_index_offset : header.chunk_index_offset + header.chunk_index_length]
    entries = decode_chunk_index(index, header, "object", len(data))
    assert entries == [chunk.entry for chunk in whole.chunks]
    for entry, chunk in zip(entries, whole.chunks, strict=True):
        body = data[entry.offset : entry.offset + entry.length]
        assert decode_chunk(body, entry, "object") == chunk.batches


def test_batches_are_written_without_being_copied() -> None:
    batches = [bytearray(b"some batch"), bytearray(b"another")]
    encoded = encode(WAL_ID, 1, 0, [Chunk(1, [ChunkBatch(batch, 1, 0, 0) for batch in batches])])
    assert [part for part in encoded.parts if isinstance(part, bytearray)] == batches
    assert all(any(part is batch for part in encoded.parts) for batch in batches)


def test_the_layout_is_the_specified_one() -> None:
    data = joined(encode(WAL_ID, 5, CREATED_MS, [Chunk(9, [ChunkBatch(b"batch", 2, 10, 20)])]))
    assert data[:7] == b"DRAYWO1"
    assert data[7:49] == struct.pack(">H16sIqIQ", 1, WAL_ID.bytes, 5, CREATED_MS, 1, 49)
    assert data[49:93] == struct.pack(">QQIIIqq", 9, 93, 9, 2, 1, 10, 20)
    assert data[93:102] == b"\x00\x00\x00\x05batch"
    assert data[102:] == struct.pack(">I", crc32c(data[:102], 0))


def test_version_1_stays_readable() -> None:
    data = V1.read_bytes()
    found = decode(data, "v1")
    assert (found.header.wal_id, found.header.domain) == (WAL_ID, FIXTURE_DOMAIN)
    assert found.header.created_ms == CREATED_MS
    check_holds(found, FIXTURE)


def test_version_1_is_still_what_is_written() -> None:
    assert joined(encode(WAL_ID, FIXTURE_DOMAIN, CREATED_MS, FIXTURE)) == V1.read_bytes()


@pytest.mark.parametrize(
    ("chunks", "why"),
    [
        ([], "at least one chunk"),
        ([Chunk(1, [])], "stream 1 has no batches"),
        ([Chunk(1, [ChunkBatch(b"", 1, 0, 0)])], "stream 1 has an empty batch"),
        ([Chunk(1, [ChunkBatch(b"a", 1, 0, 0)])] * 2, "stream 1 has two chunks"),
        ([Chunk(1, [ChunkBatch(b"a", 1, 5, 4)])], "stream 1 ends in time before it begins"),
    ],
)
def test_what_makes_no_object_is_not_written(chunks: list[Chunk], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode(WAL_ID, 1, 0, chunks)


def test_a_chunk_too_large_for_its_length_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dray.log.wal.encoder.LARGEST_U32", 20)
    with pytest.raises(ValueError, match="more than fit"):
        encode(WAL_ID, 1, 0, [Chunk(1, [ChunkBatch(b"a" * 8, 1, 0, 0)] * 2)])


def test_no_byte_can_change_unseen() -> None:
    data = V1.read_bytes()
    for position in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] ^= flip
            with pytest.raises(WalCorrupt, match=r"WAL object the/path\.wo: "):
                decode(changed, "the/path.wo")


def test_no_byte_can_be_lost_or_added_unseen() -> None:
    data = V1.read_bytes()
    for length in range(len(data)):
        with pytest.raises(WalCorrupt):
            decode(data[:length], "cut")
        with pytest.raises(WalCorrupt):
            decode(data[:length] + data[length + 1 :], "one less")
    with pytest.raises(WalCorrupt):
        decode(data + b"\0", "one more")


def test_a_newer_version_is_refused_in_a_clear_line() -> None:
    data = bytearray(V1.read_bytes())
    struct.pack_into(">H", data, 7, 2)
    with pytest.raises(WalNewer, match="WAL object later: has format version 2; this Dray reads up to 1"):
        decode(sealed(data), "later")


def put(form: str, position: int, *values: int) -> Callable[[bytearray], None]:
    return lambda data: struct.pack_into(form, data, position, *values)


# The fixture's index starts at 49: streams 0 (one batch of 256), 7 (27 and 80 bytes) and 2**64-1.
ENTRY = [49, 93, 137]
BODIES = 181
LIES = {
    "never was": put(">H", 7, 0),
    "starts with": put(">B", 0, 0),
    "chunk index offset is 50": put(">Q", 41, 50),
    "0 chunks cannot": put(">I", 37, 0),
    "4294967295 chunks cannot": put(">I", 37, 2**32 - 1),
    "starts at": put(">I", 37, 2),
    "stream 0 follows stream 0": put(">Q", ENTRY[1], 0),
    "stream 6 follows stream 7": put(">Q", ENTRY[2], 6),
    "stream 7 starts at 442": put(">Q", ENTRY[1] + 8, 442),
    "stream 0 reaches past the end": put(">I", ENTRY[0] + 16, 2**32 - 1),
    "stream 7 starts at 441, not 440": put(">I", ENTRY[0] + 16, 259),
    "stream 18446744073709551615 reaches past": put(">I", ENTRY[2] + 16, 6),
    "0 batches cannot be in 260 bytes": put(">I", ENTRY[0] + 24, 0),
    "4294967295 batches cannot be in 260": put(">I", ENTRY[0] + 24, 2**32 - 1),
    "stream 0 has 1 batches, not 2": put(">I", ENTRY[0] + 24, 2),
    "stream 7 has 2 batches, not 1": put(">I", ENTRY[1] + 24, 1),
    "stream 7 ends in time before": put(">qq", ENTRY[1] + 28, 5, 4),
    "stream 0: a batch does not end": put(">I", BODIES, 255),
    "0: a batch does not end where": put(">I", BODIES, 2**32 - 1),
    "a batch does not end where its chunk does": put(">I", BODIES, 0),
}


@pytest.mark.parametrize("what", LIES)
def test_a_lie_under_a_good_checksum_is_seen(what: str) -> None:
    data = bytearray(V1.read_bytes())
    LIES[what](data)
    with pytest.raises(WalCorrupt, match=what):
        decode(sealed(data), "liar")


def test_bytes_between_the_last_chunk_and_the_footer_are_seen() -> None:
    data = V1.read_bytes()
    with pytest.raises(WalCorrupt, match="its chunks end at"):
        decode(sealed(data[:-4] + b"more" + data[-4:]), "long")


def test_a_range_that_is_not_the_chunk_is_seen() -> None:
    data = V1.read_bytes()
    header = decode_header(data, "object", len(data))
    entries = decode_chunk_index(data[49:181], header, "object", len(data))
    with pytest.raises(WalCorrupt, match="chunk index has 44 bytes, not 132"):
        decode_chunk_index(data[49:93], header, "object", len(data))
    with pytest.raises(WalCorrupt, match="the chunk of stream 0 has 259 bytes, not 260"):
        decode_chunk(data[181:440], entries[0], "object")
