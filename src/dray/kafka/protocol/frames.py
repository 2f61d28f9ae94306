"""Frames: a four-byte size and that many bytes, which are a header and a message.

Which version of the header is used follows from the API and its version: flexible messages have flexible
headers, with one exception. The response to ApiVersions always has the oldest header, since a client sends
that request before it knows what the broker speaks. The classes of an API's messages are found by its key,
and their module is loaded only then.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from struct import Struct
from typing import Any, cast

from dray.kafka.protocol.message import Request, Response
from dray.kafka.protocol.messages.schemas import SCHEMAS, ApiKey
from dray.kafka.protocol.wire import (
    LARGEST_INT32,
    Buffer,
    DecodeError,
    EncodeError,
    read_nullable_string,
    skip_header_tags,
    write_nullable_string,
)

_REQUEST_START = Struct(">hhi")
_INT32 = Struct(">i")


@dataclass(slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request (its frame without the size), and where the message begins.

    Key, version and correlation id are found for any API and version, so that the caller can refuse what it
    does not serve in the way Kafka does. If we do not know the layout behind them, the client id is read if
    it is there and given up if it is not.
    """
    try:
        api_key, api_version, correlation_id = _REQUEST_START.unpack_from(frame, 0)
    except struct.error:
        raise DecodeError(f"a request of {len(frame)} bytes has no room for its header") from None
    header = RequestHeader(api_key, api_version, correlation_id)
    schema = SCHEMAS.get(api_key)
    flexible = schema is not None and api_version >= schema.flexible_from
    try:
        header.client_id, position = read_nullable_string(frame, 8, len(frame))
        if flexible:
            position = skip_header_tags(frame, position, len(frame))
    except (IndexError, struct.error, ValueError) as error:
        if schema is None or not schema.first_version <= api_version <= schema.last_version:
            return header, len(frame)
        raise DecodeError("the header of a request is malformed") from error
    return header, position


def encode_request_header(header: RequestHeader) -> bytes:
    out = bytearray(_REQUEST_START.pack(header.api_key, header.api_version, header.correlation_id))
    write_nullable_string(out, header.client_id)
    if header.api_version >= SCHEMAS[header.api_key].flexible_from:
        out.append(0)
    return bytes(out)


def _response_header_is_flexible(api_key: int, api_version: int) -> bool:
    schema = SCHEMAS.get(api_key)
    return schema is not None and api_key != ApiKey.API_VERSIONS and api_version >= schema.flexible_from


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    if _response_header_is_flexible(api_key, api_version):
        return _INT32.pack(correlation_id) + b"\0"
    return _INT32.pack(correlation_id)


def parse_response_header(frame: memoryview, api_key: int, api_version: int) -> tuple[int, int]:
    """The correlation id of a response, and where its message begins."""
    try:
        (correlation_id,) = _INT32.unpack_from(frame, 0)
        position = 4
        if _response_header_is_flexible(api_key, api_version):
            position = skip_header_tags(frame, position, len(frame))
    except (IndexError, struct.error):
        raise DecodeError(f"a response of {len(frame)} bytes has no room for its header") from None
    return correlation_id, position


def frame_message(header: bytes, body: Sequence[Buffer]) -> list[Buffer]:
    """A whole frame as buffers to send in order: the size and the header, then the message as it lies."""
    size = len(header) + sum(map(len, body))
    if size > LARGEST_INT32:
        raise EncodeError(f"a message of {size} bytes does not fit in a frame")
    return [_INT32.pack(size) + header, *body]


# --- the messages of an API


@cache
def request_class(api_key: int) -> type[Request[Any]]:
    """`KeyError` if there are no messages for this key."""
    return cast("type[Request[Any]]", _message_class(api_key, "Request"))


@cache
def response_class(api_key: int) -> type[Response]:
    """`KeyError` if there are no messages for this key."""
    return cast("type[Response]", _message_class(api_key, "Response"))


def _message_class(api_key: int, direction: str) -> object:
    schema = SCHEMAS[api_key]
    return getattr(import_module(f"dray.kafka.protocol.messages.{schema.module}"), schema.name + direction)
