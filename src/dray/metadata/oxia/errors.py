"""The meaning of an error of Oxia for the caller.

A server says why in an `ErrorInfo` beside the gRPC status. Only what it refuses *before* the log sees the
write is safe to try again; a code without a reason of Oxia's comes from anywhere on the way, and leaves
open whether the write happened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from dray.metadata.contract import MetadataError
from dray.metadata.oxia.wire import errors_pb2 as wire

OXIA: Final = "oxia.io"
DETAILS: Final = "grpc-status-details-bin"

NODE_IS_NOT_LEADER: Final = "NODE_IS_NOT_LEADER"
NOT_INITIALIZED: Final = "NOT_INITIALIZED"
NAMESPACE_NOT_FOUND: Final = "NAMESPACE_NOT_FOUND"
SESSION_NOT_FOUND: Final = "SESSION_NOT_FOUND"
NOTIFICATIONS_NOT_ENABLED: Final = "NOTIFICATIONS_NOT_ENABLED"

# Each is answered before a request reaches the shard's log.
REFUSED_REASONS: Final = frozenset(
    {NODE_IS_NOT_LEADER, "NODE_IS_NOT_MEMBER", NOT_INITIALIZED, "SHARD_NOT_FOUND", NAMESPACE_NOT_FOUND}
)
# So are these: the server's front door, or our own library, turned the request away, and will again.
HOPELESS_CODES: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
# Oxia 0.14 gives no reason, and codes of its own, which gRPC for Python takes for UNKNOWN: its texts tell.
# An error in the log, or behind it, has such a text only at the end of another, and is none of these.
REASONS_OF_TEXTS: Final = (
    (re.compile(r"node is not leader for shard \d+"), NODE_IS_NOT_LEADER),
    (re.compile(r"Received message in the wrong state\. In \w+, should be LEADER\."), NODE_IS_NOT_LEADER),
    (re.compile(r"oxia: server not initialized yet"), NOT_INITIALIZED),
    (re.compile(r"oxia: namespace not found"), NAMESPACE_NOT_FOUND),
    (re.compile(r"oxia: session not found"), SESSION_NOT_FOUND),
    (re.compile(r"oxia: notifications not enabled on namespace"), NOTIFICATIONS_NOT_ENABLED),
)


class UnusableOxia(MetadataError):
    """The service is not one that Dray can keep its metadata in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error, understood."""

    code: grpc.StatusCode
    text: str
    reason: str = ""
    leader: str = ""
    """The shard's leader, if a server that does not lead it knows."""

    @property
    def refused(self) -> bool:
        """Nothing happened."""
        return self.reason in REFUSED_REASONS or self.hopeless or self.unknown_service

    @property
    def hopeless(self) -> bool:
        """Another attempt would end the same way."""
        return not self.reason and self.code in HOPELESS_CODES

    @property
    def unknown_service(self) -> bool:
        """The server goes by another name than it did. See `dray.metadata.oxia.server`."""
        return self.code is grpc.StatusCode.UNIMPLEMENTED

    def __str__(self) -> str:
        return f"{self.text or 'no details'} ({self.code.name})"


def understand(error: aio.AioRpcError) -> Fault:
    code, text = error.code(), (error.details() or "").strip()
    for info in _infos(error):
        if info.domain == OXIA and info.reason != "UNKNOWN":
            return Fault(code, text, info.reason, info.metadata.get("leader", ""))
    return Fault(code, text, _reason_of_text(text) if code is grpc.StatusCode.UNKNOWN else "")


def _reason_of_text(text: str) -> str:
    for pattern, reason in REASONS_OF_TEXTS:
        if pattern.fullmatch(text):
            return reason
    return ""


def _infos(error: aio.AioRpcError) -> list[wire.ErrorInfo]:
    infos = []
    for key, value in error.trailing_metadata() or ():
        if key != DETAILS or not isinstance(value, bytes):
            continue
        try:
            for detail in wire.ErrorStatus.FromString(value).details:
                if detail.type_url.endswith("google.rpc.ErrorInfo"):
                    infos.append(wire.ErrorInfo.FromString(detail.value))
        except DecodeError:
            continue  # not Oxia's: without a reason the code alone decides, on the careful side
    return infos
