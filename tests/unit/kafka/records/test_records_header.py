"""The header's layout, against what the compiled core writes and reads."""

from __future__ import annotations

import struct

from dray.kafka.records import HEADER_SIZE, LEADER_EPOCH, NO_PRODUCER, Record, read_header, twin, validate
from dray.kafka.records.header import CODEC_BITS, CONTROL, LOG_APPEND_TIME, MAGIC, MAGIC_AT, PREFIX


def batch(**fields: int) -> bytearray:
    records = [Record(offset, 1000 + offset, b"key", b"value", ()) for offset in range(40, 43)]
    return twin.encode(records, leader_epoch=LEADER_EPOCH, **fields)


def test_every_field_is_where_kafka_has_it() -> None:
    """By the offsets that Kafka's documentation gives, and not by our own layout."""
    data = batch(producer_id=77, producer_epoch=5, base_sequence=9, attributes=LOG_APPEND_TIME)
    header = read_header(data)
    kafka = {
        "base_offset": (0, ">q"),
        "length": (8, ">i"),
        "leader_epoch": (12, ">i"),
        "magic": (16, ">b"),
        "checksum": (17, ">I"),
        "attributes": (21, ">h"),
        "last_offset_delta": (23, ">i"),
        "base_timestamp": (27, ">q"),
        "max_timestamp": (35, ">q"),
        "producer_id": (43, ">q"),
        "producer_epoch": (51, ">h"),
        "base_sequence": (53, ">i"),
        "record_count": (57, ">i"),
    }
    assert header._fields == tuple(kafka)
    for name, (position, kind) in kafka.items():
        assert getattr(header, name) == struct.unpack_from(kind, data, position)[0], name
    assert HEADER_SIZE == 61
    assert (PREFIX.size, MAGIC_AT, MAGIC) == (12, 16, 2)


def test_it_says_what_the_core_says() -> None:
    data = batch(producer_id=77, producer_epoch=5, base_sequence=9)
    [found] = validate(data, max_batch_bytes=10_000, max_decompressed_bytes=10_000)
    header = read_header(data)
    assert (header.size, header.record_count, header.attributes) == (
        found.length,
        found.record_count,
        found.attributes,
    )
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 5, 9)
    assert (header.base_offset, header.last_offset_delta, header.max_timestamp) == (
        40,
        2,
        found.max_timestamp,
    )
    assert header.size == len(data)


def test_a_batch_in_the_middle_of_others() -> None:
    first, second = batch(), batch(producer_id=3, producer_epoch=0, base_sequence=0)
    assert read_header(first + second).producer_id == NO_PRODUCER
    assert read_header(memoryview(first + second), len(first)).producer_id == 3


def test_the_bits_do_not_overlap() -> None:
    assert CODEC_BITS & LOG_APPEND_TIME == 0
    assert CODEC_BITS & CONTROL == 0
    assert LOG_APPEND_TIME & CONTROL == 0
