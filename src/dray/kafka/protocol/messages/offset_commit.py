"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

OffsetCommitRequest: versions 2 to 10
OffsetCommitResponse: versions 2 to 10
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
unpack_ihB = Layout(">ihB").unpack_from
pack_ihx = Layout(">ihx").pack
pack_iq = Layout(">iq").pack
unpack_iq = Layout(">iq").unpack_from
pack_iqi = Layout(">iqi").pack
unpack_iqi = Layout(">iqi").unpack_from
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitRequestPartition(Struct):
    """Versions 2 to 10. Part of OffsetCommitRequest."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    committed_metadata: str | None = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetCommitRequestPartition, int]:
        committed_metadata: str | None
        if version >= 8:
            partition_index, committed_offset, committed_leader_epoch = unpack_iqi(buffer, position)
            position += 16
            committed_metadata, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitRequestPartition(
                partition_index, committed_offset, committed_leader_epoch, committed_metadata
            ), position
        partition_index, committed_offset = unpack_iq(buffer, position)
        position += 12
        if version >= 6:
            (committed_leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            committed_leader_epoch = -1
        committed_metadata, position = read_nullable_string(buffer, position, limit)
        return OffsetCommitRequestPartition(
            partition_index, committed_offset, committed_leader_epoch, committed_metadata
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            out += pack_iqi(self.partition_index, self.committed_offset, self.committed_leader_epoch)
            write_compact_nullable_string(out, self.committed_metadata)
            out.append(0)
            return
        out += pack_iq(self.partition_index, self.committed_offset)
        if version >= 6:
            out += pack_i(self.committed_leader_epoch)
        write_nullable_string(out, self.committed_metadata)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitRequestTopic(Struct):
    """Versions 2 to 10. Part of OffsetCommitRequest."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetCommitRequestTopic, int]:
        topic_id: UUID
        partitions: list[OffsetCommitRequestPartition]
        if version >= 8:
            if version >= 10:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 9:
                name, position = read_compact_string(buffer, position, limit)
            else:
                name = ""
            count, position = read_compact_count(buffer, position, limit, 18)
            partitions = []
            for _ in range(count):
                offset_commit_request_partition, position = OffsetCommitRequestPartition.read(
                    buffer, position, limit, version
                )
                partitions.append(offset_commit_request_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitRequestTopic(topic_id, name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 18 if version >= 6 else 14)
        partitions = []
        for _ in range(count):
            offset_commit_request_partition, position = OffsetCommitRequestPartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_commit_request_partition)
        return OffsetCommitRequestTopic(ZERO_UUID, name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            if version >= 10:
                out += pack_u(self.topic_id.bytes)
            if version <= 9:
                write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for offset_commit_request_partition in self.partitions:
                offset_commit_request_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for offset_commit_request_partition in self.partitions:
            offset_commit_request_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitRequest(Request["OffsetCommitResponse"]):
    """Versions 2 to 10."""

    API_KEY = 8
    VERSIONS = (2, 10)
    FLEXIBLE_FROM = 8

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time_ms: int = -1
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetCommitRequest, int]:
        group_instance_id: str | None
        topics: list[OffsetCommitRequestTopic]
        if version >= 8:
            group_id, position = read_compact_string(buffer, position, limit)
            (generation_id_or_member_epoch,) = unpack_i(buffer, position)
            position += 4
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 10 else 3)
            topics = []
            for _ in range(count):
                offset_commit_request_topic, position = OffsetCommitRequestTopic.read(
                    buffer, position, limit, version
                )
                topics.append(offset_commit_request_topic)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitRequest(
                group_id, generation_id_or_member_epoch, member_id, group_instance_id, -1, topics
            ), position
        group_id, position = read_string(buffer, position, limit)
        (generation_id_or_member_epoch,) = unpack_i(buffer, position)
        position += 4
        member_id, position = read_string(buffer, position, limit)
        if version >= 7:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        if version <= 4:
            (retention_time_ms,) = unpack_q(buffer, position)
            position += 8
        else:
            retention_time_ms = -1
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_commit_request_topic, position = OffsetCommitRequestTopic.read(
                buffer, position, limit, version
            )
            topics.append(offset_commit_request_topic)
        return OffsetCommitRequest(
            group_id, generation_id_or_member_epoch, member_id, group_instance_id, retention_time_ms, topics
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            write_compact_string(out, self.group_id)
            out += pack_i(self.generation_id_or_member_epoch)
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            write_compact_count(out, len(self.topics))
            for offset_commit_request_topic in self.topics:
                offset_commit_request_topic.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.group_id)
        out += pack_i(self.generation_id_or_member_epoch)
        write_string(out, self.member_id)
        if version >= 7:
            write_nullable_string(out, self.group_instance_id)
        if version <= 4:
            out += pack_q(self.retention_time_ms)
        write_count(out, len(self.topics))
        for offset_commit_request_topic in self.topics:
            offset_commit_request_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitResponsePartition(Struct):
    """Versions 2 to 10. Part of OffsetCommitResponse."""

    partition_index: int = 0
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetCommitResponsePartition, int]:
        if version >= 8:
            partition_index, error_code, tags = unpack_ihB(buffer, position)
            position += 7
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitResponsePartition(partition_index, error_code), position
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        return OffsetCommitResponsePartition(partition_index, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            out += pack_ihx(self.partition_index, self.error_code)
            return
        out += pack_ih(self.partition_index, self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitResponseTopic(Struct):
    """Versions 2 to 10. Part of OffsetCommitResponse."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetCommitResponseTopic, int]:
        topic_id: UUID
        partitions: list[OffsetCommitResponsePartition]
        if version >= 8:
            if version >= 10:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 9:
                name, position = read_compact_string(buffer, position, limit)
            else:
                name = ""
            count, position = read_compact_count(buffer, position, limit, 7)
            partitions = []
            for _ in range(count):
                offset_commit_response_partition, position = OffsetCommitResponsePartition.read(
                    buffer, position, limit, version
                )
                partitions.append(offset_commit_response_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitResponseTopic(topic_id, name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        partitions = []
        for _ in range(count):
            offset_commit_response_partition, position = OffsetCommitResponsePartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_commit_response_partition)
        return OffsetCommitResponseTopic(ZERO_UUID, name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            if version >= 10:
                out += pack_u(self.topic_id.bytes)
            if version <= 9:
                write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for offset_commit_response_partition in self.partitions:
                offset_commit_response_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for offset_commit_response_partition in self.partitions:
            offset_commit_response_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitResponse(Response):
    """Versions 2 to 10."""

    API_KEY = 8
    VERSIONS = (2, 10)
    FLEXIBLE_FROM = 8

    throttle_time_ms: int = 0
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetCommitResponse, int]:
        topics: list[OffsetCommitResponseTopic]
        if version >= 8:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 10 else 3)
            topics = []
            for _ in range(count):
                offset_commit_response_topic, position = OffsetCommitResponseTopic.read(
                    buffer, position, limit, version
                )
                topics.append(offset_commit_response_topic)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitResponse(throttle_time_ms, topics), position
        if version >= 3:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_commit_response_topic, position = OffsetCommitResponseTopic.read(
                buffer, position, limit, version
            )
            topics.append(offset_commit_response_topic)
        return OffsetCommitResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 8:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.topics))
            for offset_commit_response_topic in self.topics:
                offset_commit_response_topic.write(out, version, cuts)
            out.append(0)
            return
        if version >= 3:
            out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for offset_commit_response_topic in self.topics:
            offset_commit_response_topic.write(out, version, cuts)
