"""Lengths and counts that lie: refused before anything is allocated for them."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from tests.unit.protocol.kio_oracle import Case, all_cases, kio_bytes, random_entity

from dray.protocol import DecodeError, wire
from dray.protocol.messages.delete_topics import DeleteTopicsRequest
from dray.protocol.messages.fetch import FetchRequest
from dray.protocol.messages.metadata import MetadataRequest
from dray.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from dray.protocol.messages.produce import ProduceRequest

LATEST = [case for case in all_cases() if case.version == case.message.VERSIONS[1]]
OLDEST = [case for case in all_cases() if case.version == case.message.VERSIONS[0]]
LARGEST_VARINT = b"\xff\xff\xff\xff\x0f"
LARGEST_INT32 = b"\x7f\xff\xff\xff"


@contextmanager
def at_most(bytes_allocated: int) -> Iterator[None]:
    """Other threads, such as the one through which a test process is told what to run, are counted as well:
    none of them gets the interpreter meanwhile."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        sys.setswitchinterval(interval)
    assert peak < bytes_allocated


@pytest.mark.parametrize("case", LATEST + OLDEST, ids=str)
def test_a_huge_number_anywhere_takes_no_memory(case: Case) -> None:
    raw = kio_bytes(random_entity(case.kio, Random(str(case))))[:500]
    with at_most(1_000_000):
        for position in range(len(raw)):
            for lie in (LARGEST_VARINT, LARGEST_INT32):
                try:
                    case.message.decode(memoryview(raw[:position] + lie + raw[position:]), 0, case.version)
                except DecodeError:
                    continue


@pytest.mark.parametrize(
    ("message", "version", "start", "least"),
    [
        (ProduceRequest, 8, b"\xff\xff" + bytes(6), 6),
        (ProduceRequest, 9, b"\0" + bytes(6), 3),
        (FetchRequest, 4, bytes(17), 6),
        (MetadataRequest, 0, b"", 2),
        (MetadataRequest, 12, b"", 18),
        (DeleteTopicsRequest, 6, b"", 18),
        (OffsetForLeaderEpochRequest, 3, bytes(4), 6),
    ],
)
def test_a_count_must_fit_what_is_left_at_the_least_size_of_an_element(
    message: Any, version: int, start: bytes, least: int
) -> None:
    """One element more than could fit is refused by its count, before the first one is read."""
    flexible = version >= message.FLEXIBLE_FROM
    rest = b"\xee" * 100  # no element begins like this, so reading one would raise something else
    for count, by_count in ((len(rest) // least, False), (len(rest) // least + 1, True)):
        size = bytes([count + 1]) if flexible else count.to_bytes(4, "big")
        with pytest.raises(DecodeError) as caught:
            message.decode(memoryview(start + size + rest), 0, version)
        assert (f"an array of {count} elements" in str(caught.value)) is by_count


# The primitives


def read(function: Callable[..., tuple[Any, int]], raw: bytes, *more: int) -> Any:
    value, position = function(memoryview(raw), 0, len(raw), *more)
    assert position == len(raw)
    return value


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**31 - 1, 2**32 - 1])
def test_variable_length_numbers(value: int) -> None:
    out = bytearray()
    wire.write_uvarint(out, value)
    assert wire.read_uvarint(memoryview(out), 0) == (value, len(out))
    assert len(out) <= 5


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 20])
def test_variable_length_numbers_end_after_32_bits(raw: bytes) -> None:
    with pytest.raises(DecodeError, match="32 bits"):
        wire.read_uvarint(memoryview(raw), 0)


def test_strings_at_their_bounds() -> None:
    longest = b"x" * 0x7FFF
    assert read(wire.read_compact_string, b"\x80\x80\x02" + longest) == longest.decode()
    assert read(wire.read_string, b"\x7f\xff" + longest) == longest.decode()
    with pytest.raises(DecodeError):
        read(wire.read_compact_string, b"\x81\x80\x02" + longest + b"x")
    for raw in (b"\x03a", b"\x80\x01" + b"a" * 126):
        with pytest.raises(DecodeError):
            read(wire.read_compact_string, raw)
    with pytest.raises(DecodeError):
        read(wire.read_string, b"\x00\x02a")


def test_a_string_does_not_reach_past_its_limit() -> None:
    """What is read out of a tagged field stays inside it, though the frame goes on."""
    frame = memoryview(b"\x04abcdef")
    assert wire.read_compact_string(frame, 0, 4) == ("abc", 4)
    with pytest.raises(DecodeError):
        wire.read_compact_string(frame, 0, 3)


@pytest.mark.parametrize(
    ("function", "raw"),
    [
        (wire.read_string, b"\xff\xff"),
        (wire.read_string, b"\x80\x00"),
        (wire.read_nullable_string, b"\xff\xfe"),
        (wire.read_bytes, b"\xff\xff\xff\xff"),
        (wire.read_nullable_bytes, b"\xff\xff\xff\xfe"),
        (wire.read_records, b"\xff\xff\xff\xff"),
        (wire.read_nullable_records, b"\xff\xff\xff\xfe"),
        (wire.read_compact_string, b"\0"),
        (wire.read_compact_bytes, b"\0"),
        (wire.read_compact_records, b"\0"),
    ],
)
def test_negative_lengths_and_null_only_where_they_mean_something(
    function: Callable[..., tuple[Any, int]], raw: bytes
) -> None:
    with pytest.raises(DecodeError):
        read(function, raw)


@pytest.mark.parametrize(
    ("function", "null"),
    [
        (wire.read_nullable_string, b"\xff\xff"),
        (wire.read_compact_nullable_string, b"\0"),
        (wire.read_nullable_bytes, b"\xff\xff\xff\xff"),
        (wire.read_compact_nullable_bytes, b"\0"),
        (wire.read_nullable_records, b"\xff\xff\xff\xff"),
        (wire.read_compact_nullable_records, b"\0"),
    ],
)
def test_null_is_none(function: Callable[..., tuple[Any, int]], null: bytes) -> None:
    assert read(function, null) is None


@pytest.mark.parametrize("least", [1, 4])
def test_counts(least: int) -> None:
    assert wire.read_count(memoryview(b"\0\0\0\2" + bytes(2 * least)), 0, 4 + 2 * least, least) == (2, 4)
    assert wire.read_compact_count(memoryview(b"\x03" + bytes(2 * least)), 0, 1 + 2 * least, least) == (2, 1)
    assert read(wire.read_nullable_count, b"\xff\xff\xff\xff", least) == -1
    assert read(wire.read_compact_nullable_count, b"\0", least) == -1
    for function, raw in (
        (wire.read_count, b"\0\0\0\3" + bytes(3 * least - 1)),
        (wire.read_count, b"\xff\xff\xff\xff"),
        (wire.read_nullable_count, b"\xff\xff\xff\xfe"),
        (wire.read_nullable_count, LARGEST_INT32),
        (wire.read_compact_count, b"\0"),
        (wire.read_compact_count, b"\x04" + bytes(3 * least - 1)),
        (wire.read_compact_nullable_count, LARGEST_VARINT),
    ):
        with pytest.raises(DecodeError):
            read(function, raw, least)


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        (LARGEST_VARINT, "an array of 4294967295"),
        (b"\x02\0\0\0", "an array of 2"),
        (b"\x01\0\x02a", "a tagged field of 2 bytes"),
        (b"\x01\0" + LARGEST_VARINT, "a tagged field of 4294967295 bytes"),
    ],
)
def test_tagged_fields_must_fit(raw: bytes, complaint: str) -> None:
    with pytest.raises(DecodeError, match=complaint), at_most(10_000):
        wire.skip_tags(memoryview(raw), 0, len(raw))


def test_tagged_fields_that_nobody_knows_take_no_memory() -> None:
    raw = b"\xa0\x8d\x06" + b"\x63\x00" * 100_000
    with at_most(20_000):
        assert wire.skip_tags(memoryview(raw), 0, len(raw)) == len(raw)


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        MetadataRequest.decode(memoryview(b"\0\0\0\1\0\1\xff"), 0, 0)
