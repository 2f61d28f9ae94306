"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DeleteRecordsRequest: versions 0 to 2
DeleteRecordsResponse: versions 0 to 2
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

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_iq = Layout(">iq").pack
unpack_iq = Layout(">iq").unpack_from
unpack_iqB = Layout(">iqB").unpack_from
pack_iqh = Layout(">iqh").pack
unpack_iqh = Layout(">iqh").unpack_from
unpack_iqhB = Layout(">iqhB").unpack_from
pack_iqhx = Layout(">iqhx").pack
pack_iqx = Layout(">iqx").pack
pack_ix = Layout(">ix").pack


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsPartition(Struct):
    """Versions 0 to 2. Part of DeleteRecordsRequest."""

    partition_index: int = 0
    offset: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteRecordsPartition, int]:
        if version >= 2:
            partition_index, offset, tags = unpack_iqB(buffer, position)
            position += 13
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsPartition(partition_index, offset), position
        partition_index, offset = unpack_iq(buffer, position)
        position += 12
        return DeleteRecordsPartition(partition_index, offset), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_iqx(self.partition_index, self.offset)
            return
        out += pack_iq(self.partition_index, self.offset)


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsTopic(Struct):
    """Versions 0 to 2. Part of DeleteRecordsRequest."""

    name: str = ""
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteRecordsTopic, int]:
        partitions: list[DeleteRecordsPartition]
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 13)
            partitions = []
            for _ in range(count):
                delete_records_partition, position = DeleteRecordsPartition.read(
                    buffer, position, limit, version
                )
                partitions.append(delete_records_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsTopic(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 12)
        partitions = []
        for _ in range(count):
            delete_records_partition, position = DeleteRecordsPartition.read(buffer, position, limit, version)
            partitions.append(delete_records_partition)
        return DeleteRecordsTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for delete_records_partition in self.partitions:
                delete_records_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for delete_records_partition in self.partitions:
            delete_records_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsRequest(Request["DeleteRecordsResponse"]):
    """Versions 0 to 2."""

    API_KEY = 21
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteRecordsRequest, int]:
        topics: list[DeleteRecordsTopic]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                delete_records_topic, position = DeleteRecordsTopic.read(buffer, position, limit, version)
                topics.append(delete_records_topic)
            timeout_ms, tags = unpack_iB(buffer, position)
            position += 5
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsRequest(topics, timeout_ms), position
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            delete_records_topic, position = DeleteRecordsTopic.read(buffer, position, limit, version)
            topics.append(delete_records_topic)
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        return DeleteRecordsRequest(topics, timeout_ms), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.topics))
            for delete_records_topic in self.topics:
                delete_records_topic.write(out, version, cuts)
            out += pack_ix(self.timeout_ms)
            return
        write_count(out, len(self.topics))
        for delete_records_topic in self.topics:
            delete_records_topic.write(out, version, cuts)
        out += pack_i(self.timeout_ms)


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsPartitionResult(Struct):
    """Versions 0 to 2. Part of DeleteRecordsResponse."""

    partition_index: int = 0
    low_watermark: int = 0
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteRecordsPartitionResult, int]:
        if version >= 2:
            partition_index, low_watermark, error_code, tags = unpack_iqhB(buffer, position)
            position += 15
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsPartitionResult(partition_index, low_watermark, error_code), position
        partition_index, low_watermark, error_code = unpack_iqh(buffer, position)
        position += 14
        return DeleteRecordsPartitionResult(partition_index, low_watermark, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_iqhx(self.partition_index, self.low_watermark, self.error_code)
            return
        out += pack_iqh(self.partition_index, self.low_watermark, self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsTopicResult(Struct):
    """Versions 0 to 2. Part of DeleteRecordsResponse."""

    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteRecordsTopicResult, int]:
        partitions: list[DeleteRecordsPartitionResult]
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 15)
            partitions = []
            for _ in range(count):
                delete_records_partition_result, position = DeleteRecordsPartitionResult.read(
                    buffer, position, limit, version
                )
                partitions.append(delete_records_partition_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsTopicResult(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 14)
        partitions = []
        for _ in range(count):
            delete_records_partition_result, position = DeleteRecordsPartitionResult.read(
                buffer, position, limit, version
            )
            partitions.append(delete_records_partition_result)
        return DeleteRecordsTopicResult(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for delete_records_partition_result in self.partitions:
                delete_records_partition_result.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for delete_records_partition_result in self.partitions:
            delete_records_partition_result.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DeleteRecordsResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 21
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteRecordsResponse, int]:
        topics: list[DeleteRecordsTopicResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                delete_records_topic_result, position = DeleteRecordsTopicResult.read(
                    buffer, position, limit, version
                )
                topics.append(delete_records_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteRecordsResponse(throttle_time_ms, topics), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            delete_records_topic_result, position = DeleteRecordsTopicResult.read(
                buffer, position, limit, version
            )
            topics.append(delete_records_topic_result)
        return DeleteRecordsResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.topics))
            for delete_records_topic_result in self.topics:
                delete_records_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for delete_records_topic_result in self.topics:
            delete_records_topic_result.write(out, version, cuts)
