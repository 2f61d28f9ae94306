"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ListPartitionReassignmentsRequest: version 0
ListPartitionReassignmentsResponse: version 0
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

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ListPartitionReassignmentsTopics(Struct):
    """Version 0. Part of ListPartitionReassignmentsRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListPartitionReassignmentsTopics, int]:
        partition_indexes: list[int]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 4)
        partition_indexes, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListPartitionReassignmentsTopics(name, partition_indexes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partition_indexes))
        write_numbers(out, "i", self.partition_indexes)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ListPartitionReassignmentsRequest(Request["ListPartitionReassignmentsResponse"]):
    """Version 0."""

    API_KEY = 46
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    timeout_ms: int = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListPartitionReassignmentsRequest, int]:
        topics: list[ListPartitionReassignmentsTopics] | None
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_nullable_count(buffer, position, limit, 3)
        if count < 0:
            topics = None
        else:
            topics = []
            for _ in range(count):
                list_partition_reassignments_topics, position = ListPartitionReassignmentsTopics.read(
                    buffer, position, limit, version
                )
                topics.append(list_partition_reassignments_topics)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListPartitionReassignmentsRequest(timeout_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.timeout_ms)
        if self.topics is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.topics))
            for list_partition_reassignments_topics in self.topics:
                list_partition_reassignments_topics.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class OngoingPartitionReassignment(Struct):
    """Version 0. Part of ListPartitionReassignmentsResponse."""

    partition_index: int = 0
    replicas: list[int] = field(default_factory=list)
    adding_replicas: list[int] = field(default_factory=list)
    removing_replicas: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OngoingPartitionReassignment, int]:
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        (partition_index,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 4)
        replicas, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_count(buffer, position, limit, 4)
        adding_replicas, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_compact_count(buffer, position, limit, 4)
        removing_replicas, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OngoingPartitionReassignment(
            partition_index, replicas, adding_replicas, removing_replicas
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.partition_index)
        write_compact_count(out, len(self.replicas))
        write_numbers(out, "i", self.replicas)
        write_compact_count(out, len(self.adding_replicas))
        write_numbers(out, "i", self.adding_replicas)
        write_compact_count(out, len(self.removing_replicas))
        write_numbers(out, "i", self.removing_replicas)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class OngoingTopicReassignment(Struct):
    """Version 0. Part of ListPartitionReassignmentsResponse."""

    name: str = ""
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OngoingTopicReassignment, int]:
        partitions: list[OngoingPartitionReassignment]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 8)
        partitions = []
        for _ in range(count):
            ongoing_partition_reassignment, position = OngoingPartitionReassignment.read(
                buffer, position, limit, version
            )
            partitions.append(ongoing_partition_reassignment)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return OngoingTopicReassignment(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partitions))
        for ongoing_partition_reassignment in self.partitions:
            ongoing_partition_reassignment.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ListPartitionReassignmentsResponse(Response):
    """Version 0."""

    API_KEY = 46
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListPartitionReassignmentsResponse, int]:
        error_message: str | None
        topics: list[OngoingTopicReassignment]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            ongoing_topic_reassignment, position = OngoingTopicReassignment.read(
                buffer, position, limit, version
            )
            topics.append(ongoing_topic_reassignment)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListPartitionReassignmentsResponse(
            throttle_time_ms, error_code, error_message, topics
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.topics))
        for ongoing_topic_reassignment in self.topics:
            ongoing_topic_reassignment.write(out, version, cuts)
        out.append(0)
