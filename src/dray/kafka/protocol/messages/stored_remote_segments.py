"""Generated from Kafka's schema (tools/schemas) by tools/generate_messages.py. Do not edit.

RemoteLogSegmentMetadataRecord: version 0
RemoteLogSegmentMetadataUpdateRecord: version 0
RemotePartitionDeleteMetadataRecord: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Message, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    DecodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_bytes,
    read_compact_string,
    read_tag,
    read_tag_count,
    skip_tags,
    write_compact_count,
    write_compact_nullable_bytes,
    write_compact_string,
    write_tags,
)

pack_b = Layout(">b").pack
unpack_bB = Layout(">bB").unpack_from
pack_bx = Layout(">bx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_iq = Layout(">iq").pack
unpack_iq = Layout(">iq").unpack_from
unpack_iqB = Layout(">iqB").unpack_from
unpack_iqbB = Layout(">iqbB").unpack_from
pack_iqbx = Layout(">iqbx").pack
pack_iqx = Layout(">iqx").pack
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
pack_qqiqq = Layout(">qqiqq").pack
unpack_qqiqq = Layout(">qqiqq").unpack_from
unpack_uB = Layout(">16sB").unpack_from
unpack_uiB = Layout(">16siB").unpack_from
pack_uix = Layout(">16six").pack
pack_ux = Layout(">16sx").pack


@dataclass(slots=True, eq=False, repr=False)
class TopicIdPartitionEntry(Struct):
    """Version 0. Part of RemoteLogSegmentMetadataRecord."""

    name: str = ""
    id: UUID = ZERO_UUID
    partition: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[TopicIdPartitionEntry, int]:
        id: UUID
        name, position = read_compact_string(buffer, position, limit)
        id, partition, tags = unpack_uiB(buffer, position)
        position += 21
        id = make_uuid(id)
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicIdPartitionEntry(name, id, partition), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out += pack_uix(self.id.bytes, self.partition)


@dataclass(slots=True, eq=False, repr=False)
class RemoteLogSegmentIdEntry(Struct):
    """Version 0. Part of RemoteLogSegmentMetadataRecord."""

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    id: UUID = ZERO_UUID

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[RemoteLogSegmentIdEntry, int]:
        id: UUID
        topic_id_partition, position = TopicIdPartitionEntry.read(buffer, position, limit, version)
        id, tags = unpack_uB(buffer, position)
        position += 17
        id = make_uuid(id)
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return RemoteLogSegmentIdEntry(topic_id_partition, id), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        self.topic_id_partition.write(out, version, cuts)
        out += pack_ux(self.id.bytes)


@dataclass(slots=True, eq=False, repr=False)
class SegmentLeaderEpochEntry(Struct):
    """Version 0. Part of RemoteLogSegmentMetadataRecord."""

    leader_epoch: int = 0
    offset: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[SegmentLeaderEpochEntry, int]:
        leader_epoch, offset, tags = unpack_iqB(buffer, position)
        position += 13
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return SegmentLeaderEpochEntry(leader_epoch, offset), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_iqx(self.leader_epoch, self.offset)


@dataclass(slots=True, eq=False, repr=False)
class RemoteLogSegmentMetadataRecord(Message):
    """Version 0."""

    API_KEY = 0
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    start_offset: int = 0
    end_offset: int = 0
    broker_id: int = 0
    max_timestamp_ms: int = 0
    event_timestamp_ms: int = 0
    segment_leader_epochs: list[SegmentLeaderEpochEntry] = field(default_factory=list)
    segment_size_in_bytes: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0
    txn_index_empty: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[RemoteLogSegmentMetadataRecord, int]:
        segment_leader_epochs: list[SegmentLeaderEpochEntry]
        custom_metadata: bytes | None
        txn_index_empty: bool
        remote_log_segment_id, position = RemoteLogSegmentIdEntry.read(buffer, position, limit, version)
        start_offset, end_offset, broker_id, max_timestamp_ms, event_timestamp_ms = unpack_qqiqq(
            buffer, position
        )
        position += 36
        count, position = read_compact_count(buffer, position, limit, 13)
        segment_leader_epochs = []
        for _ in range(count):
            segment_leader_epoch_entry, position = SegmentLeaderEpochEntry.read(
                buffer, position, limit, version
            )
            segment_leader_epochs.append(segment_leader_epoch_entry)
        (segment_size_in_bytes,) = unpack_i(buffer, position)
        position += 4
        custom_metadata, position = read_compact_nullable_bytes(buffer, position, limit)
        remote_log_segment_state, tags = unpack_bB(buffer, position)
        position += 2
        txn_index_empty = False
        if tags:
            tags, position = read_tag_count(buffer, position - 1, limit)
            tag = -1
            for _ in range(tags):
                tag, start, end = read_tag(buffer, position, limit, tag)
                if tag == 0:
                    (txn_index_empty,) = unpack_o(buffer, start)
                    start += 1
                else:
                    start = end
                if start != end:
                    raise DecodeError("a tagged field of RemoteLogSegmentMetadataRecord has the wrong size")
                position = end
        return RemoteLogSegmentMetadataRecord(
            remote_log_segment_id,
            start_offset,
            end_offset,
            broker_id,
            max_timestamp_ms,
            event_timestamp_ms,
            segment_leader_epochs,
            segment_size_in_bytes,
            custom_metadata,
            remote_log_segment_state,
            txn_index_empty,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        self.remote_log_segment_id.write(out, version, cuts)
        out += pack_qqiqq(
            self.start_offset, self.end_offset, self.broker_id, self.max_timestamp_ms, self.event_timestamp_ms
        )
        write_compact_count(out, len(self.segment_leader_epochs))
        for segment_leader_epoch_entry in self.segment_leader_epochs:
            segment_leader_epoch_entry.write(out, version, cuts)
        out += pack_i(self.segment_size_in_bytes)
        write_compact_nullable_bytes(out, self.custom_metadata)
        out += pack_b(self.remote_log_segment_state)
        if self.txn_index_empty == False:
            out.append(0)
            return
        tagged: list[tuple[int, bytearray]] = []
        if self.txn_index_empty != False:
            value = bytearray()
            value += pack_o(self.txn_index_empty)
            tagged.append((0, value))
        write_tags(out, tagged)


@dataclass(slots=True, eq=False, repr=False)
class RemoteLogSegmentMetadataUpdateRecord(Message):
    """Version 0."""

    API_KEY = 1
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    remote_log_segment_id: RemoteLogSegmentIdEntry = field(default_factory=RemoteLogSegmentIdEntry)
    broker_id: int = 0
    event_timestamp_ms: int = 0
    custom_metadata: bytes | None = None
    remote_log_segment_state: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[RemoteLogSegmentMetadataUpdateRecord, int]:
        custom_metadata: bytes | None
        remote_log_segment_id, position = RemoteLogSegmentIdEntry.read(buffer, position, limit, version)
        broker_id, event_timestamp_ms = unpack_iq(buffer, position)
        position += 12
        custom_metadata, position = read_compact_nullable_bytes(buffer, position, limit)
        remote_log_segment_state, tags = unpack_bB(buffer, position)
        position += 2
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return RemoteLogSegmentMetadataUpdateRecord(
            remote_log_segment_id, broker_id, event_timestamp_ms, custom_metadata, remote_log_segment_state
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        self.remote_log_segment_id.write(out, version, cuts)
        out += pack_iq(self.broker_id, self.event_timestamp_ms)
        write_compact_nullable_bytes(out, self.custom_metadata)
        out += pack_bx(self.remote_log_segment_state)


@dataclass(slots=True, eq=False, repr=False)
class RemotePartitionDeleteMetadataRecord(Message):
    """Version 0."""

    API_KEY = 2
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    topic_id_partition: TopicIdPartitionEntry = field(default_factory=TopicIdPartitionEntry)
    broker_id: int = 0
    event_timestamp_ms: int = 0
    remote_partition_delete_state: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[RemotePartitionDeleteMetadataRecord, int]:
        topic_id_partition, position = TopicIdPartitionEntry.read(buffer, position, limit, version)
        broker_id, event_timestamp_ms, remote_partition_delete_state, tags = unpack_iqbB(buffer, position)
        position += 14
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return RemotePartitionDeleteMetadataRecord(
            topic_id_partition, broker_id, event_timestamp_ms, remote_partition_delete_state
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        self.topic_id_partition.write(out, version, cuts)
        out += pack_iqbx(self.broker_id, self.event_timestamp_ms, self.remote_partition_delete_state)
