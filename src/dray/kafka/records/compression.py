"""Kafka's five codecs in Kafka's framings, never decompressing past a limit.

Whoever sends a batch chooses how far it expands, so output goes into a buffer of bounded size and what
does not fit is refused. Such a buffer is not zero-filled: the part that is not written costs no memory.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Protocol

import cramjam

from dray.kafka.records._core import uninitialised
from dray.kafka.records.faults import RecordError, RecordFault
from dray.kafka.records.header import Buffer


class Codec(IntEnum):
    """As in the low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
_LENGTH = struct.Struct(">i")
# No snappy element stands for more than 64 bytes, and those that do take three: a block that says more than
# this of each of its bytes lies, and no room is made for it.
_SNAPPY_MOST = 32

_LZ4_MAGIC = 0x184D2204
_LZ4_FLAGS_FIXED = 0b1110_0011  # version, independent blocks, reserved, dictionary
_LZ4_FLAGS_EXPECTED = 0b0110_0000
_LZ4_BLOCK_CHECKSUM = 0b0001_0000
_LZ4_CONTENT_SIZE = 0b0000_1000
_LZ4_CONTENT_CHECKSUM = 0b0000_0100
_LZ4_STORED = 0x8000_0000
_LITTLE = struct.Struct("<I")

_DEFAULT_LEVELS = {Codec.GZIP: 6, Codec.LZ4: 1, Codec.ZSTD: 3}
_LEVELS = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-131072, 23)}

# How cramjam says that its output buffer is full. A test holds it to that for every codec.
_OUTPUT_FULL = "failed to write whole buffer"


class _Module(Protocol):
    def decompress_into(self, input: Buffer, output: bytearray, /) -> int: ...


def decompress(codec: int, data: Buffer, limit: int) -> Buffer:
    """The records section of a batch as it was before compression, at most `limit` bytes of it."""
    match codec:
        case Codec.NONE:
            if len(data) > limit:
                raise _too_large(limit)
            return data
        case Codec.GZIP:
            return _decompress_frames(cramjam.gzip, data, limit)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), limit)
        case Codec.LZ4:
            _check_lz4_frame(memoryview(data))
            return _decompress_frames(cramjam.lz4, data, limit)
        case Codec.ZSTD:
            return _decompress_frames(cramjam.zstd, data, limit)
    raise RecordError(RecordFault.UNSUPPORTED_COMPRESSION, f"codec {codec} is unknown")


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """The opposite, framed as the Java client frames it."""
    if level is None:
        level = _DEFAULT_LEVELS.get(Codec(codec))
    elif codec not in _LEVELS or level not in _LEVELS[Codec(codec)]:
        raise ValueError(f"codec {Codec(codec).name.lower()} has no level {level}")
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return memoryview(cramjam.gzip.compress(data, level=level))
        case Codec.SNAPPY:
            return _compress_snappy(memoryview(data))
        case Codec.LZ4:
            # Java reads no blocks that depend on the ones before them.
            compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))  # which takes nothing but bytes
            return memoryview(compressor.finish())
        case _:
            return memoryview(cramjam.zstd.compress(data, level=level))


def _too_large(limit: int) -> RecordError:
    return RecordError(RecordFault.TOO_LARGE, f"it decompresses to more than the {limit} bytes allowed")


def _invalid(what: str) -> RecordError:
    return RecordError(RecordFault.INVALID_RECORD, what)


def _decompress_frames(module: _Module, data: Buffer, limit: int) -> Buffer:
    """Few batches shrink to less than a sixteenth: those are tried again with more room."""
    size = min(limit, max(64 * 1024, 16 * len(data)))
    while True:
        output = uninitialised(size)
        try:
            written = module.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise _invalid(f"it does not decompress: {error}") from error
            if size == limit:
                raise _too_large(limit) from error
            size = min(limit, 16 * size)
        else:
            return memoryview(output)[:written]


def _decompress_snappy(data: memoryview, limit: int) -> Buffer:
    """Both framings are about: Java's xerial blocks, and one raw block from librdkafka."""
    if data[:8] == _XERIAL_MAGIC:
        blocks = _xerial_blocks(data)
    else:
        blocks = [data]
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        if sum(sizes) > limit:
            raise _too_large(limit)
        if sum(sizes) > _SNAPPY_MOST * len(data):
            raise _invalid("its snappy blocks say that they hold more than they can")
        output = memoryview(uninitialised(sum(sizes)))
        end = 0
        for block, size in zip(blocks, sizes, strict=True):
            end += cramjam.snappy.decompress_raw_into(block, output[end : end + size])
    except cramjam.DecompressionError as error:
        raise _invalid(f"it does not decompress: {error}") from error
    return output[:end]


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    if len(data) < len(_XERIAL_HEADER) or _LENGTH.unpack_from(data, 8)[0] < 1:
        raise _invalid("its snappy header is cut off or of an unknown version")
    blocks = []
    at = len(_XERIAL_HEADER)
    while at < len(data):
        if len(data) - at < 4:
            raise _invalid("a snappy block is cut off")
        (length,) = _LENGTH.unpack_from(data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise _invalid("the length of a snappy block does not fit")
        blocks.append(data[at : at + length])
        at += length
    return blocks


def _compress_snappy(data: memoryview) -> Buffer:
    output = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK):
        block = memoryview(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK]))
        output += _LENGTH.pack(len(block))
        output += block
    return output


def _check_lz4_frame(data: memoryview) -> None:
    """One frame of independent blocks and nothing after it: more than that Java clients do not read."""
    if len(data) < 7 or _LITTLE.unpack_from(data, 0)[0] != _LZ4_MAGIC:
        raise _invalid("it is no lz4 frame")
    flags = data[4]
    if flags & _LZ4_FLAGS_FIXED != _LZ4_FLAGS_EXPECTED:
        raise _invalid("its lz4 frame has dependent blocks, a dictionary or an unknown version")
    at = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    extra = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while at + 4 <= len(data):
        (size,) = _LITTLE.unpack_from(data, at)
        at += 4
        if size == 0:
            at += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
            if at != len(data):
                raise _invalid("its lz4 frame is cut off, or bytes are left over after it")
            return
        at += (size & ~_LZ4_STORED) + extra
    raise _invalid("its lz4 frame is cut off")
