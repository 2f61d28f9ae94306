"""Bytes from anywhere: the WAL decoders refuse them by name or read them, and nothing else happens."""

from __future__ import annotations

import struct
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.kafka.records import crc32c
from dray.log.wal import StreamingDecoder, WalCorrupt, WalObject, decode, parse_object_path

V1 = (Path(__file__).parents[1] / "fixtures" / "wal" / "v1.wo").read_bytes()
HEADER = struct.Struct(">7sH16sIqIQ")


def whole(data: bytes) -> WalObject | None:
    try:
        return decode(data, "fuzz")
    except WalCorrupt as error:
        if error.name != "fuzz":
            raise
        return None


def streamed(data: bytes, piece: int) -> bool:
    decoder = StreamingDecoder("fuzz", len(data))
    try:
        for start in range(0, len(data), piece):
            decoder.feed(data[start : start + piece])
        decoder.finish()
    except WalCorrupt:
        return False
    return True


def check(data: bytes, piece: int) -> None:
    """Both decoders agree, and what they read accounts for every byte."""
    found = whole(data)
    assert streamed(data, piece) == (found is not None)
    if found is not None:
        batches = sum(4 + len(batch) for chunk in found.chunks for batch in chunk.batches)
        assert 49 + 44 * len(found.chunks) + batches + 4 == len(data)


def sealed(body: bytes) -> bytes:
    return body + struct.pack(">I", crc32c(body, 0))


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(1, 100))
@example(b"", 1)
def test_any_bytes(data: bytes, piece: int) -> None:
    check(data, piece)


@settings(max_examples=300)
@given(
    st.integers(0, 3) | st.integers(0, 2**32 - 1),
    st.sampled_from((49, 0, 2**63)) | st.integers(0, 2**64 - 1),
    st.binary(max_size=400),
    st.integers(1, 100),
)
def test_any_bytes_after_a_header_under_a_good_checksum(
    chunk_count: int, index_offset: int, rest: bytes, piece: int
) -> None:
    header = HEADER.pack(b"DRAYWO1", 1, bytes(16), 0, 0, chunk_count, index_offset)
    check(sealed(header + rest), piece)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(0, len(V1) - 5), st.binary(min_size=1, max_size=8)), max_size=4),
    st.integers(0, len(V1)),
    st.booleans(),
    st.integers(1, 100),
)
def test_a_good_object_overwritten_here_and_there(
    changes: list[tuple[int, bytes]], length: int, cut: bool, piece: int
) -> None:
    data = bytearray(V1)
    for position, new in changes:
        data[position : position + len(new)] = new
    body = bytes(data[:length] if cut else data[:-4])
    check(sealed(body), piece)


@given(st.text(max_size=120))
def test_any_path(path: str) -> None:
    parse_object_path(path)
