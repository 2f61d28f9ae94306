"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeTopicPartitionsRequest: version 0
DescribeTopicPartitionsResponse: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    DecodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_hiii = Layout(">hiii").pack
unpack_hiii = Layout(">hiii").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ix = Layout(">ix").pack
pack_uo = Layout(">16s?").pack
unpack_uo = Layout(">16s?").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class TopicRequest(Struct):
    """Version 0. Part of DescribeTopicPartitionsRequest."""

    name: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicRequest, int]:
        name, position = read_compact_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicRequest(name), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class Cursor(Struct):
    """Version 0. Part of DescribeTopicPartitionsRequest."""

    topic_name: str = ""
    partition_index: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Cursor, int]:
        topic_name, position = read_compact_string(buffer, position, limit)
        partition_index, tags = unpack_iB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Cursor(topic_name, partition_index), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.topic_name)
        out += pack_ix(self.partition_index)


@dataclass(slots=True, eq=False, repr=False)
class DescribeTopicPartitionsRequest(Request["DescribeTopicPartitionsResponse"]):
    """Version 0."""

    API_KEY = 75
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: Cursor | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTopicPartitionsRequest, int]:
        topics: list[TopicRequest]
        cursor: Cursor | None
        count, position = read_compact_count(buffer, position, limit, 2)
        topics = []
        for _ in range(count):
            topic_request, position = TopicRequest.read(buffer, position, limit, version)
            topics.append(topic_request)
        (response_partition_limit,) = unpack_i(buffer, position)
        position += 4
        if buffer[position] == 0xFF:
            cursor = None
            position += 1
        elif buffer[position] == 1:
            cursor, position = Cursor.read(buffer, position + 1, limit, version)
        else:
            raise DecodeError("DescribeTopicPartitionsRequest.cursor has an unknown marker")
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTopicPartitionsRequest(topics, response_partition_limit, cursor), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.topics))
        for topic_request in self.topics:
            topic_request.write(out, version, cuts)
        out += pack_i(self.response_partition_limit)
        if self.cursor is None:
            out.append(0xFF)
        else:
            out.append(1)
            self.cursor.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeTopicPartitionsResponsePartition(Struct):
    """Version 0. Part of DescribeTopicPartitionsResponse."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    eligible_leader_replicas: list[int] | None = None
    last_known_elr: list[int] | None = None
    offline_replicas: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponsePartition, int]:
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        error_code, partition_index, leader_id, leader_epoch = unpack_hiii(buffer, position)
        position += 14
        count, position = read_compact_count(buffer, position, limit, 4)
        replica_nodes, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_count(buffer, position, limit, 4)
        isr_nodes, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_nullable_count(buffer, position, limit, 4)
        if count < 0:
            eligible_leader_replicas = None
        else:
            eligible_leader_replicas, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_nullable_count(buffer, position, limit, 4)
        if count < 0:
            last_known_elr = None
        else:
            last_known_elr, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_count(buffer, position, limit, 4)
        offline_replicas, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTopicPartitionsResponsePartition(
            error_code,
            partition_index,
            leader_id,
            leader_epoch,
            replica_nodes,
            isr_nodes,
            eligible_leader_replicas,
            last_known_elr,
            offline_replicas,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_hiii(self.error_code, self.partition_index, self.leader_id, self.leader_epoch)
        write_compact_count(out, len(self.replica_nodes))
        write_numbers(out, "i", self.replica_nodes)
        write_compact_count(out, len(self.isr_nodes))
        write_numbers(out, "i", self.isr_nodes)
        if self.eligible_leader_replicas is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.eligible_leader_replicas))
            write_numbers(out, "i", self.eligible_leader_replicas)
        if self.last_known_elr is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.last_known_elr))
            write_numbers(out, "i", self.last_known_elr)
        write_compact_count(out, len(self.offline_replicas))
        write_numbers(out, "i", self.offline_replicas)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeTopicPartitionsResponseTopic(Struct):
    """Version 0. Part of DescribeTopicPartitionsResponse."""

    error_code: int = 0
    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponseTopic, int]:
        name: str | None
        topic_id: UUID
        partitions: list[DescribeTopicPartitionsResponsePartition]
        (error_code,) = unpack_h(buffer, position)
        position += 2
        name, position = read_compact_nullable_string(buffer, position, limit)
        topic_id, is_internal = unpack_uo(buffer, position)
        position += 17
        topic_id = make_uuid(topic_id)
        count, position = read_compact_count(buffer, position, limit, 20)
        partitions = []
        for _ in range(count):
            describe_topic_partitions_response_partition, position = (
                DescribeTopicPartitionsResponsePartition.read(buffer, position, limit, version)
            )
            partitions.append(describe_topic_partitions_response_partition)
        topic_authorized_operations, tags = unpack_iB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTopicPartitionsResponseTopic(
            error_code, name, topic_id, is_internal, partitions, topic_authorized_operations
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.name)
        out += pack_uo(self.topic_id.bytes, self.is_internal)
        write_compact_count(out, len(self.partitions))
        for describe_topic_partitions_response_partition in self.partitions:
            describe_topic_partitions_response_partition.write(out, version, cuts)
        out += pack_ix(self.topic_authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class DescribeTopicPartitionsResponse(Response):
    """Version 0."""

    API_KEY = 75
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: Cursor | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTopicPartitionsResponse, int]:
        topics: list[DescribeTopicPartitionsResponseTopic]
        next_cursor: Cursor | None
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 26)
        topics = []
        for _ in range(count):
            describe_topic_partitions_response_topic, position = DescribeTopicPartitionsResponseTopic.read(
                buffer, position, limit, version
            )
            topics.append(describe_topic_partitions_response_topic)
        if buffer[position] == 0xFF:
            next_cursor = None
            position += 1
        elif buffer[position] == 1:
            next_cursor, position = Cursor.read(buffer, position + 1, limit, version)
        else:
            raise DecodeError("DescribeTopicPartitionsResponse.next_cursor has an unknown marker")
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTopicPartitionsResponse(throttle_time_ms, topics, next_cursor), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        write_compact_count(out, len(self.topics))
        for describe_topic_partitions_response_topic in self.topics:
            describe_topic_partitions_response_topic.write(out, version, cuts)
        if self.next_cursor is None:
            out.append(0xFF)
        else:
            out.append(1)
            self.next_cursor.write(out, version, cuts)
        out.append(0)
