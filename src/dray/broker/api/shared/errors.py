"""From an error of the rooms below to the Kafka code that makes clients do the right thing.

A code decides what the client does next. If the choice is not obvious, a comment says why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

from dray.base.runtime import CloseConnection
from dray.broker.topics import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    InvalidTopicRequest,
    TopicError,
    TopicExists,
    TopicsUnavailable,
    TopicUnreadable,
    UnknownTopic,
    UnknownTopicId,
)
from dray.kafka.protocol import ErrorCode, Struct
from dray.kafka.records import RecordFault
from dray.log.origins import SourceOwnsLog
from dray.log.types import (
    LogError,
    LogUnavailable,
    ObjectCorrupt,
    OffsetOutOfRange,
    OutOfOrderSequence,
    OutsideFault,
    OutsideStoreAway,
    ProducerFenced,
    StreamClosed,
)


class RefuseConnection(CloseConnection):
    """A request to which no answer of Kafka's protocol fits."""


NO_TRANSACTIONS: Final = (
    "Dray does not support transactions: leave transactional.id and exactly-once settings out "
    "(idempotent producers work without)."
)

TRANSACTIONS_REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
"""The answer to a transactional id in Produce and InitProducerId: every client stops on this code at once."""


def no_coordinator_of_transactions(version: int, software: str) -> ErrorCode:
    """The code with which FindCoordinator refuses transactions: every transactional producer asks it first.
    librdkafka, which asks in version 2 under many names, stops only on a code of authorization, and otherwise
    asks until it times out; it shows the message too. To other clients that code would look like missing
    rights, and sarama asks in version 2 as well: `docs/design/0070` lists what each client was seen to do."""
    may_be_librdkafka = version in (2, 3) and software != "sarama"
    return TRANSACTIONS_REFUSED if may_be_librdkafka else ErrorCode.UNSUPPORTED_VERSION


def is_kafkas_admin(client_id: str | None) -> bool:
    """By the name that Kafka's Admin gives itself. It shows a refused coordinator as an unexpected error, so
    it is led on, and told that no such id was found. InitProducerId stops a producer of this name."""
    return client_id is not None and client_id.startswith("adminclient-")


_TOPIC_ERRORS: Final[Mapping[type[TopicError], ErrorCode]] = {
    InvalidConfig: ErrorCode.INVALID_CONFIG,
    InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    InvalidTopicName: ErrorCode.INVALID_TOPIC_EXCEPTION,
    InvalidTopicRequest: ErrorCode.INVALID_REQUEST,
    TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    UnknownTopic: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    UnknownTopicId: ErrorCode.UNKNOWN_TOPIC_ID,
    # The change may have been made: the client may try again, and may find it done.
    TopicsUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    # For administrators, whose clients end at once on this code and show the message, which says what to do.
    # Producers and consumers get LEADER_NOT_AVAILABLE or NOT_LEADER_OR_FOLLOWER, no leader *now*: they try
    # again, elsewhere too, until a broker that can read the topic serves it. None of these codes lets a
    # client take the topic for gone, or create it.
    TopicUnreadable: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def topic_error(error: TopicError) -> ErrorCode:
    code = _code_of(error, _TOPIC_ERRORS)
    if code is None:
        raise AssertionError(f"no Kafka code for {type(error).__name__}")
    return code


def _code_of(error: Exception, codes: Mapping[type[Any], ErrorCode]) -> ErrorCode | None:
    """The code of the error's class, or of its nearest base class."""
    for kind in type(error).__mro__:
        code = codes.get(kind)
        if code is not None:
            return code
    return None


_APPEND_ERRORS: Final[Mapping[type[LogError], ErrorCode]] = {
    StreamClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    # The records may be there. Every client retries this code, and librdkafka holds them for "possibly
    # persisted", where NOT_LEADER_OR_FOLLOWER and KAFKA_STORAGE_ERROR would say that they are not.
    LogUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    # Dray does not lead this log yet: the client asks for metadata again.
    SourceOwnsLog: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}


def append_error(error: LogError) -> ErrorCode:
    return _code_of(error, _APPEND_ERRORS) or ErrorCode.UNKNOWN_SERVER_ERROR


_READ_ERRORS: Final[Mapping[type[LogError], ErrorCode]] = {
    StreamClosed: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    # Retried after a pause by every client that knows it. Java takes REQUEST_TIMED_OUT here for a bug, and
    # aiokafka raises it where it looks for offsets.
    LogUnavailable: ErrorCode.KAFKA_STORAGE_ERROR,
    # As a broker whose tiered storage does not answer says it: the partition waits, the application lives.
    OutsideFault: ErrorCode.KAFKA_STORAGE_ERROR,
    # It was read again and again: another try does not help, and the application must see the error.
    ObjectCorrupt: ErrorCode.CORRUPT_MESSAGE,
}


def read_error(error: LogError, *, knows_storage_error: bool = True) -> ErrorCode:
    """Versions older than KAFKA_STORAGE_ERROR get the code that Kafka sends in its place. A store that has a
    damaged value is not away: asking again does not help."""
    if error.is_damage:
        return _READ_ERRORS[ObjectCorrupt]
    code = _code_of(error, _READ_ERRORS) or ErrorCode.UNKNOWN_SERVER_ERROR
    if code is ErrorCode.KAFKA_STORAGE_ERROR and not knows_storage_error:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


def is_told_elsewhere(error: LogError) -> bool:
    """That a store of the cluster is away, or answers badly, is told once, and not for each request."""
    return (
        isinstance(error, LogUnavailable) and not isinstance(error, OutsideStoreAway) and not error.is_damage
    )


RECORD_FAULTS: Final[Mapping[RecordFault, ErrorCode]] = {
    RecordFault.CORRUPT: ErrorCode.CORRUPT_MESSAGE,
    RecordFault.INVALID_RECORD: ErrorCode.INVALID_RECORD,
    RecordFault.UNSUPPORTED_FORMAT: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    RecordFault.UNSUPPORTED_COMPRESSION: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    # Also for a batch that decompresses to too much: on this code producers split the batch, which helps.
    RecordFault.TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}


# --- errors in an answer, for the metrics
#
# Requests to produce and to fetch count theirs where they come up. Of all other answers the parts are looked
# through, as far as that costs little.


_MOST_PARTS: Final = 2000
_holders: dict[type[Struct], tuple[bool, tuple[str, ...]]] = {}


def errors_in(answer: Struct) -> list[int]:
    """The error codes of an answer and of its parts; of a large one those of some parts."""
    found: list[int] = []
    left = [answer]
    looked = 0
    while left and looked < _MOST_PARTS:
        looked += 1
        part: Any = left.pop()
        has_code, names = _holder(type(part))
        if has_code and part.error_code:
            found.append(part.error_code)
        for name in names:
            left += getattr(part, name) or ()
    return found


def _holder(kind: type[Struct]) -> tuple[bool, tuple[str, ...]]:
    """Whether it has a code, and the names of its lists of parts that may have some."""
    known = _holders.get(kind)
    if known is None:
        types = getattr(kind, "__annotations__", {})
        parts = tuple(
            name
            for name, written in types.items()
            if (inner := _part_of(kind, str(written))) is not None and any(map(bool, _holder(inner)))
        )
        known = _holders[kind] = "error_code" in types, parts
    return known


def _part_of(kind: type[Struct], written: str) -> type[Struct] | None:
    """The class of a list's parts; None of any other field."""
    name = written.removesuffix(" | None").removeprefix("list[").removesuffix("]")
    found = getattr(sys.modules[kind.__module__], name, None) if written.startswith("list[") else None
    return found if isinstance(found, type) and issubclass(found, Struct) else None
