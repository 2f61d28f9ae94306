"""The codecs in Kafka's framings, and their bounds."""

import gzip
import os
import struct
import tracemalloc
import zlib

import cramjam
import pytest

from dray.kafka.records import Codec, RecordError, RecordFault
from dray.kafka.records.compression import compress, decompress

PLAIN = b"".join(b"some words, and the number %d; " % n for n in range(9000))
NOISE = os.urandom(200_000)
COMPRESSED = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
LIMIT = 1 << 20


def refusal(codec, data, limit=LIMIT) -> RecordError:
    with pytest.raises(RecordError) as caught:
        decompress(codec, data, limit)
    return caught.value


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", PLAIN, NOISE], ids=["nothing", "little", "words", "noise"])
def test_there_and_back(codec, data):
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed), LIMIT) == data


@COMPRESSED
@pytest.mark.parametrize("data", [PLAIN, NOISE, bytes(500_000)], ids=["words", "noise", "zeros"])
def test_exactly_the_limit_and_one_byte_less(codec, data):
    """Also holds cramjam to the message by which a full buffer is told from bad data."""
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert refusal(codec, packed, len(data) - 1).fault is RecordFault.TOO_LARGE
    assert refusal(codec, packed, 0).fault is RecordFault.TOO_LARGE


@COMPRESSED
def test_data_that_shrinks_far_more_than_most(codec):
    data = bytes(5_000_000)
    assert decompress(codec, compress(codec, data), 1 << 31) == data


@COMPRESSED
def test_cut_off_anywhere(codec):
    packed = bytes(compress(codec, PLAIN))
    for size in (0, 1, 5, 15, 17, 19, 20, 100, len(packed) // 2, len(packed) - 1):
        error = refusal(codec, packed[:size])
        assert error.fault is RecordFault.INVALID_RECORD, size


@COMPRESSED
def test_a_bomb_costs_no_more_than_its_limit(codec):
    bomb = compress(codec, bytes(30_000_000))
    tracemalloc.start()
    try:
        assert refusal(codec, bomb, 100_000).fault is RecordFault.TOO_LARGE
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_unknown_codec():
    assert refusal(5, b"x").fault is RecordFault.UNSUPPORTED_COMPRESSION
    with pytest.raises(ValueError):
        compress(5, b"x")
    with pytest.raises(ValueError, match="snappy has no level 3"):
        compress(Codec.SNAPPY, b"x", 3)


def test_nothing_to_decompress_is_bounded_too():
    assert refusal(Codec.NONE, b"123", 2).fault is RecordFault.TOO_LARGE


def test_gzip_of_several_members():
    assert decompress(Codec.GZIP, gzip.compress(PLAIN) + gzip.compress(NOISE), LIMIT) == PLAIN + NOISE
    assert refusal(Codec.GZIP, gzip.compress(PLAIN) + b"trailing").fault is RecordFault.INVALID_RECORD


def test_gzip_is_gzip_and_not_zlib():
    assert refusal(Codec.GZIP, zlib.compress(PLAIN)).fault is RecordFault.INVALID_RECORD
    assert gzip.decompress(compress(Codec.GZIP, PLAIN)) == PLAIN


def test_gzip_checksum_counts():
    packed = bytearray(gzip.compress(PLAIN))
    packed[-6] ^= 1
    assert refusal(Codec.GZIP, packed).fault is RecordFault.INVALID_RECORD


def xerial(*blocks: bytes, version: int = 1) -> bytes:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", version, 1)
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def test_snappy_as_one_raw_block():
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN)), LIMIT) == PLAIN


def test_snappy_in_blocks_as_java_writes_them():
    packed = bytes(compress(Codec.SNAPPY, PLAIN))
    assert packed[:16] == xerial()
    (length,) = struct.unpack_from(">i", packed, 16)
    assert cramjam.snappy.decompress_raw(packed[20 : 20 + length]).read() == PLAIN[: 32 * 1024]


def test_snappy_blocks_are_bounded_together():
    block = bytes(cramjam.snappy.compress_raw(bytes(1000)))
    assert len(decompress(Codec.SNAPPY, xerial(block, block, block), 3000)) == 3000
    assert refusal(Codec.SNAPPY, xerial(block, block, block), 2999).fault is RecordFault.TOO_LARGE


def test_snappy_that_claims_to_be_huge():
    assert refusal(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"x").fault is RecordFault.TOO_LARGE


@pytest.mark.parametrize(
    "data",
    [
        xerial(version=0) + b"....",
        xerial() + b"\0",
        xerial() + struct.pack(">i", 0),
        xerial() + struct.pack(">i", -1),
        xerial() + struct.pack(">i", 5) + b"1234",
        xerial(b"no snappy at all"),
        b"\x05",
    ],
)
def test_bad_snappy(data):
    assert refusal(Codec.SNAPPY, data).fault is RecordFault.INVALID_RECORD


def lz4_frame(data: bytes, **options: bool) -> bytes:
    compressor = cramjam.lz4.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


def test_lz4_blocks_are_independent_and_the_size_is_not_declared():
    flags = bytes(compress(Codec.LZ4, PLAIN))[4]
    assert flags >> 6 == 1
    assert flags & 0b10_0000
    assert not flags & 0b1000


@pytest.mark.parametrize("checksum", [True, False])
def test_lz4_with_and_without_content_checksum(checksum):
    frame = lz4_frame(PLAIN, block_linked=False, content_checksum=checksum)
    assert decompress(Codec.LZ4, frame, LIMIT) == PLAIN


def test_lz4_with_stored_blocks_and_a_declared_size():
    """Written by hand: two stored blocks, no checksums; the header's own check is what xxh32 gives."""
    header = bytes.fromhex("04224d18") + bytes([0b0110_1000, 0b0100_0000]) + struct.pack("<Q", 6)
    block = struct.pack("<I", 0x8000_0003)
    for check in range(256):
        frame = header + bytes([check]) + block + b"abc" + block + b"def" + bytes(4)
        try:
            assert decompress(Codec.LZ4, frame, LIMIT) == b"abcdef"
            return
        except RecordError:
            continue
    pytest.fail("no header check was accepted")


def test_lz4_that_java_clients_do_not_read():
    linked = lz4_frame(PLAIN, block_linked=True, content_checksum=False)
    frame = lz4_frame(PLAIN, block_linked=False, content_checksum=False)
    skippable = struct.pack("<II", 0x184D2A50, 3) + b"xyz"
    for bad in (linked, frame + frame, frame + skippable, skippable + frame, frame + b"\0"):
        assert refusal(Codec.LZ4, bad).fault is RecordFault.INVALID_RECORD


def zstd_frame_without_size(data: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor(3)
    compressor.compress(data)
    return bytes(compressor.finish())


def test_zstd_without_a_declared_size_and_in_several_frames():
    frame = zstd_frame_without_size(PLAIN)
    assert frame[4] & 0b1110_0000 == 0  # neither a content size nor a single segment
    assert decompress(Codec.ZSTD, frame, LIMIT) == PLAIN
    assert decompress(Codec.ZSTD, frame + bytes(compress(Codec.ZSTD, NOISE)), LIMIT) == PLAIN + NOISE
    assert refusal(Codec.ZSTD, frame, len(PLAIN) - 1).fault is RecordFault.TOO_LARGE


def test_zstd_that_declares_a_lie():
    """A single segment of 2^60 bytes: nothing is allocated for what is only claimed."""
    frame = bytes.fromhex("28b52ffd") + bytes([0b1110_0000]) + struct.pack("<Q", 1 << 60) + b"\x01\0\0"
    assert refusal(Codec.ZSTD, frame).fault is RecordFault.INVALID_RECORD
