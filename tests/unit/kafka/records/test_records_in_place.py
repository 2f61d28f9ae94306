"""Changing batches where they are, looking records up by time, and the checksum beneath."""

import os
import struct
from array import array
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.kafka.records import (
    Codec,
    Record,
    RecordError,
    crc32c,
    find_timestamp,
    patch,
    patch_all,
    restore,
    stamp_append_time,
    twin,
    uninitialised,
    validate,
)
from dray.kafka.records._core import crc32c_software

LIMITS = {"max_batch_bytes": 1 << 20, "max_decompressed_bytes": 1 << 20}
RECORDS = [Record(0, 50, b"a"), Record(1, 70, b"b"), Record(2, 60, None, b"c"), Record(3, 90, b"d")]


def test_patch_gives_offset_and_epoch_and_nothing_else():
    batch = twin.encode(RECORDS)
    patched = bytearray(b"." * 9 + batch)
    patch(patched, 9, 2**40 + 1, 77)
    assert patched[:9] == b"." * 9
    assert struct.unpack_from(">qii", patched, 9) == (2**40 + 1, len(batch) - 12, 77)
    assert patched[9 + 16 :] == batch[16:]
    assert validate(patched[9:], **LIMITS)[0].record_count == 4


def test_patch_all_reaches_every_batch():
    one = twin.encode(RECORDS)
    buffer = one + one + one
    patch_all(memoryview(buffer), [(0, 100), (len(one), 104), (2 * len(one), 108)], 5)
    assert [header.base_offset for header, _ in twin.decode(buffer)] == [100, 104, 108]
    assert {bytes(buffer[at + 12 : at + 16]) for at in range(0, len(buffer), len(one))} == {b"\0\0\0\5"}


@pytest.mark.parametrize("position", [-1, 1, 10**9, -(2**62)])
def test_patch_outside_the_buffer_is_refused(position):
    header = bytearray(61)
    with pytest.raises(ValueError, match="no batch header"):
        patch(header, position, 1, 1)
    with pytest.raises(ValueError, match="no batch header"):
        patch_all(header, [(position, 1)], 1)
    assert header == bytes(61)


def test_patch_needs_a_buffer_it_may_write():
    with pytest.raises(BufferError):
        patch(cast(bytearray, bytes(61)), 0, 1, 1)


def packed(places):
    return array("q", [number for place in places for number in place])


@settings(max_examples=200)
@given(st.data())
def test_restore_tells_damage_and_gives_offsets_as_its_twin_does(data):
    batches = [twin.encode(RECORDS[:count]) for count in data.draw(st.lists(st.integers(1, 4), max_size=4))]
    gaps = [b"." * data.draw(st.integers(0, 3)) for _ in batches]
    stored, places = bytearray(), []
    for gap, batch in zip(gaps, batches, strict=True):
        stored += gap
        places.append((len(stored), len(batch), data.draw(st.integers(0, 2**40))))
        stored += batch
    if stored and data.draw(st.booleans()):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(st.integers(1, 255))
    plain = bytearray(stored)
    unsound = restore(stored, packed(places), 7)
    assert unsound == twin.restore(plain, places, 7)
    assert stored == plain
    if unsound == -1:
        for position, length, offset in places:
            assert twin.decode(stored[position : position + length])[0][0].base_offset == offset


@pytest.mark.parametrize("place", [(-1, 61), (1, 61), (0, 62), (0, 60), (0, -1), (2**62, 61), (0, 2**62)])
def test_restore_outside_the_buffer_is_refused(place):
    sound = twin.encode(RECORDS)
    buffer = bytearray(61)
    with pytest.raises(ValueError, match="no batch of"):
        restore(buffer, packed([(*place, 1)]), 1)
    assert buffer == bytes(61)
    before = bytes(sound)
    with pytest.raises(ValueError, match="no batch of"):
        restore(sound, packed([(0, len(sound), 5), (len(sound) - 60, 61, 5)]), 1)
    assert sound == before, "nothing is changed before all places are known to be inside"


def test_restore_needs_whole_places_and_a_buffer_it_may_write():
    with pytest.raises(ValueError, match="no list of places"):
        restore(bytearray(61), b"\0" * 23, 1)
    with pytest.raises(BufferError):
        restore(cast(bytearray, bytes(twin.encode(RECORDS))), packed([]), 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_stamp_append_time(codec):
    buffer = twin.encode(RECORDS) + twin.encode(RECORDS, codec=codec)
    before, batch = validate(buffer, **LIMITS)
    stamp_append_time(buffer, batch, 1234)
    assert batch.attributes == 0x08 | codec
    assert (batch.min_timestamp, batch.max_timestamp, batch.max_timestamp_delta) == (1234, 1234, 0)
    assert validate(buffer, **LIMITS) == [before, batch]
    assert [record.timestamp for record in twin.decode(buffer)[1][1]] == [1234] * 4


def test_stamp_append_time_stays_inside_the_buffer():
    buffer = twin.encode(RECORDS)
    [batch] = validate(buffer, **LIMITS)
    with pytest.raises(ValueError, match="no batch of"):
        stamp_append_time(buffer[:-1], batch, 1)
    with pytest.raises(TypeError):
        stamp_append_time(buffer, cast(Any, None), 1)
    assert batch.attributes == 0


@pytest.mark.parametrize("codec", list(Codec))
def test_find_timestamp(codec):
    batch = twin.encode(RECORDS, codec=codec)
    for timestamp, found in [
        (-(2**63), (0, 50)),
        (50, (0, 50)),
        (51, (1, 70)),
        (60, (1, 70)),
        (71, (3, 90)),
        (91, None),
    ]:
        assert find_timestamp(batch, timestamp) == found == twin.find_timestamp(batch, timestamp)


@pytest.mark.parametrize("codec", list(Codec))
def test_find_append_time(codec):
    batch = twin.encode(RECORDS, codec=codec)
    stamp_append_time(batch, validate(batch, **LIMITS)[0], 1234)
    assert find_timestamp(batch, 1234) == (0, 1234) == twin.find_timestamp(batch, 1234)
    assert find_timestamp(batch, 1235) is None


def test_find_timestamp_believes_nothing():
    batch = twin.encode(RECORDS)
    batch[-1] ^= 1
    with pytest.raises(RecordError, match="checksum"):
        find_timestamp(batch, 0)
    with pytest.raises(RecordError, match="decompresses to more"):
        find_timestamp(twin.encode(RECORDS, codec=Codec.GZIP), 0, max_decompressed_bytes=10)


CHECKSUMS = [crc32c, crc32c_software, twin.crc32c]


@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_crc32c_of_known_data(checksum):
    """The values of RFC 3720, B.4."""
    assert checksum(b"") == 0
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43
    assert checksum(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("size", [7, 8, 767, 768, 769, 1536, 12287, 12288, 12289, 13056, 40_000])
def test_crc32c_at_the_seams_of_its_lanes(size):
    data = os.urandom(size + 3)
    for start in range(3):
        part = memoryview(data)[start : start + size]
        assert crc32c(part) == crc32c_software(part) == twin.crc32c(part)


@given(st.binary(max_size=2000), st.integers(0, 2000))
@settings(deadline=None)
def test_crc32c_goes_on_from_what_came_before(data, cut):
    for checksum in CHECKSUMS:
        assert checksum(data[cut:], checksum(data[:cut])) == twin.crc32c(data)


def test_crc32c_of_more_than_the_gil_is_held_for():
    data = os.urandom(1 << 19)
    assert crc32c(data) == crc32c_software(data)


def test_uninitialised_has_exactly_the_size():
    for size in (0, 1, 4096, 10_000_000):
        assert len(uninitialised(size)) == size
    with pytest.raises(ValueError, match="never negative"):
        uninitialised(-1)
