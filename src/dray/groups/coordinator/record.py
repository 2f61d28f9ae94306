"""The one record of a group: which coordinator wrote it last, what kind of group it is, and its state.

Format 1, behind the version byte: the kind (one byte), the coordinator epoch (int64), and the state in the
format of its own machine. Every takeover raises the coordinator epoch, so that what an earlier coordinator
still has under way finds another version there than it expects.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from dray.metadata.values import ValueCorrupt, seal, unseal

RECORD_FORMAT: Final = 1

_HEAD = Struct(">Bq")


class GroupKind(IntEnum):
    """Stored: never renumber."""

    CLASSIC = 1
    """Also of a simple group: committed offsets of consumers that assign partitions to themselves."""

    CONSUMER = 2
    DELETED = 3
    """Its offsets are being deleted: whoever finds it so goes on with that."""


class GroupRecord(NamedTuple):
    kind: GroupKind
    coordinator_epoch: int
    body: bytes


def encode_record(record: GroupRecord) -> bytes:
    return seal(RECORD_FORMAT, _HEAD.pack(record.kind, record.coordinator_epoch) + record.body)


def decode_record(group_id: str, value: bytes) -> GroupRecord:
    what = f"group '{group_id}'"
    _, content = unseal(what, value, RECORD_FORMAT)
    try:
        kind, coordinator_epoch = _HEAD.unpack_from(content, 0)
        return GroupRecord(GroupKind(kind), coordinator_epoch, bytes(content[_HEAD.size :]))
    except (struct.error, ValueError) as error:
        raise ValueCorrupt(what, str(error)) from error
