"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ConsumerGroupHeartbeatRequest: versions 0 to 1
ConsumerGroupHeartbeatResponse: versions 0 to 1
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

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_ii = Layout(">ii").pack
unpack_ii = Layout(">ii").unpack_from
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class TopicPartitions(Struct):
    """Versions 0 to 1. Part of ConsumerGroupHeartbeatRequest."""

    topic_id: UUID = ZERO_UUID
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicPartitions, int]:
        topic_id: UUID
        partitions: list[int]
        (topic_id,) = unpack_u(buffer, position)
        position += 16
        topic_id = make_uuid(topic_id)
        count, position = read_compact_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicPartitions(topic_id, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_u(self.topic_id.bytes)
        write_compact_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ConsumerGroupHeartbeatRequest(Request["ConsumerGroupHeartbeatResponse"]):
    """Versions 0 to 1."""

    API_KEY = 68
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: list[TopicPartitions] | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerGroupHeartbeatRequest, int]:
        instance_id: str | None
        rack_id: str | None
        subscribed_topic_names: list[str] | None
        subscribed_topic_regex: str | None
        server_assignor: str | None
        topic_partitions: list[TopicPartitions] | None
        group_id, position = read_compact_string(buffer, position, limit)
        member_id, position = read_compact_string(buffer, position, limit)
        (member_epoch,) = unpack_i(buffer, position)
        position += 4
        instance_id, position = read_compact_nullable_string(buffer, position, limit)
        rack_id, position = read_compact_nullable_string(buffer, position, limit)
        (rebalance_timeout_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_nullable_count(buffer, position, limit, 1)
        if count < 0:
            subscribed_topic_names = None
        else:
            subscribed_topic_names = []
            for _ in range(count):
                string_value, position = read_compact_string(buffer, position, limit)
                subscribed_topic_names.append(string_value)
        if version >= 1:
            subscribed_topic_regex, position = read_compact_nullable_string(buffer, position, limit)
        else:
            subscribed_topic_regex = None
        server_assignor, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_nullable_count(buffer, position, limit, 18)
        if count < 0:
            topic_partitions = None
        else:
            topic_partitions = []
            for _ in range(count):
                topic_partitions_, position = TopicPartitions.read(buffer, position, limit, version)
                topic_partitions.append(topic_partitions_)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ConsumerGroupHeartbeatRequest(
            group_id,
            member_id,
            member_epoch,
            instance_id,
            rack_id,
            rebalance_timeout_ms,
            subscribed_topic_names,
            subscribed_topic_regex,
            server_assignor,
            topic_partitions,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.group_id)
        write_compact_string(out, self.member_id)
        out += pack_i(self.member_epoch)
        write_compact_nullable_string(out, self.instance_id)
        write_compact_nullable_string(out, self.rack_id)
        out += pack_i(self.rebalance_timeout_ms)
        if self.subscribed_topic_names is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.subscribed_topic_names))
            for string_value in self.subscribed_topic_names:
                write_compact_string(out, string_value)
        if version >= 1:
            write_compact_nullable_string(out, self.subscribed_topic_regex)
        write_compact_nullable_string(out, self.server_assignor)
        if self.topic_partitions is None:
            out += bytes(1)
        else:
            write_compact_count(out, len(self.topic_partitions))
            for topic_partitions_ in self.topic_partitions:
                topic_partitions_.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class Assignment(Struct):
    """Versions 0 to 1. Part of ConsumerGroupHeartbeatResponse."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Assignment, int]:
        topic_partitions: list[TopicPartitions]
        count, position = read_compact_count(buffer, position, limit, 18)
        topic_partitions = []
        for _ in range(count):
            topic_partitions_, position = TopicPartitions.read(buffer, position, limit, version)
            topic_partitions.append(topic_partitions_)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Assignment(topic_partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.topic_partitions))
        for topic_partitions_ in self.topic_partitions:
            topic_partitions_.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ConsumerGroupHeartbeatResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 68
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerGroupHeartbeatResponse, int]:
        error_message: str | None
        member_id: str | None
        assignment: Assignment | None
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        member_id, position = read_compact_nullable_string(buffer, position, limit)
        member_epoch, heartbeat_interval_ms = unpack_ii(buffer, position)
        position += 8
        if buffer[position] == 0xFF:
            assignment = None
            position += 1
        elif buffer[position] == 1:
            assignment, position = Assignment.read(buffer, position + 1, limit, version)
        else:
            raise DecodeError("ConsumerGroupHeartbeatResponse.assignment has an unknown marker")
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ConsumerGroupHeartbeatResponse(
            throttle_time_ms,
            error_code,
            error_message,
            member_id,
            member_epoch,
            heartbeat_interval_ms,
            assignment,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_nullable_string(out, self.member_id)
        out += pack_ii(self.member_epoch, self.heartbeat_interval_ms)
        if self.assignment is None:
            out.append(0xFF)
        else:
            out.append(1)
            self.assignment.write(out, version, cuts)
        out.append(0)
