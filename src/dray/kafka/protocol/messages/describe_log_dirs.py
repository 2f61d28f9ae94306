"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeLogDirsRequest: versions 1 to 5
DescribeLogDirsResponse: versions 1 to 5
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_numbers,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_numbers,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_iqqo = Layout(">iqq?").pack
unpack_iqqo = Layout(">iqq?").unpack_from
unpack_iqqoB = Layout(">iqq?B").unpack_from
pack_iqqox = Layout(">iqq?x").pack
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
pack_qq = Layout(">qq").pack
unpack_qq = Layout(">qq").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class DescribableLogDirTopic(Struct):
    """Versions 1 to 5. Part of DescribeLogDirsRequest."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribableLogDirTopic, int]:
        partitions: list[int]
        if version >= 2:
            topic, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            partitions, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribableLogDirTopic(topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        return DescribableLogDirTopic(topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            write_numbers(out, "i", self.partitions)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)


@dataclass(slots=True, eq=False, repr=False)
class DescribeLogDirsRequest(Request["DescribeLogDirsResponse"]):
    """Versions 1 to 5."""

    API_KEY = 35
    VERSIONS = (1, 5)
    FLEXIBLE_FROM = 2

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeLogDirsRequest, int]:
        topics: list[DescribableLogDirTopic] | None
        if version >= 2:
            count, position = read_compact_nullable_count(buffer, position, limit, 3)
            if count < 0:
                topics = None
            else:
                topics = []
                for _ in range(count):
                    describable_log_dir_topic, position = DescribableLogDirTopic.read(
                        buffer, position, limit, version
                    )
                    topics.append(describable_log_dir_topic)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeLogDirsRequest(topics), position
        count, position = read_nullable_count(buffer, position, limit, 6)
        if count < 0:
            topics = None
        else:
            topics = []
            for _ in range(count):
                describable_log_dir_topic, position = DescribableLogDirTopic.read(
                    buffer, position, limit, version
                )
                topics.append(describable_log_dir_topic)
        return DescribeLogDirsRequest(topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            if self.topics is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.topics))
                for describable_log_dir_topic in self.topics:
                    describable_log_dir_topic.write(out, version, cuts)
            out.append(0)
            return
        if self.topics is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.topics))
            for describable_log_dir_topic in self.topics:
                describable_log_dir_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeLogDirsPartition(Struct):
    """Versions 1 to 5. Part of DescribeLogDirsResponse."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeLogDirsPartition, int]:
        if version >= 2:
            partition_index, partition_size, offset_lag, is_future_key, tags = unpack_iqqoB(buffer, position)
            position += 22
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeLogDirsPartition(
                partition_index, partition_size, offset_lag, is_future_key
            ), position
        partition_index, partition_size, offset_lag, is_future_key = unpack_iqqo(buffer, position)
        position += 21
        return DescribeLogDirsPartition(partition_index, partition_size, offset_lag, is_future_key), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_iqqox(self.partition_index, self.partition_size, self.offset_lag, self.is_future_key)
            return
        out += pack_iqqo(self.partition_index, self.partition_size, self.offset_lag, self.is_future_key)


@dataclass(slots=True, eq=False, repr=False)
class DescribeLogDirsTopic(Struct):
    """Versions 1 to 5. Part of DescribeLogDirsResponse."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribeLogDirsTopic, int]:
        partitions: list[DescribeLogDirsPartition]
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 22)
            partitions = []
            for _ in range(count):
                describe_log_dirs_partition, position = DescribeLogDirsPartition.read(
                    buffer, position, limit, version
                )
                partitions.append(describe_log_dirs_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeLogDirsTopic(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 21)
        partitions = []
        for _ in range(count):
            describe_log_dirs_partition, position = DescribeLogDirsPartition.read(
                buffer, position, limit, version
            )
            partitions.append(describe_log_dirs_partition)
        return DescribeLogDirsTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            for describe_log_dirs_partition in self.partitions:
                describe_log_dirs_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        for describe_log_dirs_partition in self.partitions:
            describe_log_dirs_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeLogDirsResult(Struct):
    """Versions 1 to 5. Part of DescribeLogDirsResponse."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeLogDirsResult, int]:
        topics: list[DescribeLogDirsTopic]
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            log_dir, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                describe_log_dirs_topic, position = DescribeLogDirsTopic.read(
                    buffer, position, limit, version
                )
                topics.append(describe_log_dirs_topic)
            if version >= 4:
                total_bytes, usable_bytes = unpack_qq(buffer, position)
                position += 16
            else:
                total_bytes = -1
                usable_bytes = -1
            if version >= 5:
                (is_cordoned,) = unpack_o(buffer, position)
                position += 1
            else:
                is_cordoned = False
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeLogDirsResult(
                error_code, log_dir, topics, total_bytes, usable_bytes, is_cordoned
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        log_dir, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            describe_log_dirs_topic, position = DescribeLogDirsTopic.read(buffer, position, limit, version)
            topics.append(describe_log_dirs_topic)
        return DescribeLogDirsResult(error_code, log_dir, topics, -1, -1, False), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_h(self.error_code)
            write_compact_string(out, self.log_dir)
            write_compact_count(out, len(self.topics))
            for describe_log_dirs_topic in self.topics:
                describe_log_dirs_topic.write(out, version, cuts)
            if version >= 4:
                out += pack_qq(self.total_bytes, self.usable_bytes)
            if version >= 5:
                out += pack_o(self.is_cordoned)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_string(out, self.log_dir)
        write_count(out, len(self.topics))
        for describe_log_dirs_topic in self.topics:
            describe_log_dirs_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeLogDirsResponse(Response):
    """Versions 1 to 5."""

    API_KEY = 35
    VERSIONS = (1, 5)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    results: list[DescribeLogDirsResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeLogDirsResponse, int]:
        results: list[DescribeLogDirsResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            if version >= 3:
                (error_code,) = unpack_h(buffer, position)
                position += 2
            else:
                error_code = 0
            count, position = read_compact_count(
                buffer, position, limit, 22 if version >= 5 else 21 if version >= 4 else 5
            )
            results = []
            for _ in range(count):
                describe_log_dirs_result, position = DescribeLogDirsResult.read(
                    buffer, position, limit, version
                )
                results.append(describe_log_dirs_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeLogDirsResponse(throttle_time_ms, error_code, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 8)
        results = []
        for _ in range(count):
            describe_log_dirs_result, position = DescribeLogDirsResult.read(buffer, position, limit, version)
            results.append(describe_log_dirs_result)
        return DescribeLogDirsResponse(throttle_time_ms, 0, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            if version >= 3:
                out += pack_h(self.error_code)
            write_compact_count(out, len(self.results))
            for describe_log_dirs_result in self.results:
                describe_log_dirs_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for describe_log_dirs_result in self.results:
            describe_log_dirs_result.write(out, version, cuts)
