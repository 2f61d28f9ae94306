"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ElectLeadersRequest: versions 0 to 2
ElectLeadersResponse: versions 0 to 2
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

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_ix = Layout(">ix").pack


@dataclass(slots=True, eq=False, repr=False)
class TopicPartitions(Struct):
    """Versions 0 to 2. Part of ElectLeadersRequest."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicPartitions, int]:
        partitions: list[int]
        if version >= 2:
            topic, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            partitions, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return TopicPartitions(topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        return TopicPartitions(topic, partitions), position

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
class ElectLeadersRequest(Request["ElectLeadersResponse"]):
    """Versions 0 to 2."""

    API_KEY = 43
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    election_type: int = 0
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: int = 60000

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ElectLeadersRequest, int]:
        topic_partitions: list[TopicPartitions] | None
        if version >= 2:
            (election_type,) = unpack_b(buffer, position)
            position += 1
            count, position = read_compact_nullable_count(buffer, position, limit, 3)
            if count < 0:
                topic_partitions = None
            else:
                topic_partitions = []
                for _ in range(count):
                    topic_partitions_, position = TopicPartitions.read(buffer, position, limit, version)
                    topic_partitions.append(topic_partitions_)
            timeout_ms, tags = unpack_iB(buffer, position)
            position += 5
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ElectLeadersRequest(election_type, topic_partitions, timeout_ms), position
        if version >= 1:
            (election_type,) = unpack_b(buffer, position)
            position += 1
        else:
            election_type = 0
        count, position = read_nullable_count(buffer, position, limit, 6)
        if count < 0:
            topic_partitions = None
        else:
            topic_partitions = []
            for _ in range(count):
                topic_partitions_, position = TopicPartitions.read(buffer, position, limit, version)
                topic_partitions.append(topic_partitions_)
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        return ElectLeadersRequest(election_type, topic_partitions, timeout_ms), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_b(self.election_type)
            if self.topic_partitions is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.topic_partitions))
                for topic_partitions_ in self.topic_partitions:
                    topic_partitions_.write(out, version, cuts)
            out += pack_ix(self.timeout_ms)
            return
        if version >= 1:
            out += pack_b(self.election_type)
        if self.topic_partitions is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.topic_partitions))
            for topic_partitions_ in self.topic_partitions:
                topic_partitions_.write(out, version, cuts)
        out += pack_i(self.timeout_ms)


@dataclass(slots=True, eq=False, repr=False)
class PartitionResult(Struct):
    """Versions 0 to 2. Part of ElectLeadersResponse."""

    partition_id: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[PartitionResult, int]:
        error_message: str | None
        if version >= 2:
            partition_id, error_code = unpack_ih(buffer, position)
            position += 6
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return PartitionResult(partition_id, error_code, error_message), position
        partition_id, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_nullable_string(buffer, position, limit)
        return PartitionResult(partition_id, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_ih(self.partition_id, self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out.append(0)
            return
        out += pack_ih(self.partition_id, self.error_code)
        write_nullable_string(out, self.error_message)


@dataclass(slots=True, eq=False, repr=False)
class ReplicaElectionResult(Struct):
    """Versions 0 to 2. Part of ElectLeadersResponse."""

    topic: str = ""
    partition_result: list[PartitionResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ReplicaElectionResult, int]:
        partition_result: list[PartitionResult]
        if version >= 2:
            topic, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 8)
            partition_result = []
            for _ in range(count):
                partition_result_, position = PartitionResult.read(buffer, position, limit, version)
                partition_result.append(partition_result_)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ReplicaElectionResult(topic, partition_result), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 8)
        partition_result = []
        for _ in range(count):
            partition_result_, position = PartitionResult.read(buffer, position, limit, version)
            partition_result.append(partition_result_)
        return ReplicaElectionResult(topic, partition_result), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partition_result))
            for partition_result_ in self.partition_result:
                partition_result_.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partition_result))
        for partition_result_ in self.partition_result:
            partition_result_.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ElectLeadersResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 43
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ElectLeadersResponse, int]:
        replica_election_results: list[ReplicaElectionResult]
        if version >= 2:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            count, position = read_compact_count(buffer, position, limit, 3)
            replica_election_results = []
            for _ in range(count):
                replica_election_result, position = ReplicaElectionResult.read(
                    buffer, position, limit, version
                )
                replica_election_results.append(replica_election_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ElectLeadersResponse(throttle_time_ms, error_code, replica_election_results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        if version >= 1:
            (error_code,) = unpack_h(buffer, position)
            position += 2
        else:
            error_code = 0
        count, position = read_count(buffer, position, limit, 6)
        replica_election_results = []
        for _ in range(count):
            replica_election_result, position = ReplicaElectionResult.read(buffer, position, limit, version)
            replica_election_results.append(replica_election_result)
        return ElectLeadersResponse(throttle_time_ms, error_code, replica_election_results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            write_compact_count(out, len(self.replica_election_results))
            for replica_election_result in self.replica_election_results:
                replica_election_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        if version >= 1:
            out += pack_h(self.error_code)
        write_count(out, len(self.replica_election_results))
        for replica_election_result in self.replica_election_results:
            replica_election_result.write(out, version, cuts)
