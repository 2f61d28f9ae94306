"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

AlterPartitionReassignmentsRequest: versions 0 to 1
AlterPartitionReassignmentsResponse: versions 0 to 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
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
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ReassignablePartition(Struct):
    """Versions 0 to 1. Part of AlterPartitionReassignmentsRequest."""

    partition_index: int = 0
    replicas: list[int] | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ReassignablePartition, int]:
        replicas: list[int] | None
        (partition_index,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_nullable_count(buffer, position, limit, 4)
        if count < 0:
            replicas = None
        else:
            replicas, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReassignablePartition(partition_index, replicas), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.partition_index)
        if self.replicas is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.replicas))
            write_numbers(out, "i", self.replicas)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ReassignableTopic(Struct):
    """Versions 0 to 1. Part of AlterPartitionReassignmentsRequest."""

    name: str = ""
    partitions: list[ReassignablePartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ReassignableTopic, int]:
        partitions: list[ReassignablePartition]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 6)
        partitions = []
        for _ in range(count):
            reassignable_partition, position = ReassignablePartition.read(buffer, position, limit, version)
            partitions.append(reassignable_partition)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReassignableTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partitions))
        for reassignable_partition in self.partitions:
            reassignable_partition.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class AlterPartitionReassignmentsRequest(Request["AlterPartitionReassignmentsResponse"]):
    """Versions 0 to 1."""

    API_KEY = 45
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    timeout_ms: int = 60000
    allow_replication_factor_change: bool = True
    topics: list[ReassignableTopic] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterPartitionReassignmentsRequest, int]:
        topics: list[ReassignableTopic]
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        if version >= 1:
            (allow_replication_factor_change,) = unpack_o(buffer, position)
            position += 1
        else:
            allow_replication_factor_change = True
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            reassignable_topic, position = ReassignableTopic.read(buffer, position, limit, version)
            topics.append(reassignable_topic)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return AlterPartitionReassignmentsRequest(
            timeout_ms, allow_replication_factor_change, topics
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.timeout_ms)
        if version >= 1:
            out += pack_o(self.allow_replication_factor_change)
        write_compact_count(out, len(self.topics))
        for reassignable_topic in self.topics:
            reassignable_topic.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ReassignablePartitionResponse(Struct):
    """Versions 0 to 1. Part of AlterPartitionReassignmentsResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ReassignablePartitionResponse, int]:
        error_message: str | None
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReassignablePartitionResponse(partition_index, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.partition_index, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ReassignableTopicResponse(Struct):
    """Versions 0 to 1. Part of AlterPartitionReassignmentsResponse."""

    name: str = ""
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ReassignableTopicResponse, int]:
        partitions: list[ReassignablePartitionResponse]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 8)
        partitions = []
        for _ in range(count):
            reassignable_partition_response, position = ReassignablePartitionResponse.read(
                buffer, position, limit, version
            )
            partitions.append(reassignable_partition_response)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReassignableTopicResponse(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partitions))
        for reassignable_partition_response in self.partitions:
            reassignable_partition_response.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class AlterPartitionReassignmentsResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 45
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    allow_replication_factor_change: bool = True
    error_code: int = 0
    error_message: str | None = ""
    responses: list[ReassignableTopicResponse] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterPartitionReassignmentsResponse, int]:
        error_message: str | None
        responses: list[ReassignableTopicResponse]
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        if version >= 1:
            (allow_replication_factor_change,) = unpack_o(buffer, position)
            position += 1
        else:
            allow_replication_factor_change = True
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 3)
        responses = []
        for _ in range(count):
            reassignable_topic_response, position = ReassignableTopicResponse.read(
                buffer, position, limit, version
            )
            responses.append(reassignable_topic_response)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return AlterPartitionReassignmentsResponse(
            throttle_time_ms, allow_replication_factor_change, error_code, error_message, responses
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        if version >= 1:
            out += pack_o(self.allow_replication_factor_change)
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.responses))
        for reassignable_topic_response in self.responses:
            reassignable_topic_response.write(out, version, cuts)
        out.append(0)
