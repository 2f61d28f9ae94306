"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

AlterReplicaLogDirsRequest: versions 1 to 2
AlterReplicaLogDirsResponse: versions 1 to 2
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
    read_numbers,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_numbers,
    write_string,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
unpack_ihB = Layout(">ihB").unpack_from
pack_ihx = Layout(">ihx").pack


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDirTopic(Struct):
    """Versions 1 to 2. Part of AlterReplicaLogDirsRequest."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterReplicaLogDirTopic, int]:
        partitions: list[int]
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            partitions, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDirTopic(name, partitions), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        return AlterReplicaLogDirTopic(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            write_compact_count(out, len(self.partitions))
            write_numbers(out, "i", self.partitions)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDir(Struct):
    """Versions 1 to 2. Part of AlterReplicaLogDirsRequest."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AlterReplicaLogDir, int]:
        topics: list[AlterReplicaLogDirTopic]
        if version >= 2:
            path, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                alter_replica_log_dir_topic, position = AlterReplicaLogDirTopic.read(
                    buffer, position, limit, version
                )
                topics.append(alter_replica_log_dir_topic)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDir(path, topics), position
        path, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            alter_replica_log_dir_topic, position = AlterReplicaLogDirTopic.read(
                buffer, position, limit, version
            )
            topics.append(alter_replica_log_dir_topic)
        return AlterReplicaLogDir(path, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.path)
            write_compact_count(out, len(self.topics))
            for alter_replica_log_dir_topic in self.topics:
                alter_replica_log_dir_topic.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.path)
        write_count(out, len(self.topics))
        for alter_replica_log_dir_topic in self.topics:
            alter_replica_log_dir_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDirsRequest(Request["AlterReplicaLogDirsResponse"]):
    """Versions 1 to 2."""

    API_KEY = 34
    VERSIONS = (1, 2)
    FLEXIBLE_FROM = 2

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterReplicaLogDirsRequest, int]:
        dirs: list[AlterReplicaLogDir]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 3)
            dirs = []
            for _ in range(count):
                alter_replica_log_dir, position = AlterReplicaLogDir.read(buffer, position, limit, version)
                dirs.append(alter_replica_log_dir)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDirsRequest(dirs), position
        count, position = read_count(buffer, position, limit, 6)
        dirs = []
        for _ in range(count):
            alter_replica_log_dir, position = AlterReplicaLogDir.read(buffer, position, limit, version)
            dirs.append(alter_replica_log_dir)
        return AlterReplicaLogDirsRequest(dirs), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.dirs))
            for alter_replica_log_dir in self.dirs:
                alter_replica_log_dir.write(out, version, cuts)
            out.append(0)
            return
        write_count(out, len(self.dirs))
        for alter_replica_log_dir in self.dirs:
            alter_replica_log_dir.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDirPartitionResult(Struct):
    """Versions 1 to 2. Part of AlterReplicaLogDirsResponse."""

    partition_index: int = 0
    error_code: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterReplicaLogDirPartitionResult, int]:
        if version >= 2:
            partition_index, error_code, tags = unpack_ihB(buffer, position)
            position += 7
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDirPartitionResult(partition_index, error_code), position
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        return AlterReplicaLogDirPartitionResult(partition_index, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_ihx(self.partition_index, self.error_code)
            return
        out += pack_ih(self.partition_index, self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDirTopicResult(Struct):
    """Versions 1 to 2. Part of AlterReplicaLogDirsResponse."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterReplicaLogDirTopicResult, int]:
        partitions: list[AlterReplicaLogDirPartitionResult]
        if version >= 2:
            topic_name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 7)
            partitions = []
            for _ in range(count):
                alter_replica_log_dir_partition_result, position = AlterReplicaLogDirPartitionResult.read(
                    buffer, position, limit, version
                )
                partitions.append(alter_replica_log_dir_partition_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDirTopicResult(topic_name, partitions), position
        topic_name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        partitions = []
        for _ in range(count):
            alter_replica_log_dir_partition_result, position = AlterReplicaLogDirPartitionResult.read(
                buffer, position, limit, version
            )
            partitions.append(alter_replica_log_dir_partition_result)
        return AlterReplicaLogDirTopicResult(topic_name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.topic_name)
            write_compact_count(out, len(self.partitions))
            for alter_replica_log_dir_partition_result in self.partitions:
                alter_replica_log_dir_partition_result.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic_name)
        write_count(out, len(self.partitions))
        for alter_replica_log_dir_partition_result in self.partitions:
            alter_replica_log_dir_partition_result.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AlterReplicaLogDirsResponse(Response):
    """Versions 1 to 2."""

    API_KEY = 34
    VERSIONS = (1, 2)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterReplicaLogDirsResponse, int]:
        results: list[AlterReplicaLogDirTopicResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 3)
            results = []
            for _ in range(count):
                alter_replica_log_dir_topic_result, position = AlterReplicaLogDirTopicResult.read(
                    buffer, position, limit, version
                )
                results.append(alter_replica_log_dir_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterReplicaLogDirsResponse(throttle_time_ms, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 6)
        results = []
        for _ in range(count):
            alter_replica_log_dir_topic_result, position = AlterReplicaLogDirTopicResult.read(
                buffer, position, limit, version
            )
            results.append(alter_replica_log_dir_topic_result)
        return AlterReplicaLogDirsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.results))
            for alter_replica_log_dir_topic_result in self.results:
                alter_replica_log_dir_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for alter_replica_log_dir_topic_result in self.results:
            alter_replica_log_dir_topic_result.write(out, version, cuts)
