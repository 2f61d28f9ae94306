"""Kafka's knowledge of its tiered segments: the records of its topic `__remote_log_metadata`.

A record is a frame of three varints (frame version, kind of message, its version) and the message. A
segment is named when its copy starts, and changes its state by later records. Only a copy that was
finished, and that no deletion has begun on, holds what it says.

The name of an object says which segment of which partition it belongs to.
Apache's LocalTieredStorage: `<topic>-<partition>-<topic id>/<20 digits>-<segment id>.<suffix>`.
Aiven's plugin, version 1: `<prefix><topic>-<topic id>/<partition>/<20 digits>-<segment id>.<suffix>`.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from dray.kafka.protocol.messages.stored_remote_segments import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    RemotePartitionDeleteMetadataRecord,
)
from dray.kafka.protocol.wire import DecodeError, read_uvarint
from dray.kafka.records import Buffer
from dray.migration.formats.batches import ForeignDamage, ForeignUnsupported

TOPIC: Final = "__remote_log_metadata"
_FRAME: Final = 1


class SegmentState(IntEnum):
    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


class SegmentName(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    segment_id: UUID


class RemoteSegment(NamedTuple):
    name: SegmentName
    start_offset: int
    end_offset: int
    """The last offset, included."""
    max_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    size: int
    state: SegmentState
    custom: bytes | None


class SegmentUpdate(NamedTuple):
    name: SegmentName
    state: SegmentState
    custom: bytes | None


class PartitionDeletion(NamedTuple):
    topic_id: UUID
    partition: int


def read_remote_record(value: Buffer) -> RemoteSegment | SegmentUpdate | PartitionDeletion:
    """One record of the topic. Raises `ForeignFault`."""
    view = memoryview(value)
    try:
        frame, position = read_uvarint(view, 0)
        kind, position = read_uvarint(view, position)
        version, position = read_uvarint(view, position)
        if frame != _FRAME:
            raise ForeignUnsupported(f"frame version {frame} of a record of {TOPIC}")
        if kind not in _KINDS:
            raise ForeignUnsupported(f"a record of kind {kind} in {TOPIC}", 1)
        first, last = _KINDS[kind].VERSIONS
        if not first <= version <= last:
            raise ForeignUnsupported(f"version {version} of {_KINDS[kind].__name__}", 2)
        message, end = _KINDS[kind].decode(view, position, version)
    except (DecodeError, IndexError) as error:
        raise ForeignDamage(f"a record of {TOPIC}: {error}") from None
    if end != len(view):
        raise ForeignDamage(f"{len(view) - end} bytes behind a record of {TOPIC}", end)
    if isinstance(message, RemotePartitionDeleteMetadataRecord):
        place = message.topic_id_partition
        return PartitionDeletion(place.id, place.partition)
    name = _name(message.remote_log_segment_id)
    state = _state(message.remote_log_segment_state)
    if isinstance(message, RemoteLogSegmentMetadataUpdateRecord):
        return SegmentUpdate(name, state, message.custom_metadata)
    if not 0 <= message.start_offset <= message.end_offset:
        raise ForeignDamage(f"a segment from offset {message.start_offset} to {message.end_offset}", position)
    return RemoteSegment(
        name,
        message.start_offset,
        message.end_offset,
        message.max_timestamp_ms,
        tuple((row.leader_epoch, row.offset) for row in message.segment_leader_epochs),
        message.segment_size_in_bytes,
        state,
        message.custom_metadata,
    )


class RemoteSegments:
    """The segments of one topic id, as the records say that were taken so far, in their order."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._segments: dict[UUID, RemoteSegment] = {}

    def take(self, value: Buffer) -> None:
        record = read_remote_record(value)
        if isinstance(record, PartitionDeletion):
            gone = record.topic_id, record.partition
            self._segments = {
                segment_id: each
                for segment_id, each in self._segments.items()
                if (each.name.topic_id, each.name.partition) != gone
            }
        elif record.name.topic != self._topic:
            return
        elif isinstance(record, RemoteSegment):
            self._segments[record.name.segment_id] = record
        else:
            # An unknown segment began before the topic's first record that is still there: it stays unknown.
            known = self._segments.get(record.name.segment_id)
            if known is not None:
                custom = known.custom if record.custom is None else record.custom
                self._segments[record.name.segment_id] = known._replace(state=record.state, custom=custom)

    def finished(self) -> dict[UUID, RemoteSegment]:
        """Those that are whole, by their id."""
        return {
            segment_id: each
            for segment_id, each in self._segments.items()
            if each.state is SegmentState.COPY_FINISHED
        }


def _name(entry: RemoteLogSegmentIdEntry) -> SegmentName:
    place = entry.topic_id_partition
    return SegmentName(place.name, place.id, place.partition, entry.id)


def _state(number: int) -> SegmentState:
    try:
        return SegmentState(number)
    except ValueError:
        raise ForeignUnsupported(f"state {number} of a remote segment") from None


_KINDS: Final = {
    message.API_KEY: message
    for message in (
        RemoteLogSegmentMetadataRecord,
        RemoteLogSegmentMetadataUpdateRecord,
        RemotePartitionDeleteMetadataRecord,
    )
}


# --- names of objects

_ID: Final = r"[A-Za-z0-9_-]{22}"
_TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
_FILE: Final = rf"(?P<base>[0-9]{{20}})-(?P<segment>{_ID})\.(?P<suffix>[a-z_-]+)"
_LOCAL: Final = re.compile(rf"(?:.*/)?(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,7}})-(?P<id>{_ID})/{_FILE}")
_AIVEN: Final = re.compile(rf"(?:.*/)?(?P<topic>{_TOPIC})-(?P<id>{_ID})/(?P<partition>[0-9]{{1,7}})/{_FILE}")

LOCAL_SUFFIXES: Final = frozenset(
    {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint", "txnindex"}
)
AIVEN_SUFFIXES: Final = frozenset({"log", "indexes", "rsm-manifest"})


class TieredName(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    segment_id: UUID
    suffix: str


def parse_local(path: str) -> TieredName | None:
    """None for an object that is not of this layout."""
    return _parsed(_LOCAL, LOCAL_SUFFIXES, path)


def parse_aiven(path: str, prefix: str = "") -> TieredName | None:
    """The plugin writes the topic right behind its prefix, which may not end in a slash."""
    return _parsed(_AIVEN, AIVEN_SUFFIXES, path.removeprefix(prefix)) if path.startswith(prefix) else None


def kafka_uuid(text: str) -> UUID:
    """An id as Kafka writes it: base64 for URLs, without padding. Raises `ValueError`."""
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _parsed(layout: re.Pattern[str], suffixes: frozenset[str], path: str) -> TieredName | None:
    found = layout.fullmatch(path)
    if found is None or found["suffix"] not in suffixes or int(found["base"]) >= 2**63:
        return None
    return TieredName(
        found["topic"],
        kafka_uuid(found["id"]),
        int(found["partition"]),
        int(found["base"]),
        kafka_uuid(found["segment"]),
        found["suffix"],
    )
