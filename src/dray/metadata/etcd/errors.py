"""What an error of etcd means for the caller.

Only what a server refuses *before* its log sees the write is safe to try again. A deadline, a lost
connection, a stopping server or a change of leaders leave open whether the write happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc
from grpc import aio

from dray.metadata.contract import MetadataError

NO_LEADER: Final = "etcdserver: no leader"
TOO_MANY_REQUESTS: Final = "etcdserver: too many requests"
INVALID_TOKEN: Final = "etcdserver: invalid auth token"
LEASE_NOT_FOUND: Final = "etcdserver: requested lease not found"
TOO_LARGE: Final = "etcdserver: request is too large"
MUCH_TOO_LARGE: Final = "received message larger than max"
TOO_MANY_OPERATIONS: Final = "etcdserver: too many operations in txn request"
NO_SPACE: Final = "database space exceeded"

# Answered before a request reaches the log, and gone in a moment.
PASSING: Final = frozenset({NO_LEADER, TOO_MANY_REQUESTS, INVALID_TOKEN})
# Answered before a request takes effect, and the same the next time.
HOPELESS_CODES: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
ADVICE: Final = {
    NO_SPACE: "compact and defragment it, raise --quota-backend-bytes, then `etcdctl alarm disarm`",
    TOO_LARGE: "raise --max-request-bytes of the servers",
    MUCH_TOO_LARGE: "raise --max-request-bytes of the servers",
    TOO_MANY_OPERATIONS: "raise --max-txn-ops of the servers",
}


class UnusableEtcd(MetadataError):
    """The servers are none that Dray can keep its metadata in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error, understood."""

    code: grpc.StatusCode
    text: str

    @property
    def passing(self) -> bool:
        """Nothing happened, and soon it may."""
        return self.text in PASSING

    @property
    def hopeless(self) -> bool:
        """Nothing happened, and another attempt would end the same way."""
        return self.code in HOPELESS_CODES and not self.passing

    def __str__(self) -> str:
        advice = next((advice for text, advice in ADVICE.items() if text in self.text), None)
        said = f"{self.text or 'no details'} ({self.code.name})"
        return said if advice is None else f"{said}: {advice}"


def understand(error: aio.AioRpcError) -> Fault:
    return Fault(error.code(), " ".join((error.details() or "").split()))
