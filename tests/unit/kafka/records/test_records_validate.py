"""Every rule of `validate`, on the compiled core and on its twin."""

import struct
from collections.abc import Callable
from typing import cast

import pytest

from dray.kafka.records import (
    Batch,
    Codec,
    Record,
    RecordError,
    RecordFault,
    find_timestamp,
    records_said,
    twin,
    unfolds_at_once,
    unfolds_to,
    validate,
)
from dray.kafka.records._core import HEADER_SIZE
from dray.kafka.records.twin import encode_varint

LIMITS = {"max_batch_bytes": 1 << 20, "max_decompressed_bytes": 1 << 22}
START = 1_700_000_000_000
CODECS = pytest.mark.parametrize("codec", list(Codec))


@pytest.fixture(params=[validate, twin.validate], ids=["core", "twin"])
def check(request: pytest.FixtureRequest) -> Callable[..., list[Batch]]:
    def check(buffer, **limits):
        return request.param(buffer, **(LIMITS | limits))

    return check


def records(count: int = 3) -> list[Record]:
    return [Record(n, START + n, b"key-%d" % n, b"value-%d" % n, [("name", b"x")]) for n in range(count)]


def seal(batch: bytearray) -> bytearray:
    """Length and checksum made right again after a change."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, twin.crc32c(batch[21:]))
    return batch


def with_section(section: bytes, count: int = 1, base_timestamp: int = START) -> bytearray:
    """A batch whose records section is exactly `section`."""
    batch = twin.encode([Record(0, base_timestamp)])[:61] + section
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    return seal(bytearray(batch))


def framed(body: bytes) -> bytes:
    return encode_varint(len(body)) + body


def body(
    *,
    timestamp: bytes = b"\0",
    offset: bytes = b"\0",
    key: bytes = b"\1",
    value: bytes = b"\1",
    headers: bytes = b"\0",
) -> bytes:
    return b"\0" + timestamp + offset + key + value + headers


def fault_of(check, batch, **limits) -> RecordFault:
    with pytest.raises(RecordError) as caught:
        check(batch, **limits)
    assert "batch at byte" in str(caught.value)
    return caught.value.fault


@CODECS
def test_facts_of_a_good_batch(check, codec):
    rows = [Record(0, START + 5), Record(1, START + 9), Record(2, START + 9), Record(3, START - 4)]
    batch = twin.encode(
        rows,
        codec=codec,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
    )
    [facts] = check(batch)
    assert facts == Batch(
        position=0,
        length=len(batch),
        record_count=4,
        attributes=codec,
        min_timestamp=START - 4,
        max_timestamp=START + 9,
        max_timestamp_delta=1,
        producer_id=7,
        producer_epoch=2,
        base_sequence=11,
        unfolded=len(twin.encode(rows)) - HEADER_SIZE,
    )
    assert facts.codec == codec


def test_many_batches_and_none(check):
    first, second = twin.encode(records(2)), twin.encode(records(5), codec=Codec.ZSTD)
    facts = check(bytes(first + second))
    assert [(batch.position, batch.length, batch.record_count) for batch in facts] == [
        (0, len(first), 2),
        (len(first), len(second), 5),
    ]
    assert check(b"") == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_kind_of_buffer(check, kind):
    padded = b"..." + bytes(twin.encode(records(), codec=Codec.LZ4))
    assert check(kind(padded)[3:])[0].record_count == 3


def test_log_append_time_is_that_of_the_header(check):
    batch = twin.encode(records(), attributes=0x08)
    struct.pack_into(">q", batch, 35, 42)
    [facts] = check(seal(batch))
    assert (facts.min_timestamp, facts.max_timestamp, facts.max_timestamp_delta) == (42, 42, 0)


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 61, -1])
def test_cut_off(check, size):
    """What is not all there is no passing damage: the client would send the same for ever."""
    batch = twin.encode(records())
    assert fault_of(check, batch[:size]) is RecordFault.INVALID_RECORD
    assert fault_of(check, batch + batch[:size]) is RecordFault.INVALID_RECORD


@pytest.mark.parametrize(
    ("length", "fault"),
    [
        *((length, RecordFault.CORRUPT) for length in (-(2**31), -13, -1, 0, 48)),
        (2**31 - 1, RecordFault.INVALID_RECORD),
    ],
)
def test_length_that_cannot_be(check, length, fault):
    batch = twin.encode(records())
    struct.pack_into(">i", batch, 8, length)
    assert fault_of(check, batch) is fault


@pytest.mark.parametrize(
    ("magic", "fault"),
    [
        (0, RecordFault.UNSUPPORTED_FORMAT),
        (1, RecordFault.UNSUPPORTED_FORMAT),
        (3, RecordFault.CORRUPT),
        (255, RecordFault.CORRUPT),
    ],
)
def test_magic(check, magic, fault):
    batch = twin.encode(records())
    batch[16] = magic
    assert fault_of(check, batch) is fault


def test_an_old_message_shorter_than_a_header_is_named_as_such(check):
    message = struct.pack(">qiIbb", 0, 14, 0, 1, 0) + bytes(8)
    assert fault_of(check, message) is RecordFault.UNSUPPORTED_FORMAT


def test_size_allowed(check):
    batch = twin.encode(records())
    assert check(batch, max_batch_bytes=len(batch))
    assert fault_of(check, batch, max_batch_bytes=len(batch) - 1) is RecordFault.TOO_LARGE


def test_every_covered_byte_is_under_the_checksum(check):
    batch = twin.encode(records(1))
    for at in range(17, len(batch)):
        changed = bytearray(batch)
        changed[at] ^= 0x10
        assert fault_of(check, changed) is RecordFault.CORRUPT


def test_offset_and_epoch_are_outside_the_checksum(check):
    batch = twin.encode(records())
    batch[0:8] = batch[12:16] * 2
    assert check(batch)


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        (0x10, RecordFault.INVALID_RECORD),
        (0x20, RecordFault.INVALID_RECORD),
        (0x40, RecordFault.INVALID_RECORD),
        (0x05, RecordFault.UNSUPPORTED_COMPRESSION),
        (0x07, RecordFault.UNSUPPORTED_COMPRESSION),
    ],
)
def test_attributes(check, attributes, fault):
    batch = twin.encode(records(), attributes=attributes)
    assert fault_of(check, batch) is fault
    with pytest.raises(RecordError, match=r"batch at byte 0: it(s codec)? (is|carries)"):
        validate(batch, **LIMITS)


@pytest.mark.parametrize(
    ("producer", "good"),
    [
        ((-1, -1, -1), True),
        ((-1, 0, 0), True),
        ((0, 0, 0), True),
        ((2**62, 32767, 2**31 - 1), True),
        ((-2, -1, -1), False),
        ((5, -1, 0), False),
        ((5, 0, -1), False),
    ],
)
def test_producer_fields(check, producer, good):
    producer_id, epoch, sequence = producer
    batch = twin.encode(records(), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    if good:
        assert check(batch)[0].producer_id == producer_id
    else:
        assert fault_of(check, batch) is RecordFault.INVALID_RECORD


@pytest.mark.parametrize(("count", "last_delta"), [(3, 1), (3, 3), (3, -1), (4, 2), (2, 2), (4, 3), (2, 1)])
@CODECS
def test_counts_that_lie(check, codec, count, last_delta):
    batch = twin.encode(records(3), codec=codec)
    struct.pack_into(">i", batch, 23, last_delta)
    struct.pack_into(">i", batch, 57, count)
    assert fault_of(check, seal(batch)) is RecordFault.INVALID_RECORD


def test_the_smallest_record_is_good(check):
    assert check(with_section(framed(body())))[0].record_count == 1


def headers(*parts: bytes, count: int = 1) -> bytes:
    return encode_varint(count) + b"".join(parts)


# What a batch of one record holds, and what the core says of that record (None: of the batch).
BAD_SECTIONS = {
    "nothing": (b"", "its length is cut off"),
    "record cut off": (framed(body())[:-1], "its length does not fit"),
    "record length negative": (encode_varint(-1) + body(), "its length does not fit"),
    "record length beyond the batch": (encode_varint(7) + body(), "its length does not fit"),
    "record length past 32 bits": (b"\x8c\x80\x80\x80\x10" + body(), "its length is cut off or too long"),
    "record length of six bytes": (b"\x8c\x80\x80\x80\x80\x00" + body(), "its length is cut off or too long"),
    "empty record": (framed(b""), "it is empty"),
    "record of attributes only": (framed(b"\0"), "its timestamp delta is cut off"),
    "bytes after the last record": (framed(body()) + b"\0", None),
    "another record": (framed(body()) + framed(body(offset=b"\2")), None),
    "bytes left in the record": (framed(body() + b"\0"), "bytes are left over at its end"),
    "timestamp delta cut off": (framed(b"\0\x80"), "its timestamp delta is cut off"),
    "timestamp delta past 64 bits": (
        framed(body(timestamp=b"\x80" * 9 + b"\2")),
        "its timestamp delta is cut",
    ),
    "timestamp delta of eleven bytes": (framed(body(timestamp=b"\x80" * 10 + b"\0")), "its timestamp delta"),
    "offset delta missing": (framed(b"\0\0"), "its offset delta is cut off"),
    "offset delta wrong": (framed(body(offset=encode_varint(1))), "its offset delta is out of order"),
    "offset delta negative": (framed(body(offset=encode_varint(-1))), "its offset delta is out of order"),
    "offset delta past 32 bits": (
        framed(body(offset=b"\x80\x80\x80\x80\x10")),
        "its offset delta is cut off",
    ),
    "key missing": (framed(b"\0\0\0"), "a length is cut off"),
    "key below null": (framed(body(key=encode_varint(-2))), "a length is below -1"),
    "key beyond the record": (framed(body(key=encode_varint(3))), "a key or value reaches past"),
    "key of two gigabytes": (framed(body(key=encode_varint(2**31 - 1))), "a key or value reaches past"),
    "value missing": (framed(b"\0\0\0\1"), "a length is cut off"),
    "value below null": (framed(body(value=encode_varint(-2))), "a length is below -1"),
    "value beyond the record": (framed(body(value=encode_varint(2))), "a key or value reaches past"),
    "header count missing": (framed(body(headers=b"")), "its header count is cut off"),
    "header count negative": (framed(body(headers=headers(count=-1))), "its header count is negative"),
    "header count huge": (framed(body(headers=headers(count=2**31 - 1))), "a length is cut off"),
    "header missing": (framed(body(headers=headers())), "a length is cut off"),
    "header without value": (framed(body(headers=headers(b"\2a"))), "a length is cut off"),
    "header key null": (framed(body(headers=headers(b"\1\1"))), "a header has no key"),
    "header key beyond the record": (
        framed(body(headers=headers(b"\x08a\1"))),
        "a key or value reaches past",
    ),
    "header value below null": (framed(body(headers=headers(b"\2a\3"))), "a length is below -1"),
    "header value beyond the record": (framed(body(headers=headers(b"\2a\4a"))), "a key or value reaches"),
    "bytes after the headers": (framed(body(headers=headers(b"\2a\1\0"))), "bytes are left over at its end"),
}


@pytest.mark.parametrize(("section", "what"), BAD_SECTIONS.values(), ids=BAD_SECTIONS.keys())
def test_bad_records(check, section, what):
    batch = with_section(section)
    assert fault_of(check, batch) is RecordFault.INVALID_RECORD
    where = "batch at byte 0: bytes are left over" if what is None else f"batch at byte 0, record 0: {what}"
    with pytest.raises(RecordError, match=f"^{where}"):
        validate(batch, **LIMITS)
    if what is not None and "order" not in what:
        with pytest.raises(RecordError, match=f"^{where}"):
            find_timestamp(batch, 2**62)


@pytest.mark.parametrize("count", [0, -1, -(2**31) + 1])
def test_a_batch_of_no_records(check, count):
    batch = with_section(b"", count=count)
    assert fault_of(check, batch) is RecordFault.INVALID_RECORD
    with pytest.raises(RecordError, match="it counts no records"):
        validate(batch, **LIMITS)


@pytest.mark.parametrize(
    "key",
    [
        *(b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xe2\x82"),
        *(b"\xe2\x82A", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf0\x9f\x98"),
        *(b"\xff", b"a\xc3("),
    ],
)
def test_header_keys_that_are_not_utf8(check, key):
    section = framed(body(headers=encode_varint(1) + framed(key) + b"\1"))
    assert fault_of(check, with_section(section)) is RecordFault.INVALID_RECORD


@pytest.mark.parametrize("key", ["", "plain", "\x7f\x80߿ࠀ", "퟿ \U00010000\U0010ffff", "straße", "€", "😀"])
def test_header_keys_that_are_utf8(check, key):
    assert check(twin.encode([Record(0, START, headers=[(key, None), (key, b"")])]))


@pytest.mark.parametrize(
    ("base", "delta", "good"),
    [
        (2**63 - 2, 1, True),
        (2**63 - 1, 1, False),
        (-(2**63) + 1, -1, True),
        (-(2**63), -1, False),
        (1, 2**63 - 1, False),
        (-1, -(2**63), False),
        (0, -(2**63), True),
    ],
)
def test_timestamps_stay_within_64_bits(check, base, delta, good):
    batch = with_section(framed(body(timestamp=encode_varint(delta))), base_timestamp=base)
    if good:
        assert check(batch)[0].max_timestamp == base + delta
    else:
        assert fault_of(check, batch) is RecordFault.INVALID_RECORD
        with pytest.raises(RecordError, match="does not fit 64 bits"):
            find_timestamp(batch, 0)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_refused_before_it_unfolds(check, codec):
    bomb = twin.encode([Record(0, START, value=bytes(3_000_000))], codec=codec)
    assert check(bomb, max_decompressed_bytes=3_000_100)
    assert fault_of(check, bomb, max_decompressed_bytes=2_900_000) is RecordFault.TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bytes_that_do_not_decompress(check, codec):
    batch = twin.encode(records(), codec=codec)
    assert fault_of(check, seal(batch[:61])) is RecordFault.INVALID_RECORD
    assert fault_of(check, seal(batch[:-3])) is RecordFault.INVALID_RECORD
    assert fault_of(check, seal(batch[:61] + b"garbage, and no frame at all")) is RecordFault.INVALID_RECORD


def test_the_message_says_which_record_of_which_batch():
    good = twin.encode(records())
    bad = with_section(framed(body()) + framed(body(offset=encode_varint(9))), count=2)
    with pytest.raises(RecordError, match=rf"^batch at byte {len(good)}, record 1: .*offset delta"):
        validate(good + bad, **LIMITS)


def test_a_batch_says_how_many_records_it_has():
    batch = twin.encode(records())
    assert records_said(batch) == twin.records_said(batch) == len(records())
    for odd in (b"", bytes(60), bytes(61), batch[:-1], batch + b"x", batch + batch, batch[:57] + b"\xff" * 4):
        assert records_said(odd) == twin.records_said(odd) == -1, odd[:70]
    lying = batch[:57] + b"\x7f\xff\xff\xff" + batch[61:]
    assert records_said(lying) == twin.records_said(lying) == 2**31 - 1


def is_long(buffer) -> bool:
    return unfolds_at_once(buffer) < 0


def test_only_large_compressed_buffers_need_a_thread():
    incompressible = b"".join(n.to_bytes(2, "big") for n in range(20_000))
    one = [Record(0, START, value=incompressible)]
    assert is_long(twin.encode(one, codec=Codec.SNAPPY))
    assert is_long(twin.encode(records()) + twin.encode(one, codec=Codec.SNAPPY))
    assert not is_long(twin.encode(one))
    assert not is_long(twin.encode(records(), codec=Codec.GZIP))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        small = twin.encode([Record(0, START, value=bytes(200_000))], codec=codec)
        assert unfolds_at_once(small) == unfolds_to(small) >= 200_000
        assert is_long(twin.encode([Record(0, START, value=bytes(300_000))], codec=codec)), "it unfolds far"
    assert is_long(twin.encode([Record(0, START, value=bytes(5_000_000))])), "its records are walked"
    for nonsense in (b"", b"x", bytes(60), bytes(100), b"\xff" * 100, b"\x7f" * 100):
        assert not is_long(nonsense)


def test_a_buffer_is_required():
    with pytest.raises(TypeError):
        validate(cast(bytes, "text"), **LIMITS)
