"""Committed offsets as Kafka's brokers store them: the records of `__consumer_offsets`.

The key and the value each begin with a version. Keys of other kinds, groups and their members, are passed
over: members of a cluster that is gone are gone.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from dray.protocol.messages.stored_offsets import OffsetCommitKey, OffsetCommitValue
from dray.protocol.wire import DecodeError
from dray.records import Buffer

from .faults import ForeignDamage, ForeignUnsupported

TOPIC: Final = "__consumer_offsets"
_VERSION: Final = Struct(">h")


class OffsetPlace(NamedTuple):
    group: str
    topic: str
    partition: int


class StoredOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


def read_offset_record(key: Buffer, value: Buffer | None) -> tuple[OffsetPlace, StoredOffset | None] | None:
    """None for a record of another kind. A record without a value deletes the offset."""
    view = memoryview(key)
    if len(view) < _VERSION.size:
        raise ForeignDamage(f"a key of {len(view)} bytes in {TOPIC}")
    (version,) = _VERSION.unpack_from(view)
    first, last = OffsetCommitKey.VERSIONS
    if not first <= version <= last:
        return None
    try:
        found, end = OffsetCommitKey.decode(view, _VERSION.size, version)
    except DecodeError as error:
        raise ForeignDamage(f"a key of {TOPIC}: {error}") from None
    if end != len(view):
        raise ForeignDamage(f"{len(view) - end} bytes behind a key of {TOPIC}", end)
    place = OffsetPlace(found.group, found.topic, found.partition)
    return place, None if value is None else _value(memoryview(value))


def _value(view: memoryview) -> StoredOffset:
    if len(view) < _VERSION.size:
        raise ForeignDamage(f"a value of {len(view)} bytes in {TOPIC}")
    (version,) = _VERSION.unpack_from(view)
    first, last = OffsetCommitValue.VERSIONS
    if not first <= version <= last:
        raise ForeignUnsupported(f"version {version} of a committed offset")
    try:
        found, _ = OffsetCommitValue.decode(view, _VERSION.size, version)
    except DecodeError as error:
        raise ForeignDamage(f"a value of {TOPIC}: {error}") from None
    return StoredOffset(found.offset, found.leader_epoch, found.metadata, found.commit_timestamp)
