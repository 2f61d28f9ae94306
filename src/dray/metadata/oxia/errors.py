"""What an error of Oxia means for the caller.

A server says why in an `ErrorInfo` beside the gRPC status. Only what it refuses *before* the log sees the
write is safe to try again; a code without a reason of Oxia's comes from anywhere on the way, and leaves
open whether the write happened.
"""

from __future__ import annotations

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
NAMESPACE_NOT_FOUND: Final = "NAMESPACE_NOT_FOUND"
SESSION_NOT_FOUND: Final = "SESSION_NOT_FOUND"
NOTIFICATIONS_NOT_ENABLED: Final = "NOTIFICATIONS_NOT_ENABLED"

# Each is answered before a request reaches the shard's log.
REFUSED_REASONS: Final = frozenset(
    {NODE_IS_NOT_LEADER, "NODE_IS_NOT_MEMBER", "NOT_INITIALIZED", "SHARD_NOT_FOUND", NAMESPACE_NOT_FOUND}
)
# So are these: the server's front door, or our own library, turned the request away, and will again.
HOPELESS_CODES: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
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
    """Who leads the shard, where the server that does not knows better."""

    @property
    def refused(self) -> bool:
        """Nothing happened."""
        return self.reason in REFUSED_REASONS or self.hopeless

    @property
    def hopeless(self) -> bool:
        """Another attempt would end the same way."""
        return not self.reason and self.code in HOPELESS_CODES

    def __str__(self) -> str:
        return f"{self.text or 'no details'} ({self.code.name})"


def understand(error: aio.AioRpcError) -> Fault:
    code, text = error.code(), (error.details() or "").strip()
    for info in _infos(error):
        if info.domain == OXIA and info.reason != "UNKNOWN":
            return Fault(code, text, info.reason, info.metadata.get("leader", ""))
    return Fault(code, text)


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
