"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

CreatePartitionsRequest: versions 0 to 3
CreatePartitionsResponse: versions 0 to 3
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

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_io = Layout(">i?").pack
unpack_io = Layout(">i?").unpack_from
unpack_ioB = Layout(">i?B").unpack_from
pack_iox = Layout(">i?x").pack


@dataclass(slots=True, eq=False, repr=False)
class CreatePartitionsAssignment(Struct):
    """Versions 0 to 3. Part of CreatePartitionsRequest."""

    broker_ids: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatePartitionsAssignment, int]:
        broker_ids: list[int]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 4)
            broker_ids, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatePartitionsAssignment(broker_ids), position
        count, position = read_count(buffer, position, limit, 4)
        broker_ids, position = read_numbers(buffer, position, "i", 4, count)
        return CreatePartitionsAssignment(broker_ids), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.broker_ids))
            write_numbers(out, "i", self.broker_ids)
            out.append(0)
            return
        write_count(out, len(self.broker_ids))
        write_numbers(out, "i", self.broker_ids)


@dataclass(slots=True, eq=False, repr=False)
class CreatePartitionsTopic(Struct):
    """Versions 0 to 3. Part of CreatePartitionsRequest."""

    name: str = ""
    count: int = 0
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatePartitionsTopic, int]:
        assignments: list[CreatePartitionsAssignment] | None
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            (count_,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_nullable_count(buffer, position, limit, 2)
            if count < 0:
                assignments = None
            else:
                assignments = []
                for _ in range(count):
                    create_partitions_assignment, position = CreatePartitionsAssignment.read(
                        buffer, position, limit, version
                    )
                    assignments.append(create_partitions_assignment)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatePartitionsTopic(name, count_, assignments), position
        name, position = read_string(buffer, position, limit)
        (count_,) = unpack_i(buffer, position)
        position += 4
        count, position = read_nullable_count(buffer, position, limit, 4)
        if count < 0:
            assignments = None
        else:
            assignments = []
            for _ in range(count):
                create_partitions_assignment, position = CreatePartitionsAssignment.read(
                    buffer, position, limit, version
                )
                assignments.append(create_partitions_assignment)
        return CreatePartitionsTopic(name, count_, assignments), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            out += pack_i(self.count)
            if self.assignments is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.assignments))
                for create_partitions_assignment in self.assignments:
                    create_partitions_assignment.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        out += pack_i(self.count)
        if self.assignments is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.assignments))
            for create_partitions_assignment in self.assignments:
                create_partitions_assignment.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class CreatePartitionsRequest(Request["CreatePartitionsResponse"]):
    """Versions 0 to 3."""

    API_KEY = 37
    VERSIONS = (0, 3)
    FLEXIBLE_FROM = 2

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatePartitionsRequest, int]:
        topics: list[CreatePartitionsTopic]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 7)
            topics = []
            for _ in range(count):
                create_partitions_topic, position = CreatePartitionsTopic.read(
                    buffer, position, limit, version
                )
                topics.append(create_partitions_topic)
            timeout_ms, validate_only, tags = unpack_ioB(buffer, position)
            position += 6
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatePartitionsRequest(topics, timeout_ms, validate_only), position
        count, position = read_count(buffer, position, limit, 10)
        topics = []
        for _ in range(count):
            create_partitions_topic, position = CreatePartitionsTopic.read(buffer, position, limit, version)
            topics.append(create_partitions_topic)
        timeout_ms, validate_only = unpack_io(buffer, position)
        position += 5
        return CreatePartitionsRequest(topics, timeout_ms, validate_only), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.topics))
            for create_partitions_topic in self.topics:
                create_partitions_topic.write(out, version, cuts)
            out += pack_iox(self.timeout_ms, self.validate_only)
            return
        write_count(out, len(self.topics))
        for create_partitions_topic in self.topics:
            create_partitions_topic.write(out, version, cuts)
        out += pack_io(self.timeout_ms, self.validate_only)


@dataclass(slots=True, eq=False, repr=False)
class CreatePartitionsTopicResult(Struct):
    """Versions 0 to 3. Part of CreatePartitionsResponse."""

    name: str = ""
    error_code: int = 0
    error_message: str | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatePartitionsTopicResult, int]:
        error_message: str | None
        if version >= 2:
            name, position = read_compact_string(buffer, position, limit)
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatePartitionsTopicResult(name, error_code, error_message), position
        name, position = read_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        return CreatePartitionsTopicResult(name, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.name)
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out.append(0)
            return
        write_string(out, self.name)
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)


@dataclass(slots=True, eq=False, repr=False)
class CreatePartitionsResponse(Response):
    """Versions 0 to 3."""

    API_KEY = 37
    VERSIONS = (0, 3)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatePartitionsResponse, int]:
        results: list[CreatePartitionsTopicResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 5)
            results = []
            for _ in range(count):
                create_partitions_topic_result, position = CreatePartitionsTopicResult.read(
                    buffer, position, limit, version
                )
                results.append(create_partitions_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatePartitionsResponse(throttle_time_ms, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 6)
        results = []
        for _ in range(count):
            create_partitions_topic_result, position = CreatePartitionsTopicResult.read(
                buffer, position, limit, version
            )
            results.append(create_partitions_topic_result)
        return CreatePartitionsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.results))
            for create_partitions_topic_result in self.results:
                create_partitions_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for create_partitions_topic_result in self.results:
            create_partitions_topic_result.write(out, version, cuts)
