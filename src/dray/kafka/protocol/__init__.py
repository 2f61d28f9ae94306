"""Kafka's wire protocol: bytes in, typed messages out, and back.

Messages live in `dray.kafka.protocol.messages.<api>` and are generated; import the ones you need from there.
"""

from dray.kafka.protocol.errors import ErrorCode
from dray.kafka.protocol.frames import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    frame_message,
    parse_request_header,
    parse_response_header,
    request_class,
    response_class,
)
from dray.kafka.protocol.message import NEVER_FLEXIBLE, Message, Request, Response, Struct
from dray.kafka.protocol.messages.schemas import SCHEMAS, ApiKey, ApiSchema
from dray.kafka.protocol.wire import (
    ENDLESS,
    ZERO_UUID,
    Buffer,
    DecodeError,
    EncodeError,
    ProtocolError,
    Records,
    TooManyElements,
    elements_used,
)

__all__ = [
    "ENDLESS",
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
    "TooManyElements",
    "elements_used",
    "encode_request_header",
    "encode_response_header",
    "frame_message",
    "parse_request_header",
    "parse_response_header",
    "request_class",
    "response_class",
]
