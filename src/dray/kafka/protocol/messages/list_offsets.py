"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ListOffsetsRequest: versions 1 to 11
ListOffsetsResponse: versions 1 to 11
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ib = Layout(">ib").pack
unpack_ib = Layout(">ib").unpack_from
pack_ihqq = Layout(">ihqq").pack
unpack_ihqq = Layout(">ihqq").unpack_from
unpack_ihqqiB = Layout(">ihqqiB").unpack_from
pack_ihqqix = Layout(">ihqqix").pack
unpack_iiqB = Layout(">iiqB").unpack_from
pack_iiqx = Layout(">iiqx").pack
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsPartition(Struct):
    """Versions 1 to 11. Part of ListOffsetsRequest."""

    partition_index: int = 0
    current_leader_epoch: int = -1
    timestamp: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListOffsetsPartition, int]:
        if version >= 6:
            partition_index, current_leader_epoch, timestamp, tags = unpack_iiqB(buffer, position)
            position += 17
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsPartition(partition_index, current_leader_epoch, timestamp), position
        (partition_index,) = unpack_i(buffer, position)
        position += 4
        if version >= 4:
            (current_leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            current_leader_epoch = -1
        (timestamp,) = unpack_q(buffer, position)
        position += 8
        return ListOffsetsPartition(partition_index, current_leader_epoch, timestamp), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_iiqx(self.partition_index, self.current_leader_epoch, self.timestamp)
            return
        out += pack_i(self.partition_index)
        if version >= 4:
            out += pack_i(self.current_leader_epoch)
        out += pack_q(self.timestamp)


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsTopic(Struct):
    """Versions 1 to 11. Part of ListOffsetsRequest."""

    name: str = ""
    partitions: list[ListOffsetsPartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListOffsetsTopic, int]:
        partitions: list[ListOffsetsPartition]
        if version >= 6:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 17)
            partitions = []
            for _ in range(count):
                list_offsets_partition, position = ListOffsetsPartition.read(buffer, position, limit, version)
                partitions.append(list_offsets_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsTopic(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 16 if version >= 4 else 12)
        partitions = []
        for _ in range(count):
            list_offsets_partition, position = ListOffsetsPartition.read(buffer, position, limit, version)
            partitions.append(list_offsets_partition)
        return ListOffsetsTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for list_offsets_partition in self.partitions:
                list_offsets_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for list_offsets_partition in self.partitions:
            list_offsets_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsRequest(Request["ListOffsetsResponse"]):
    """Versions 1 to 11."""

    API_KEY = 2
    VERSIONS = (1, 11)
    FLEXIBLE_FROM = 6

    replica_id: int = 0
    isolation_level: int = 0
    topics: list[ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListOffsetsRequest, int]:
        topics: list[ListOffsetsTopic]
        if version >= 6:
            replica_id, isolation_level = unpack_ib(buffer, position)
            position += 5
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                list_offsets_topic, position = ListOffsetsTopic.read(buffer, position, limit, version)
                topics.append(list_offsets_topic)
            if version >= 10:
                (timeout_ms,) = unpack_i(buffer, position)
                position += 4
            else:
                timeout_ms = 0
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsRequest(replica_id, isolation_level, topics, timeout_ms), position
        (replica_id,) = unpack_i(buffer, position)
        position += 4
        if version >= 2:
            (isolation_level,) = unpack_b(buffer, position)
            position += 1
        else:
            isolation_level = 0
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            list_offsets_topic, position = ListOffsetsTopic.read(buffer, position, limit, version)
            topics.append(list_offsets_topic)
        return ListOffsetsRequest(replica_id, isolation_level, topics, 0), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_ib(self.replica_id, self.isolation_level)
            write_compact_count(out, len(self.topics))
            for list_offsets_topic in self.topics:
                list_offsets_topic.write(out, version, cuts)
            if version >= 10:
                out += pack_i(self.timeout_ms)
            out.append(0)
            return
        out += pack_i(self.replica_id)
        if version >= 2:
            out += pack_b(self.isolation_level)
        write_count(out, len(self.topics))
        for list_offsets_topic in self.topics:
            list_offsets_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsPartitionResponse(Struct):
    """Versions 1 to 11. Part of ListOffsetsResponse."""

    partition_index: int = 0
    error_code: int = 0
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListOffsetsPartitionResponse, int]:
        if version >= 6:
            partition_index, error_code, timestamp, offset, leader_epoch, tags = unpack_ihqqiB(
                buffer, position
            )
            position += 27
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsPartitionResponse(
                partition_index, error_code, timestamp, offset, leader_epoch
            ), position
        partition_index, error_code, timestamp, offset = unpack_ihqq(buffer, position)
        position += 22
        if version >= 4:
            (leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            leader_epoch = -1
        return ListOffsetsPartitionResponse(
            partition_index, error_code, timestamp, offset, leader_epoch
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_ihqqix(
                self.partition_index, self.error_code, self.timestamp, self.offset, self.leader_epoch
            )
            return
        out += pack_ihqq(self.partition_index, self.error_code, self.timestamp, self.offset)
        if version >= 4:
            out += pack_i(self.leader_epoch)


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsTopicResponse(Struct):
    """Versions 1 to 11. Part of ListOffsetsResponse."""

    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListOffsetsTopicResponse, int]:
        partitions: list[ListOffsetsPartitionResponse]
        if version >= 6:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 27)
            partitions = []
            for _ in range(count):
                list_offsets_partition_response, position = ListOffsetsPartitionResponse.read(
                    buffer, position, limit, version
                )
                partitions.append(list_offsets_partition_response)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsTopicResponse(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 26 if version >= 4 else 22)
        partitions = []
        for _ in range(count):
            list_offsets_partition_response, position = ListOffsetsPartitionResponse.read(
                buffer, position, limit, version
            )
            partitions.append(list_offsets_partition_response)
        return ListOffsetsTopicResponse(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for list_offsets_partition_response in self.partitions:
                list_offsets_partition_response.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for list_offsets_partition_response in self.partitions:
            list_offsets_partition_response.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ListOffsetsResponse(Response):
    """Versions 1 to 11."""

    API_KEY = 2
    VERSIONS = (1, 11)
    FLEXIBLE_FROM = 6

    throttle_time_ms: int = 0
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListOffsetsResponse, int]:
        topics: list[ListOffsetsTopicResponse]
        if version >= 6:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                list_offsets_topic_response, position = ListOffsetsTopicResponse.read(
                    buffer, position, limit, version
                )
                topics.append(list_offsets_topic_response)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListOffsetsResponse(throttle_time_ms, topics), position
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            list_offsets_topic_response, position = ListOffsetsTopicResponse.read(
                buffer, position, limit, version
            )
            topics.append(list_offsets_topic_response)
        return ListOffsetsResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.topics))
            for list_offsets_topic_response in self.topics:
                list_offsets_topic_response.write(out, version, cuts)
            out.append(0)
            return
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for list_offsets_topic_response in self.topics:
            list_offsets_topic_response.write(out, version, cuts)
