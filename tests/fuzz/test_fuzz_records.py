"""The compiled core against its twin: the same facts, or the same fault, whatever the bytes."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.kafka.records import (
    Codec,
    RecordError,
    RecordFault,
    decode,
    decode_keys,
    decode_stored,
    find_timestamp,
    read_header,
    twin,
    unfolds_at_once,
    unfolds_to,
    validate,
)
from dray.kafka.records.columns import Record

LIMITS = {"max_batch_bytes": 4096, "max_decompressed_bytes": 8192}

timestamps = st.one_of(st.integers(0, 2**42), st.integers(-(2**61), 2**61))
payloads = st.none() | st.binary(max_size=40) | st.integers(0, 3000).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6)), max_size=3)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    rows = draw(st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=6))
    base = draw(st.integers(0, 2**62))
    return twin.encode(
        [Record(base + index, *row) for index, row in enumerate(rows)],
        codec=draw(st.sampled_from(Codec)),
        attributes=draw(st.sampled_from([0, 0, 0, 8, 16, 32, 64, 128])),
        producer_id=draw(st.sampled_from([-1, -1, 0, 5, -2])),
        producer_epoch=draw(st.sampled_from([-1, 0, 3])),
        base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 1])),
    )


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A batch with some bytes changed, left out or put in, mostly with its length and checksum right
    again: else nothing past the checksum would ever be reached."""
    batch = draw(batches())
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(batch) - 1) | st.integers(max(0, len(batch) - 40), len(batch) - 1))
        match draw(st.sampled_from(["set", "flip", "cut", "insert", "number"])):
            case "set":
                batch[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case "flip":
                batch[at] ^= 1 << draw(st.integers(0, 7))
            case "cut" if len(batch) > 70:
                del batch[at : at + draw(st.integers(1, 5))]
            case "insert":
                batch[at:at] = draw(st.binary(min_size=1, max_size=11))
            case "number" if len(batch) >= 61:
                position = draw(st.sampled_from([8, 23, 27, 35, 43, 53, 57]))
                struct.pack_into(">i", batch, position, draw(st.integers(-(2**31), 2**31 - 1)))
    if len(batch) >= 61 and draw(st.integers(0, 9)):
        batch[16] = 2
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, twin.crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def outcome(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except RecordError as error:
        return error.fault


def agree(data: bytes) -> None:
    facts = outcome(validate, data, **LIMITS)
    assert facts == outcome(twin.validate, data, **LIMITS)
    assert unfolds_to(data) == twin.unfolds_to(data)
    assert unfolds_at_once(data) in (unfolds_to(data), -1)
    if isinstance(facts, RecordFault):
        for function in (decode_stored, decode_keys) if facts is not RecordFault.TOO_LARGE else ():
            assert isinstance(outcome(function, [data], [0]), RecordFault)
        return
    rows = [record for _, records in twin.decode(data) for record in records]
    assert list(decode(data).records()) == rows
    parts = [data[batch.position : batch.position + batch.length] for batch in facts]
    stored = parts, [read_header(part).base_offset for part in parts]
    assert list(decode_stored(*stored).records()) == rows
    count, _, keys = decode_keys(*stored)
    assert list(keys.values(count)) == [row.key for row in rows]
    for batch, part in zip(facts, parts, strict=True):
        for timestamp in (batch.min_timestamp, batch.max_timestamp, 0):
            assert find_timestamp(part, timestamp) == twin.find_timestamp(part, timestamp)


@given(st.lists(batches(), max_size=3))
@settings(max_examples=150, deadline=None)
def test_good_batches(parts):
    agree(bytes(bytearray().join(parts)))


@given(damaged_batches())
@settings(max_examples=600, deadline=None)
def test_damaged_batches(data):
    agree(data)


@given(batches(), damaged_batches())
@settings(max_examples=100, deadline=None)
def test_a_damaged_batch_after_a_good_one(good, bad):
    agree(bytes(good) + bad)


@given(st.binary(max_size=300))
@example(b"")
@settings(max_examples=200, deadline=None)
def test_any_bytes(data):
    agree(data)


@given(st.binary(max_size=200), st.integers(1, 20))
@settings(max_examples=300, deadline=None)
def test_any_bytes_as_records(section, count):
    """Past a header that is right in everything, anything."""
    batch = twin.encode([Record(0, 5)])[:61] + section
    struct.pack_into(">ii", batch, 8, len(batch) - 12, 0)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, twin.crc32c(batch[21:]))
    agree(bytes(batch))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_bytes_as_compressed_records(codec, data):
    openings = {
        Codec.GZIP: b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
        Codec.SNAPPY: b"\x82SNAPPY\0\0\0\0\1\0\0\0\1",
        Codec.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
        Codec.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    batch = twin.encode([Record(0, 5)], attributes=codec)[:61]
    batch += data.draw(st.sampled_from([b"", openings[codec]])) + data.draw(st.binary(max_size=200))
    struct.pack_into(">ii", batch, 8, len(batch) - 12, 0)
    struct.pack_into(">I", batch, 17, twin.crc32c(batch[21:]))
    agree(bytes(batch))
