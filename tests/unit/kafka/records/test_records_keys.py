"""What compaction by key asks of records: their keys, the last offset of each, and those that stay."""

from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.kafka.records import (
    BytesColumn,
    Codec,
    Kept,
    KeyOffsets,
    RecordError,
    RecordFault,
    decode,
    decode_keys,
    decode_stored,
    twin,
)
from dray.kafka.records.columns import Record

SECRET = bytes(range(16))
FIRST = 100
KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"a" * 7, b"a" * 8, b"a" * 9, b"\0" * 16, b"\0" * 17])
ROWS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=40)


def stored(
    rows: list[tuple[bytes | None, bytes | None]], size: int, codec: Codec
) -> tuple[list[bytearray], list[int]]:
    """Batches as producers send them, their offsets from 0 on, and where the index has them."""
    records = [Record(number, 5, *row, [("h", b"1")] * (number % 3)) for number, row in enumerate(rows)]
    firsts = range(0, len(records), size)
    batches = [
        twin.encode(
            [record._replace(offset=record.offset - first) for record in records[first : first + size]],
            codec=codec,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
        )
        for first in firsts
    ]
    return batches, [FIRST + first for first in firsts]


def column(keys: list[bytes | None]) -> BytesColumn:
    bounds = array("i", [0])
    for key in keys:
        bounds.append(bounds[-1] + len(key or b""))
    validity = bytearray((len(keys) + 7) // 8)
    for row, key in enumerate(keys):
        validity[row >> 3] |= (key is not None) << (row & 7)
    return BytesColumn(bounds.tobytes(), b"".join(key or b"" for key in keys), validity)


def longs(*values: int) -> bytes:
    return array("q", values).tobytes()


def ints(*values: int) -> bytes:
    return array("i", values).tobytes()


def numbers(buffer: Any) -> list[int]:
    return list(memoryview(buffer).cast("B").cast("q"))


@given(ROWS, st.integers(1, 9), st.sampled_from(Codec))
@settings(deadline=None)
def test_keys_are_those_of_the_records(rows, size, codec):
    count, offsets, keys = decode_keys(*stored(rows, size, codec))
    assert count == len(rows)
    assert numbers(offsets) == list(range(100, 100 + count))
    assert list(keys.values(count)) == [key for key, _ in rows]


def test_keys_are_decoded_of_sound_batches_alone():
    batch = bytearray(twin.encode([Record(0, 1, b"k", b"v" * 9, ())]))
    batch[-3] ^= 1
    with pytest.raises(RecordError) as caught:
        decode_keys([batch], [0])
    assert caught.value.fault is RecordFault.CORRUPT
    unfolds = twin.encode([Record(0, 1, b"k", b"v" * 9000, ())], codec=Codec.ZSTD)
    with pytest.raises(RecordError) as caught:
        decode_keys([unfolds], [0], max_decompressed_bytes=1000)
    assert caught.value.fault is RecordFault.TOO_LARGE


@given(st.lists(st.lists(KEYS, max_size=70), max_size=5))
@settings(deadline=None)
def test_the_greatest_offset_of_every_key_counts(pieces):
    found = KeyOffsets(SECRET)
    last: dict[bytes, int] = {}
    offset = 0
    for keys in pieces:
        found.add(column(keys), longs(*range(offset, offset + len(keys))), 0, len(keys))
        last |= {key: offset + row for row, key in enumerate(keys) if key is not None}
        offset += len(keys)
    assert len(found) == len(last)
    assert sorted(numbers(found.offsets())) == sorted(last.values())


def test_offsets_decide_and_not_the_order_in_which_rows_come():
    found = KeyOffsets(SECRET)
    found.add(column([b"a", b"a"]), longs(9, 3), 0, 2)
    assert numbers(found.offsets()) == [9]


def test_many_keys_are_told_apart():
    """More than its first memory holds, several times over."""
    keys: list[bytes | None] = [b"key-%d" % (number % 20_000) for number in range(50_000)]
    found = KeyOffsets(SECRET)
    found.add(column(keys), longs(*range(50_000)), 0, 50_000)
    wanted = {key: number for number, key in enumerate(keys)}
    assert sorted(numbers(found.offsets())) == sorted(wanted.values())


def test_rows_of_a_slice():
    found = KeyOffsets(SECRET)
    found.add(column([b"a", b"b", None, b"c"]), longs(5, 6, 7), 1, 3)
    assert sorted(numbers(found.offsets())) == [5, 7]


@pytest.mark.parametrize(
    ("bounds", "offsets", "first", "count"),
    [([0, 1], [1], 0, 2), ([0, 1], [], 0, 1), ([0, 1], [1], -1, 1), ([0, 1], [1], 0, -1)],
)
def test_columns_that_are_too_short_are_refused(bounds, offsets, first, count):
    with pytest.raises(ValueError, match="have no rows"):
        KeyOffsets(SECRET).add(BytesColumn(ints(*bounds), b"a", None), longs(*offsets), first, count)


def test_keys_that_lie_outside_are_refused():
    for bounds in ([0, 5], [-1, 1], [1, 0]):
        with pytest.raises(ValueError, match="past the end of its column"):
            KeyOffsets(SECRET).add(BytesColumn(ints(*bounds), b"abc", None), longs(1), 0, 1)
    with pytest.raises(ValueError, match="validity"):
        KeyOffsets(SECRET).add(BytesColumn(ints(*[0] * 10), b"", b"\0"), longs(*[1] * 9), 0, 9)
    with pytest.raises(ValueError, match="16 bytes"):
        KeyOffsets(b"short")


@given(ROWS, st.integers(1, 9), st.sampled_from(Codec), st.data())
@settings(deadline=None)
def test_only_what_stays_is_decoded(rows, size, codec, data):
    batches = stored(rows, size, codec)
    places = range(100, 100 + len(rows))
    listed = sorted(data.draw(st.sets(st.sampled_from(places))))
    below = data.draw(st.integers(95, 105 + len(rows)))
    keyless, last = data.draw(st.booleans()), data.draw(st.sampled_from([-1, *places]))
    kept = Kept(longs(*listed), below, keyless, last)

    def stays(record: Record) -> bool:
        if record.offset == last:
            return True
        if record.key is None:
            return bool(keyless)
        return record.offset in listed and (record.value is not None or record.offset >= below)

    whole = decode_stored(*batches)
    wanted = [record for record in whole.records() if stays(record)]
    found = decode_stored(*batches, kept=kept)
    assert list(found.records()) == wanted
    assert found.header_count == sum(len(record.headers) for record in wanted)
    assert numbers(found.producer_ids) == [7] * len(wanted)


def test_what_goes_is_checked_all_the_same():
    batch = bytearray(twin.encode([Record(0, 1, b"k", b"v" * 9, ()), Record(1, 1, b"k", b"w" * 9, ())]))
    batch[-20] ^= 1
    with pytest.raises(RecordError):
        decode_stored([batch], [0], kept=Kept(longs(1)))


@given(ROWS, st.integers(1, 9), st.sampled_from(Codec))
@settings(deadline=None)
def test_stored_batches_have_the_offsets_of_the_index(rows, size, codec):
    batches, offsets = stored(rows, size, codec)
    found = decode_stored(batches, offsets)
    assert [record.offset for record in found.records()] == list(range(FIRST, FIRST + len(rows)))
    lists = [list(decode(batch).records()) for batch in batches]
    wanted = [record for records in lists for record in records]
    assert [record[1:] for record in found.records()] == [record[1:] for record in wanted]


def test_stored_batches_are_one_each():
    batch = twin.encode([Record(0, 1)])
    with pytest.raises(RecordError, match="not as long as it says"):
        decode_stored([batch + batch], [0])
    with pytest.raises(ValueError, match="shorter"):
        decode_stored([batch], [])
    zipped = twin.encode([Record(0, 1, value=bytes(1000))], codec=Codec.ZSTD)
    assert decode_stored([zipped, zipped], [0, 1], max_decompressed_bytes=2100).row_count == 2
    with pytest.raises(RecordError) as caught:
        decode_stored([zipped, zipped], [0, 1], max_decompressed_bytes=1900)
    assert caught.value.fault is RecordFault.TOO_LARGE
