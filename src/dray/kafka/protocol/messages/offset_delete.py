"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

OffsetDeleteRequest: version 0
OffsetDeleteResponse: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import NEVER_FLEXIBLE, Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_count,
    read_string,
    write_count,
    write_string,
)

pack_hi = Layout(">hi").pack
unpack_hi = Layout(">hi").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteRequestPartition(Struct):
    """Version 0. Part of OffsetDeleteRequest."""

    partition_index: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetDeleteRequestPartition, int]:
        (partition_index,) = unpack_i(buffer, position)
        position += 4
        return OffsetDeleteRequestPartition(partition_index), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.partition_index)


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteRequestTopic(Struct):
    """Version 0. Part of OffsetDeleteRequest."""

    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetDeleteRequestTopic, int]:
        partitions: list[OffsetDeleteRequestPartition]
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions = []
        for _ in range(count):
            offset_delete_request_partition, position = OffsetDeleteRequestPartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_delete_request_partition)
        return OffsetDeleteRequestTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for offset_delete_request_partition in self.partitions:
            offset_delete_request_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteRequest(Request["OffsetDeleteResponse"]):
    """Version 0."""

    API_KEY = 47
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetDeleteRequest, int]:
        topics: list[OffsetDeleteRequestTopic]
        group_id, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_delete_request_topic, position = OffsetDeleteRequestTopic.read(
                buffer, position, limit, version
            )
            topics.append(offset_delete_request_topic)
        return OffsetDeleteRequest(group_id, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.group_id)
        write_count(out, len(self.topics))
        for offset_delete_request_topic in self.topics:
            offset_delete_request_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteResponsePartition(Struct):
    """Version 0. Part of OffsetDeleteResponse."""

    partition_index: int = 0
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetDeleteResponsePartition, int]:
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        return OffsetDeleteResponsePartition(partition_index, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.partition_index, self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteResponseTopic(Struct):
    """Version 0. Part of OffsetDeleteResponse."""

    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetDeleteResponseTopic, int]:
        partitions: list[OffsetDeleteResponsePartition]
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        partitions = []
        for _ in range(count):
            offset_delete_response_partition, position = OffsetDeleteResponsePartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_delete_response_partition)
        return OffsetDeleteResponseTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for offset_delete_response_partition in self.partitions:
            offset_delete_response_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetDeleteResponse(Response):
    """Version 0."""

    API_KEY = 47
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetDeleteResponse, int]:
        topics: list[OffsetDeleteResponseTopic]
        error_code, throttle_time_ms = unpack_hi(buffer, position)
        position += 6
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_delete_response_topic, position = OffsetDeleteResponseTopic.read(
                buffer, position, limit, version
            )
            topics.append(offset_delete_response_topic)
        return OffsetDeleteResponse(error_code, throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_hi(self.error_code, self.throttle_time_ms)
        write_count(out, len(self.topics))
        for offset_delete_response_topic in self.topics:
            offset_delete_response_topic.write(out, version, cuts)
