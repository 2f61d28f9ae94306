"""Lengths and counts that lie: refused before anything is allocated for them."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
from tests.unit.kafka.protocol.kio_oracle import Case, all_cases, kio_bytes, random_entity, to_ours

from dray.kafka.protocol import (
    ENDLESS,
    DecodeError,
    RequestHeader,
    Struct,
    TooManyElements,
    encode_request_header,
    parse_request_header,
    wire,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from dray.kafka.protocol.messages.fetch import FetchRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from dray.kafka.protocol.messages.produce import ProduceRequest

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
    tags = bytearray()
    for number in range(100_000):
        wire.write_uvarint(tags, number)
        tags.append(0)
    raw = b"\xa0\x8d\x06" + tags
    with at_most(20_000):
        assert wire.skip_tags(memoryview(raw), 0, len(raw)) == len(raw)


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x05\x00", b"\x02\x05\x00\x04\x00"])
def test_tags_ascend(tags: bytes) -> None:
    """Also where the reader knows some of them: a field that is there twice would be read twice."""
    with pytest.raises(DecodeError, match="stands behind 5"):
        wire.skip_tags(memoryview(tags), 0, len(tags))
    for version in (3, 4):  # of ApiVersions, whose answer has fields with tags
        client = b"\x02x\x021"
        with pytest.raises(DecodeError, match="stands behind 5"):
            ApiVersionsRequest.decode(memoryview(client + tags), 0, version)
    known = b"\0\0" + b"\1" + bytes(4) + b"\2" + b"\1\x08" + bytes(8) + b"\1\x08" + bytes(8)
    with pytest.raises(DecodeError, match="stands behind 1"):
        ApiVersionsResponse.decode(memoryview(known), 0, 3)


# Elements are counted


def test_all_elements_of_a_message_are_counted_together() -> None:
    """Of arrays within arrays, of numbers, of texts."""
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                f"g{number}", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2, 3])]
            )
            for number in range(5)
        ]
    )
    raw = memoryview(b"".join(bytes(part) for part in request.encode(9)))
    elements = 5 + 5 + 5 * 3
    assert OffsetFetchRequest.decode(raw, 0, 9, elements)[0] == request
    assert wire.elements_used() == elements
    with pytest.raises(TooManyElements):
        OffsetFetchRequest.decode(raw, 0, 9, elements - 1)
    assert wire.elements.left == ENDLESS, "stored values that are read next have no bound of a client"
    assert OffsetFetchRequest.decode(raw, 0, 9)[0] == request, "each message begins anew"
    with pytest.raises(DecodeError, match="has no version 99"):
        OffsetFetchRequest.decode(raw, 0, 99)
    assert wire.elements_used() == 0, "of what is refused unread nothing is paid, nor of the one before again"


@pytest.mark.parametrize("case", LATEST + OLDEST, ids=str)
def test_no_array_is_left_out_of_the_count(case: Case) -> None:
    """Without a single element, only what has none can be read."""
    for seed in range(10):
        ours = to_ours(random_entity(case.kio, Random(f"{case}{seed}")), case.message)
        raw = memoryview(b"".join(bytes(part) for part in ours.encode(case.version)))
        count = _elements_of(ours)
        case.message.decode(raw, 0, case.version, count + 20)  # and some for what is tagged
        if count:
            with pytest.raises(TooManyElements):
                case.message.decode(raw, 0, case.version, count - 1)


def _elements_of(value: Any) -> int:
    if isinstance(value, list):
        return len(value) + sum(map(_elements_of, value))
    if isinstance(value, Struct):
        return sum(_elements_of(getattr(value, name)) for name in value.__slots__)
    return 0


def test_tagged_fields_count_as_elements() -> None:
    tags = bytes([20]) + b"".join(bytes([number, 0]) for number in range(20))
    raw = memoryview(b"\x02x\x021" + tags)
    ApiVersionsRequest.decode(raw, 0, 3, 20)
    with pytest.raises(TooManyElements):
        ApiVersionsRequest.decode(raw, 0, 3, 19)


def test_the_elements_of_a_refused_array_are_not_read() -> None:
    raw = memoryview(b"\0\0" + b"\x81\x80\x80\x04" + b"\1" * (8 << 20) + b"\0")
    with at_most(10_000), pytest.raises(TooManyElements):
        FindCoordinatorRequest.decode(raw, 1, 6, 20_000)


def test_two_threads_count_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire.elements, "left", 7)
    with ThreadPoolExecutor(1) as threads:
        raw = memoryview(b"\x02x\x021\0")
        threads.submit(ApiVersionsRequest.decode, raw, 0, 3, 1000).result()
    assert wire.elements.left == 7


def test_a_header_has_few_tagged_fields_and_they_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def header(count: int) -> memoryview:
        start = encode_request_header(RequestHeader(18, 3, 1, "c"))[:-1]
        return memoryview(start + bytes([count]) + b"".join(bytes([number, 0]) for number in range(count)))

    monkeypatch.setattr(wire.elements, "left", 0)  # as within another message
    assert parse_request_header(header(100))[1] == len(header(100))
    with pytest.raises(DecodeError):
        parse_request_header(header(101))
    assert wire.elements.left == ENDLESS


def test_a_string_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="UTF-8"):
        MetadataRequest.decode(memoryview(b"\0\0\0\1\0\1\xff"), 0, 0)
