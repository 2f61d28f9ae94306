"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ConsumerGroupDescribeRequest: versions 0 to 1
ConsumerGroupDescribeResponse: versions 0 to 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ii = Layout(">ii").pack
unpack_ii = Layout(">ii").unpack_from
pack_ix = Layout(">ix").pack
unpack_oB = Layout(">?B").unpack_from
pack_ox = Layout(">?x").pack
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ConsumerGroupDescribeRequest(Request["ConsumerGroupDescribeResponse"]):
    """Versions 0 to 1."""

    API_KEY = 69
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    group_ids: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerGroupDescribeRequest, int]:
        group_ids: list[str]
        count, position = read_compact_count(buffer, position, limit, 1)
        group_ids = []
        for _ in range(count):
            string_value, position = read_compact_string(buffer, position, limit)
            group_ids.append(string_value)
        include_authorized_operations, tags = unpack_oB(buffer, position)
        position += 2
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ConsumerGroupDescribeRequest(group_ids, include_authorized_operations), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.group_ids))
        for string_value in self.group_ids:
            write_compact_string(out, string_value)
        out += pack_ox(self.include_authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class TopicPartitions(Struct):
    """Versions 0 to 1. Part of ConsumerGroupDescribeResponse."""

    topic_id: UUID = ZERO_UUID
    topic_name: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicPartitions, int]:
        topic_id: UUID
        partitions: list[int]
        (topic_id,) = unpack_u(buffer, position)
        position += 16
        topic_id = make_uuid(topic_id)
        topic_name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicPartitions(topic_id, topic_name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_u(self.topic_id.bytes)
        write_compact_string(out, self.topic_name)
        write_compact_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class Assignment(Struct):
    """Versions 0 to 1. Part of ConsumerGroupDescribeResponse."""

    topic_partitions: list[TopicPartitions] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Assignment, int]:
        topic_partitions: list[TopicPartitions]
        count, position = read_compact_count(buffer, position, limit, 19)
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
class Member(Struct):
    """Versions 0 to 1. Part of ConsumerGroupDescribeResponse."""

    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: list[str] = field(default_factory=list)
    subscribed_topic_regex: str | None = None
    assignment: Assignment = field(default_factory=Assignment)
    target_assignment: Assignment = field(default_factory=Assignment)
    member_type: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Member, int]:
        instance_id: str | None
        rack_id: str | None
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        member_id, position = read_compact_string(buffer, position, limit)
        instance_id, position = read_compact_nullable_string(buffer, position, limit)
        rack_id, position = read_compact_nullable_string(buffer, position, limit)
        (member_epoch,) = unpack_i(buffer, position)
        position += 4
        client_id, position = read_compact_string(buffer, position, limit)
        client_host, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 1)
        subscribed_topic_names = []
        for _ in range(count):
            string_value, position = read_compact_string(buffer, position, limit)
            subscribed_topic_names.append(string_value)
        subscribed_topic_regex, position = read_compact_nullable_string(buffer, position, limit)
        assignment, position = Assignment.read(buffer, position, limit, version)
        target_assignment, position = Assignment.read(buffer, position, limit, version)
        if version >= 1:
            (member_type,) = unpack_b(buffer, position)
            position += 1
        else:
            member_type = -1
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Member(
            member_id,
            instance_id,
            rack_id,
            member_epoch,
            client_id,
            client_host,
            subscribed_topic_names,
            subscribed_topic_regex,
            assignment,
            target_assignment,
            member_type,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.member_id)
        write_compact_nullable_string(out, self.instance_id)
        write_compact_nullable_string(out, self.rack_id)
        out += pack_i(self.member_epoch)
        write_compact_string(out, self.client_id)
        write_compact_string(out, self.client_host)
        write_compact_count(out, len(self.subscribed_topic_names))
        for string_value in self.subscribed_topic_names:
            write_compact_string(out, string_value)
        write_compact_nullable_string(out, self.subscribed_topic_regex)
        self.assignment.write(out, version, cuts)
        self.target_assignment.write(out, version, cuts)
        if version >= 1:
            out += pack_b(self.member_type)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribedGroup(Struct):
    """Versions 0 to 1. Part of ConsumerGroupDescribeResponse."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: list[Member] = field(default_factory=list)
    authorized_operations: int = -2147483648

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribedGroup, int]:
        error_message: str | None
        members: list[Member]
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        group_id, position = read_compact_string(buffer, position, limit)
        group_state, position = read_compact_string(buffer, position, limit)
        group_epoch, assignment_epoch = unpack_ii(buffer, position)
        position += 8
        assignor_name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 17 if version >= 1 else 16)
        members = []
        for _ in range(count):
            member, position = Member.read(buffer, position, limit, version)
            members.append(member)
        authorized_operations, tags = unpack_iB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribedGroup(
            error_code,
            error_message,
            group_id,
            group_state,
            group_epoch,
            assignment_epoch,
            assignor_name,
            members,
            authorized_operations,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_h(self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_string(out, self.group_id)
        write_compact_string(out, self.group_state)
        out += pack_ii(self.group_epoch, self.assignment_epoch)
        write_compact_string(out, self.assignor_name)
        write_compact_count(out, len(self.members))
        for member in self.members:
            member.write(out, version, cuts)
        out += pack_ix(self.authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class ConsumerGroupDescribeResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 69
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerGroupDescribeResponse, int]:
        groups: list[DescribedGroup]
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 20)
        groups = []
        for _ in range(count):
            described_group, position = DescribedGroup.read(buffer, position, limit, version)
            groups.append(described_group)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ConsumerGroupDescribeResponse(throttle_time_ms, groups), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        write_compact_count(out, len(self.groups))
        for described_group in self.groups:
            described_group.write(out, version, cuts)
        out.append(0)
