"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

OffsetFetchRequest: versions 1 to 10
OffsetFetchResponse: versions 1 to 10
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    EncodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_nullable_string,
    read_numbers,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_numbers,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
unpack_hB = Layout(">hB").unpack_from
pack_hx = Layout(">hx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_iq = Layout(">iq").pack
unpack_iq = Layout(">iq").unpack_from
pack_iqi = Layout(">iqi").pack
unpack_iqi = Layout(">iqi").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchRequestTopics(Struct):
    """Versions 8 to 10. Part of OffsetFetchRequest."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchRequestTopics, int]:
        topic_id: UUID
        partition_indexes: list[int]
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
        count, position = read_compact_count(buffer, position, limit, 4)
        partition_indexes, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OffsetFetchRequestTopics(topic_id, name, partition_indexes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 10:
            out += pack_u(self.topic_id.bytes)
        if version <= 9:
            write_compact_string(out, self.name)
        write_compact_count(out, len(self.partition_indexes))
        write_numbers(out, "i", self.partition_indexes)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchRequestGroup(Struct):
    """Versions 8 to 10. Part of OffsetFetchRequest."""

    group_id: str = ""
    member_id: str | None = None
    member_epoch: int = -1
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchRequestGroup, int]:
        member_id: str | None
        topics: list[OffsetFetchRequestTopics] | None
        group_id, position = read_compact_string(buffer, position, limit)
        if version >= 9:
            member_id, position = read_compact_nullable_string(buffer, position, limit)
            (member_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            member_id = None
            member_epoch = -1
        count, position = read_compact_nullable_count(buffer, position, limit, 18 if version >= 10 else 3)
        if count < 0:
            topics = None
        else:
            topics = []
            for _ in range(count):
                offset_fetch_request_topics, position = OffsetFetchRequestTopics.read(
                    buffer, position, limit, version
                )
                topics.append(offset_fetch_request_topics)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OffsetFetchRequestGroup(group_id, member_id, member_epoch, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.group_id)
        if version >= 9:
            write_compact_nullable_string(out, self.member_id)
            out += pack_i(self.member_epoch)
        if self.topics is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.topics))
            for offset_fetch_request_topics in self.topics:
                offset_fetch_request_topics.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchRequestTopic(Struct):
    """Versions 1 to 7. Part of OffsetFetchRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchRequestTopic, int]:
        partition_indexes: list[int]
        if version >= 6:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            partition_indexes, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetFetchRequestTopic(name, partition_indexes), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partition_indexes, position = read_numbers(buffer, position, "i", 4, count)
        return OffsetFetchRequestTopic(name, partition_indexes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partition_indexes))
            write_numbers(out, "i", self.partition_indexes)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partition_indexes))
        write_numbers(out, "i", self.partition_indexes)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchRequest(Request["OffsetFetchResponse"]):
    """Versions 1 to 10."""

    API_KEY = 9
    VERSIONS = (1, 10)
    FLEXIBLE_FROM = 6

    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)
    group_id: str = ""
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)
    require_stable: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetFetchRequest, int]:
        groups: list[OffsetFetchRequestGroup]
        topics: list[OffsetFetchRequestTopic] | None
        if version >= 6:
            if version >= 8:
                count, position = read_compact_count(buffer, position, limit, 8 if version >= 9 else 3)
                groups = []
                for _ in range(count):
                    offset_fetch_request_group, position = OffsetFetchRequestGroup.read(
                        buffer, position, limit, version
                    )
                    groups.append(offset_fetch_request_group)
            else:
                groups = []
            if version <= 7:
                group_id, position = read_compact_string(buffer, position, limit)
                count, position = read_compact_nullable_count(buffer, position, limit, 3)
                if count < 0:
                    topics = None
                else:
                    topics = []
                    for _ in range(count):
                        offset_fetch_request_topic, position = OffsetFetchRequestTopic.read(
                            buffer, position, limit, version
                        )
                        topics.append(offset_fetch_request_topic)
            else:
                group_id = ""
                topics = []
            if version >= 7:
                (require_stable,) = unpack_o(buffer, position)
                position += 1
            else:
                require_stable = False
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetFetchRequest(groups, group_id, topics, require_stable), position
        group_id, position = read_string(buffer, position, limit)
        count, position = (read_nullable_count if version >= 2 else read_count)(buffer, position, limit, 6)
        if count < 0:
            topics = None
        else:
            topics = []
            for _ in range(count):
                offset_fetch_request_topic, position = OffsetFetchRequestTopic.read(
                    buffer, position, limit, version
                )
                topics.append(offset_fetch_request_topic)
        return OffsetFetchRequest([], group_id, topics, False), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            if version >= 8:
                write_compact_count(out, len(self.groups))
                for offset_fetch_request_group in self.groups:
                    offset_fetch_request_group.write(out, version, cuts)
            if version <= 7:
                write_compact_string(out, self.group_id)
                if self.topics is None:
                    out += bytes(1)
                else:
                    write_compact_count(out, len(self.topics))
                    for offset_fetch_request_topic in self.topics:
                        offset_fetch_request_topic.write(out, version, cuts)
            if version >= 7:
                out += pack_o(self.require_stable)
            out.append(0)
            return
        write_string(out, self.group_id)
        if self.topics is None:
            if version <= 1:
                raise EncodeError("topics is null, which this version does not allow")
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.topics))
            for offset_fetch_request_topic in self.topics:
                offset_fetch_request_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponsePartitions(Struct):
    """Versions 8 to 10. Part of OffsetFetchResponse."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchResponsePartitions, int]:
        metadata: str | None
        partition_index, committed_offset, committed_leader_epoch = unpack_iqi(buffer, position)
        position += 16
        metadata, position = read_compact_nullable_string(buffer, position, limit)
        error_code, tags = unpack_hB(buffer, position)
        position += 3
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OffsetFetchResponsePartitions(
            partition_index, committed_offset, committed_leader_epoch, metadata, error_code
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_iqi(self.partition_index, self.committed_offset, self.committed_leader_epoch)
        write_compact_nullable_string(out, self.metadata)
        out += pack_hx(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponseTopics(Struct):
    """Versions 8 to 10. Part of OffsetFetchResponse."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchResponseTopics, int]:
        topic_id: UUID
        partitions: list[OffsetFetchResponsePartitions]
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
        count, position = read_compact_count(buffer, position, limit, 20)
        partitions = []
        for _ in range(count):
            offset_fetch_response_partitions, position = OffsetFetchResponsePartitions.read(
                buffer, position, limit, version
            )
            partitions.append(offset_fetch_response_partitions)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OffsetFetchResponseTopics(topic_id, name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 10:
            out += pack_u(self.topic_id.bytes)
        if version <= 9:
            write_compact_string(out, self.name)
        write_compact_count(out, len(self.partitions))
        for offset_fetch_response_partitions in self.partitions:
            offset_fetch_response_partitions.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponseGroup(Struct):
    """Versions 8 to 10. Part of OffsetFetchResponse."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchResponseGroup, int]:
        topics: list[OffsetFetchResponseTopics]
        group_id, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 18 if version >= 10 else 3)
        topics = []
        for _ in range(count):
            offset_fetch_response_topics, position = OffsetFetchResponseTopics.read(
                buffer, position, limit, version
            )
            topics.append(offset_fetch_response_topics)
        error_code, tags = unpack_hB(buffer, position)
        position += 3
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OffsetFetchResponseGroup(group_id, topics, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.group_id)
        write_compact_count(out, len(self.topics))
        for offset_fetch_response_topics in self.topics:
            offset_fetch_response_topics.write(out, version, cuts)
        out += pack_hx(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponsePartition(Struct):
    """Versions 1 to 7. Part of OffsetFetchResponse."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = ""
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchResponsePartition, int]:
        metadata: str | None
        if version >= 6:
            partition_index, committed_offset, committed_leader_epoch = unpack_iqi(buffer, position)
            position += 16
            metadata, position = read_compact_nullable_string(buffer, position, limit)
            error_code, tags = unpack_hB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetFetchResponsePartition(
                partition_index, committed_offset, committed_leader_epoch, metadata, error_code
            ), position
        partition_index, committed_offset = unpack_iq(buffer, position)
        position += 12
        if version >= 5:
            (committed_leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            committed_leader_epoch = -1
        metadata, position = read_nullable_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        return OffsetFetchResponsePartition(
            partition_index, committed_offset, committed_leader_epoch, metadata, error_code
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_iqi(self.partition_index, self.committed_offset, self.committed_leader_epoch)
            write_compact_nullable_string(out, self.metadata)
            out += pack_hx(self.error_code)
            return
        out += pack_iq(self.partition_index, self.committed_offset)
        if version >= 5:
            out += pack_i(self.committed_leader_epoch)
        write_nullable_string(out, self.metadata)
        out += pack_h(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponseTopic(Struct):
    """Versions 1 to 7. Part of OffsetFetchResponse."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetFetchResponseTopic, int]:
        partitions: list[OffsetFetchResponsePartition]
        if version >= 6:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 20)
            partitions = []
            for _ in range(count):
                offset_fetch_response_partition, position = OffsetFetchResponsePartition.read(
                    buffer, position, limit, version
                )
                partitions.append(offset_fetch_response_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetFetchResponseTopic(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 20 if version >= 5 else 16)
        partitions = []
        for _ in range(count):
            offset_fetch_response_partition, position = OffsetFetchResponsePartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_fetch_response_partition)
        return OffsetFetchResponseTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for offset_fetch_response_partition in self.partitions:
                offset_fetch_response_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for offset_fetch_response_partition in self.partitions:
            offset_fetch_response_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetFetchResponse(Response):
    """Versions 1 to 10."""

    API_KEY = 9
    VERSIONS = (1, 10)
    FLEXIBLE_FROM = 6

    throttle_time_ms: int = 0
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetFetchResponse, int]:
        groups: list[OffsetFetchResponseGroup]
        topics: list[OffsetFetchResponseTopic]
        if version >= 6:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            if version >= 8:
                count, position = read_compact_count(buffer, position, limit, 5)
                groups = []
                for _ in range(count):
                    offset_fetch_response_group, position = OffsetFetchResponseGroup.read(
                        buffer, position, limit, version
                    )
                    groups.append(offset_fetch_response_group)
            else:
                groups = []
            if version <= 7:
                count, position = read_compact_count(buffer, position, limit, 3)
                topics = []
                for _ in range(count):
                    offset_fetch_response_topic, position = OffsetFetchResponseTopic.read(
                        buffer, position, limit, version
                    )
                    topics.append(offset_fetch_response_topic)
                (error_code,) = unpack_h(buffer, position)
                position += 2
            else:
                topics = []
                error_code = 0
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetFetchResponse(throttle_time_ms, groups, topics, error_code), position
        if version >= 3:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_fetch_response_topic, position = OffsetFetchResponseTopic.read(
                buffer, position, limit, version
            )
            topics.append(offset_fetch_response_topic)
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
        else:
            error_code = 0
        return OffsetFetchResponse(throttle_time_ms, [], topics, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_i(self.throttle_time_ms)
            if version >= 8:
                write_compact_count(out, len(self.groups))
                for offset_fetch_response_group in self.groups:
                    offset_fetch_response_group.write(out, version, cuts)
            if version <= 7:
                write_compact_count(out, len(self.topics))
                for offset_fetch_response_topic in self.topics:
                    offset_fetch_response_topic.write(out, version, cuts)
                out += pack_h(self.error_code)
            out.append(0)
            return
        if version >= 3:
            out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for offset_fetch_response_topic in self.topics:
            offset_fetch_response_topic.write(out, version, cuts)
        if version >= 2:
            out += pack_h(self.error_code)
