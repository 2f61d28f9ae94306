"""Frames that lie about what they unfold to: read alike by the core and its twin, and never past a limit."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import cramjam
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.kafka.records import Codec, RecordError, crc32c, twin, unfolds_to, validate
from dray.kafka.records.columns import Record
from dray.kafka.records.compression import compress, decompress

MOST = 1 << 20
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def batch_of(codec: int, frames: bytes, count: int = 1) -> bytes:
    """A header and a checksum that are right, whatever the frames are."""
    batch = twin.encode([Record(0, 5)])[:61] + frames
    struct.pack_into(">ii", batch, 8, len(batch) - 12, 0)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return bytes(batch)


def section_of(size: int) -> bytes:
    return bytes(twin.encode([Record(0, 5, value=bytes(size))])[61:])


def streamed(section: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(section)
    return bytes(compressor.finish())


def raw_snappy(section: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(section))


@st.composite
def honest(draw: st.DrawFn) -> tuple[int, bytes]:
    """Frames as clients make them."""
    codec = draw(st.sampled_from(COMPRESSED))
    section = section_of(draw(st.integers(0, 1000) | st.integers(0, 400_000)))
    if codec == Codec.ZSTD and draw(st.booleans()):
        return codec, streamed(section)
    if codec == Codec.SNAPPY and draw(st.booleans()):
        return codec, raw_snappy(section)
    return codec, bytes(compress(codec, section))


@st.composite
def hostile(draw: st.DrawFn) -> tuple[int, bytes]:
    """Several frames of one codec, or of two, with numbers put where lengths are."""
    codec, frames = draw(honest())
    made = bytearray(frames)
    if draw(st.booleans()):
        made += draw(honest())[1]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, min(24, len(made) - 1)) | st.integers(max(0, len(made) - 8), len(made) - 1))
        number = draw(st.sampled_from([b"\0", b"\xff", b"\0\0\0\0", b"\xff" * 4, b"\xff" * 8, b"\1"]))
        made[at : at + len(number)] = number
    if draw(st.booleans()):
        del made[draw(st.integers(0, len(made))) :]
    return codec, bytes(made)


@given(honest())
@settings(max_examples=150, deadline=None)
def test_honest_frames_fit_what_they_say(sent):
    batch = batch_of(*sent)
    said = unfolds_to(batch)
    assert said == twin.unfolds_to(batch)
    [facts] = validate(batch, max_batch_bytes=MOST, max_decompressed_bytes=said)
    assert facts.unfolded <= said <= facts.unfolded + 128 * 1024


@given(hostile())
@settings(max_examples=400, deadline=None)
def test_whatever_frames_say_nothing_goes_past_it(sent):
    batch = batch_of(*sent)
    said = unfolds_to(batch)
    assert said == twin.unfolds_to(batch) >= 1
    try:
        [facts] = validate(batch, max_batch_bytes=MOST, max_decompressed_bytes=min(said, MOST))
    except RecordError:
        return
    assert facts.unfolded <= said


@given(st.sampled_from(COMPRESSED), st.binary(max_size=120))
@settings(max_examples=300, deadline=None)
@example(Codec.ZSTD, b"\x28\xb5\x2f\xfd\xc0\xff" + b"\xff" * 8)
@example(Codec.ZSTD, b"\x50\x2a\x4d\x18\xff\xff\xff\xff")
@example(Codec.LZ4, b"\x04\x22\x4d\x18\x68\x70" + b"\xff" * 8)
@example(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f")
@example(Codec.SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xff")
def test_any_bytes_as_frames(codec, frames):
    batch = batch_of(codec, frames)
    assert unfolds_to(batch) == twin.unfolds_to(batch) >= 1


@pytest.mark.parametrize(
    ("codec", "frames"),
    [
        (Codec.GZIP, gzip.compress(bytes(100), mtime=0)[:-4] + b"\xff\xff\xff\xff"),
        (Codec.SNAPPY, b"\xff\xff\xff\x1f" + raw_snappy(bytes(100))[1:]),
        (Codec.LZ4, b"\x04\x22\x4d\x18\x68\x70" + b"\xff" * 7 + b"\x7f\x00" + b"\0\0\0\0"),
        (Codec.ZSTD, b"\x28\xb5\x2f\xfd\xc0\x90" + b"\xff" * 7 + b"\x7f" + b"\1\0\0"),
    ],
    ids=["gzip", "snappy", "lz4", "zstd"],  # two processes must collect the same names
)
def test_no_room_is_made_for_what_is_only_said(codec, frames):
    """Each says that it holds gigabytes, and a broker lets a batch grow to 128 MiB."""
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            decompress(codec, frames, 128 << 20)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
