"""Kafka's wire protocol: bytes in, typed messages out, and back.

Messages live in `dray.protocol.messages.<api>` and are generated; import the ones you need from there.
"""

from dray.protocol.catalog import request_class, response_class
from dray.protocol.errors import ErrorCode
from dray.protocol.headers import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    frame_message,
    parse_request_header,
    parse_response_header,
)
from dray.protocol.message import NEVER_FLEXIBLE, Message, Request, Response, Struct
from dray.protocol.messages.schemas import SCHEMAS, ApiKey, ApiSchema
from dray.protocol.wire import ZERO_UUID, Buffer, DecodeError, EncodeError, ProtocolError, Records

__all__ = [
    "NEVER_FLEXIBLE",
    "SCHEMAS",
    "ZERO_UUID",
    "ApiKey",
    "ApiSchema",
    "Buffer",
    "DecodeError",
    "EncodeError",
    "ErrorCode",
    "Message",
    "ProtocolError",
    "Records",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    "encode_request_header",
    "encode_response_header",
    "frame_message",
    "parse_request_header",
    "parse_response_header",
    "request_class",
    "response_class",
]
