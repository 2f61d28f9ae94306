"""Headers against kio's, and what is said of requests that nobody serves."""

from __future__ import annotations

import io
from typing import Any

import pytest
from kio.schema.request_header.v1.header import RequestHeader as KioRequestHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioRequestHeader2
from kio.schema.response_header.v0.header import ResponseHeader as KioResponseHeader0
from kio.schema.response_header.v1.header import ResponseHeader as KioResponseHeader1
from kio.serial import entity_writer
from tests.unit.kafka.protocol.kio_oracle import Case, all_cases

from dray.kafka.protocol import (
    ApiKey,
    DecodeError,
    EncodeError,
    Request,
    RequestHeader,
    Response,
    encode_request_header,
    encode_response_header,
    frame_message,
    parse_request_header,
    parse_response_header,
)

REQUESTS = [case for case in all_cases() if issubclass(case.message, Request)]
RESPONSES = [case for case in all_cases() if issubclass(case.message, Response)]


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("client_id", [None, "", "a client", "日本語"])
def test_request_headers_are_kios(client_id: str | None) -> None:
    for case in REQUESTS:
        schema = case.kio.__header_schema__
        assert schema in (KioRequestHeader1, KioRequestHeader2)
        theirs = written(
            schema(
                request_api_key=case.kio.__api_key__,
                request_api_version=case.version,
                correlation_id=-7,
                client_id=client_id,
            )
        )
        ours = RequestHeader(case.message.API_KEY, case.version, -7, client_id)  # type: ignore[attr-defined]
        assert encode_request_header(ours) == theirs
        assert parse_request_header(memoryview(theirs + b"message")) == (ours, len(theirs))


def test_response_headers_are_kios() -> None:
    for case in RESPONSES:
        schema = case.kio.__header_schema__
        assert schema in (KioResponseHeader0, KioResponseHeader1)
        theirs = written(schema(correlation_id=12345))
        key = case.kio.__api_key__
        assert encode_response_header(key, case.version, 12345) == theirs
        assert parse_response_header(memoryview(theirs + b"message"), key, case.version) == (
            12345,
            len(theirs),
        )


def test_the_response_to_api_versions_always_has_the_oldest_header() -> None:
    for version in (0, 3, 4, 99):
        assert encode_response_header(ApiKey.API_VERSIONS, version, 1) == b"\0\0\0\1"


def test_unknown_tagged_fields_of_headers_are_skipped() -> None:
    frame = b"\0\0\0\x0c\0\0\0\x05\0\2me" + b"\x01\x07\x03abc" + b"message"
    assert parse_request_header(memoryview(frame)) == (RequestHeader(0, 12, 5, "me"), len(frame) - 7)
    assert parse_response_header(memoryview(b"\0\0\0\x05\x01\x07\x03abc"), ApiKey.PRODUCE, 12) == (5, 10)


@pytest.mark.parametrize(
    ("key", "version"), [(ApiKey.API_VERSIONS, 99), (ApiKey.PRODUCE, 2), (9999, 0), (-1, -1)]
)
def test_key_version_and_correlation_id_are_found_whatever_is_asked(key: int, version: int) -> None:
    start = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\x2a"
    header, _ = parse_request_header(memoryview(start + b"\0\2me" + b"\0"))
    assert header == RequestHeader(key, version, 42, "me")
    for nonsense in (b"", b"\0", b"\0\x09abc", b"\xff\xfe", b"\0\1\xff"):
        header, position = parse_request_header(memoryview(start + nonsense))
        assert (header.api_key, header.api_version, header.correlation_id) == (key, version, 42)
        assert position <= len(start + nonsense)


@pytest.mark.parametrize(
    "case", [case for case in REQUESTS if case.version == case.message.VERSIONS[1]], ids=str
)
def test_a_header_cut_short_is_refused(case: Case) -> None:
    key = case.message.API_KEY  # type: ignore[attr-defined]
    whole = encode_request_header(RequestHeader(key, case.version, 1, "client"))
    for end in range(len(whole)):
        with pytest.raises(DecodeError):
            parse_request_header(memoryview(whole)[:end])
    answer = encode_response_header(key, case.version, 1)
    for end in range(len(answer)):
        with pytest.raises(DecodeError):
            parse_response_header(memoryview(answer)[:end], key, case.version)


def test_a_client_id_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError):
        parse_request_header(memoryview(b"\0\0\0\x08\0\0\0\x01\0\1\xff"))


def test_a_frame_is_the_size_and_then_everything_in_order() -> None:
    batch = bytearray(b"batch")
    buffers = frame_message(b"head", [b"one", batch])
    assert b"".join(buffers) == b"\0\0\0\x0cheadonebatch"
    assert buffers[-1] is batch


def test_a_frame_cannot_be_larger_than_its_size_can_say() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    with pytest.raises(EncodeError):
        frame_message(b"", [Huge()])
