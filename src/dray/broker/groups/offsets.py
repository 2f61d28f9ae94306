"""Committed offsets of any group: what is stored of one, what may be committed, and when it expires.

Format 2 of the stored value, behind the version byte:

    int64 offset, int32 leader epoch, int64 commit time, int64 expiry time (-1: none), 16 bytes topic id,
    then the metadata

Format 1 is the same without the topic id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.wire import make_uuid
from dray.metadata.values import ValueCorrupt, seal, unseal

OFFSET_FORMAT: Final = 2
DEFAULT_LARGEST_METADATA: Final = 4096
DEFAULT_RETENTION_MS: Final = 7 * 24 * 3600 * 1000
NO_LEADER_EPOCH: Final = -1
NO_EXPIRY: Final = -1
UNSPECIFIED_RETENTION: Final = -1
"""The `retention_time_ms` of a client that leaves it to the broker."""

_LAST_MS: Final = 2**63 - 1
_FIXED = Struct(">qiqq")
_ID_SIZE: Final = 16
_FIRST_FORMAT_WITH_TOPIC_ID: Final = 2
_WHAT: Final = "a committed offset"


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY
    """When it expires, whatever the group does; only old clients say so."""

    topic_id: UUID = ZERO_UUID
    """Of the topic that it was committed for; zero in what format 1 wrote."""

    @classmethod
    def at(
        cls,
        offset: int,
        leader_epoch: int,
        metadata: str | None,
        now_ms: int,
        retention_ms: int = UNSPECIFIED_RETENTION,
        topic_id: UUID = ZERO_UUID,
    ) -> CommittedOffset:
        """As it is committed now. `retention_ms` is what OffsetCommit carries up to version 4."""
        expire_ms = NO_EXPIRY
        if retention_ms != UNSPECIFIED_RETENTION:
            expire_ms = max(0, min(now_ms + retention_ms, _LAST_MS))
        return cls(offset, leader_epoch, metadata or "", now_ms, expire_ms, topic_id)

    def encode(self) -> bytes:
        fixed = _FIXED.pack(self.offset, self.leader_epoch, self.commit_ms, self.expire_ms)
        return seal(OFFSET_FORMAT, fixed + self.topic_id.bytes + self.metadata.encode())

    @classmethod
    def decode(cls, value: bytes) -> CommittedOffset:
        version, body = unseal(_WHAT, value, OFFSET_FORMAT)
        start = _FIXED.size + (_ID_SIZE if version >= _FIRST_FORMAT_WITH_TOPIC_ID else 0)
        if len(body) < start:
            raise ValueCorrupt(_WHAT, f"it has only {len(body)} bytes")
        offset, leader_epoch, commit_ms, expire_ms = _FIXED.unpack_from(body)
        topic_id = make_uuid(bytes(body[_FIXED.size : start])) if start > _FIXED.size else ZERO_UUID
        try:
            metadata = str(body[start:], "utf-8")
        except UnicodeDecodeError as error:
            raise ValueCorrupt(_WHAT, str(error)) from error
        return cls(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)

    @property
    def largest_size(self) -> int:
        """No fewer bytes than it takes encoded."""
        metadata = len(self.metadata) if self.metadata.isascii() else 4 * len(self.metadata)
        return 1 + _FIXED.size + _ID_SIZE + metadata

    def is_of(self, topic_id: UUID) -> bool:
        """Whether it may have been committed for this topic, and not for an earlier one of the same name."""
        return self.topic_id in (topic_id, ZERO_UUID)


def metadata_fault(metadata: str | None, largest: int = DEFAULT_LARGEST_METADATA) -> ErrorCode:
    """Whether it may be stored with an offset. Kafka counts as Java does: in UTF-16 units."""
    if metadata is None or 2 * len(metadata) <= largest:
        return ErrorCode.NONE
    size = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-le")) // 2
    return ErrorCode.NONE if size <= largest else ErrorCode.OFFSET_METADATA_TOO_LARGE


class ExpiryRule(NamedTuple):
    """From when on the offsets of a group grow old, and which do not."""

    since_ms: int | None
    """None: each from its own commit on."""

    is_subscribed: Callable[[str], bool]
    """Offsets of a topic that the group still reads do not expire."""


def is_expired(offset: CommittedOffset, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if offset.expire_ms != NO_EXPIRY:
        return now_ms >= offset.expire_ms
    return now_ms - (offset.commit_ms if since_ms is None else since_ms) >= retention_ms


def expired_offsets(
    offsets: Mapping[tuple[str, int], CommittedOffset], rule: ExpiryRule, now_ms: int, retention_ms: int
) -> list[tuple[str, int]]:
    """The (topic, partition) whose offsets are to be deleted."""
    return [
        (topic, partition)
        for (topic, partition), offset in offsets.items()
        if not rule.is_subscribed(topic) and is_expired(offset, rule.since_ms, now_ms, retention_ms)
    ]
