"""Bytes from nowhere: a decoder gives a message or a `DecodeError`, and nothing else ever."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from dray.kafka.protocol import (
    SCHEMAS,
    DecodeError,
    Message,
    parse_request_header,
    parse_response_header,
    request_class,
    response_class,
)
from dray.kafka.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

MESSAGES: list[type[Message]] = [
    *(request_class(key) for key in SCHEMAS),
    *(response_class(key) for key in SCHEMAS),
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
]
MESSAGE_AND_VERSION = st.sampled_from(
    [(m, version) for m in MESSAGES for version in range(m.VERSIONS[0], m.VERSIONS[1] + 1)]
)
# Small numbers make counts and lengths that fit, so that the fuzz gets deeper than the first field.
BYTES = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 0x61, 0x7F, 0x80, 0xFF]), max_size=200).map(bytes),
)


def decode_or_refuse(message: type[Message], raw: bytes, version: int) -> None:
    try:
        decoded, position = message.decode(memoryview(raw), 0, version)
    except DecodeError:
        return
    assert 0 <= position <= len(raw)
    again = b"".join(decoded.encode(version))
    assert message.decode(memoryview(again), 0, version) == (decoded, len(again))


@settings(max_examples=1500, deadline=None)
@given(MESSAGE_AND_VERSION, BYTES)
def test_random_bytes(which: tuple[type[Message], int], raw: bytes) -> None:
    decode_or_refuse(which[0], raw, which[1])


@settings(max_examples=500, deadline=None)
@given(MESSAGE_AND_VERSION, st.lists(st.tuples(st.integers(0, 300), st.binary(max_size=6)), max_size=4))
def test_damaged_messages(which: tuple[type[Message], int], damage: list[tuple[int, bytes]]) -> None:
    message, version = which
    raw = b"".join(message().encode(version))
    for place, insertion in damage:
        position = place % (len(raw) + 1)
        raw = raw[:position] + insertion + raw[position + len(insertion) // 2 :]
    decode_or_refuse(message, raw, version)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(sorted(SCHEMAS)), st.integers(-1, 20))
def test_headers(raw: bytes, api_key: int, version: int) -> None:
    frame = memoryview(api_key.to_bytes(2, "big") + raw)
    with contextlib.suppress(DecodeError):
        _, position = parse_request_header(frame)
        assert position <= len(frame)
    with contextlib.suppress(DecodeError):
        _, position = parse_response_header(frame, api_key, version)
        assert position <= len(frame)
