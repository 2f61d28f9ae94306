"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeGroupsRequest: versions 0 to 6
DescribeGroupsResponse: versions 0 to 6
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_bytes,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_bytes,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ix = Layout(">ix").pack
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
unpack_oB = Layout(">?B").unpack_from
pack_ox = Layout(">?x").pack


@dataclass(slots=True, eq=False, repr=False)
class DescribeGroupsRequest(Request["DescribeGroupsResponse"]):
    """Versions 0 to 6."""

    API_KEY = 15
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 5

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeGroupsRequest, int]:
        groups: list[str]
        if version >= 5:
            count, position = read_compact_count(buffer, position, limit, 1)
            groups = []
            for _ in range(count):
                string_value, position = read_compact_string(buffer, position, limit)
                groups.append(string_value)
            include_authorized_operations, tags = unpack_oB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeGroupsRequest(groups, include_authorized_operations), position
        count, position = read_count(buffer, position, limit, 2)
        groups = []
        for _ in range(count):
            string_value, position = read_string(buffer, position, limit)
            groups.append(string_value)
        if version >= 3:
            (include_authorized_operations,) = unpack_o(buffer, position)
            position += 1
        else:
            include_authorized_operations = False
        return DescribeGroupsRequest(groups, include_authorized_operations), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_count(out, len(self.groups))
            for string_value in self.groups:
                write_compact_string(out, string_value)
            out += pack_ox(self.include_authorized_operations)
            return
        write_count(out, len(self.groups))
        for string_value in self.groups:
            write_string(out, string_value)
        if version >= 3:
            out += pack_o(self.include_authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class DescribedGroupMember(Struct):
    """Versions 0 to 6. Part of DescribeGroupsResponse."""

    member_id: str = ""
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    member_metadata: bytes = b""
    member_assignment: bytes = b""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribedGroupMember, int]:
        group_instance_id: str | None
        if version >= 5:
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            client_id, position = read_compact_string(buffer, position, limit)
            client_host, position = read_compact_string(buffer, position, limit)
            member_metadata, position = read_compact_bytes(buffer, position, limit)
            member_assignment, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribedGroupMember(
                member_id, group_instance_id, client_id, client_host, member_metadata, member_assignment
            ), position
        member_id, position = read_string(buffer, position, limit)
        if version >= 4:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        client_id, position = read_string(buffer, position, limit)
        client_host, position = read_string(buffer, position, limit)
        member_metadata, position = read_bytes(buffer, position, limit)
        member_assignment, position = read_bytes(buffer, position, limit)
        return DescribedGroupMember(
            member_id, group_instance_id, client_id, client_host, member_metadata, member_assignment
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            write_compact_string(out, self.client_id)
            write_compact_string(out, self.client_host)
            write_compact_bytes(out, self.member_metadata)
            write_compact_bytes(out, self.member_assignment)
            out.append(0)
            return
        write_string(out, self.member_id)
        if version >= 4:
            write_nullable_string(out, self.group_instance_id)
        write_string(out, self.client_id)
        write_string(out, self.client_host)
        write_bytes(out, self.member_metadata)
        write_bytes(out, self.member_assignment)


@dataclass(slots=True, eq=False, repr=False)
class DescribedGroup(Struct):
    """Versions 0 to 6. Part of DescribeGroupsResponse."""

    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: int = -2147483648

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribedGroup, int]:
        error_message: str | None
        members: list[DescribedGroupMember]
        if version >= 5:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            if version >= 6:
                error_message, position = read_compact_nullable_string(buffer, position, limit)
            else:
                error_message = None
            group_id, position = read_compact_string(buffer, position, limit)
            group_state, position = read_compact_string(buffer, position, limit)
            protocol_type, position = read_compact_string(buffer, position, limit)
            protocol_data, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 7)
            members = []
            for _ in range(count):
                described_group_member, position = DescribedGroupMember.read(buffer, position, limit, version)
                members.append(described_group_member)
            authorized_operations, tags = unpack_iB(buffer, position)
            position += 5
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribedGroup(
                error_code,
                error_message,
                group_id,
                group_state,
                protocol_type,
                protocol_data,
                members,
                authorized_operations,
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        group_id, position = read_string(buffer, position, limit)
        group_state, position = read_string(buffer, position, limit)
        protocol_type, position = read_string(buffer, position, limit)
        protocol_data, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 16 if version >= 4 else 14)
        members = []
        for _ in range(count):
            described_group_member, position = DescribedGroupMember.read(buffer, position, limit, version)
            members.append(described_group_member)
        if version >= 3:
            (authorized_operations,) = unpack_i(buffer, position)
            position += 4
        else:
            authorized_operations = -2147483648
        return DescribedGroup(
            error_code,
            None,
            group_id,
            group_state,
            protocol_type,
            protocol_data,
            members,
            authorized_operations,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            out += pack_h(self.error_code)
            if version >= 6:
                write_compact_nullable_string(out, self.error_message)
            write_compact_string(out, self.group_id)
            write_compact_string(out, self.group_state)
            write_compact_string(out, self.protocol_type)
            write_compact_string(out, self.protocol_data)
            write_compact_count(out, len(self.members))
            for described_group_member in self.members:
                described_group_member.write(out, version, cuts)
            out += pack_ix(self.authorized_operations)
            return
        out += pack_h(self.error_code)
        write_string(out, self.group_id)
        write_string(out, self.group_state)
        write_string(out, self.protocol_type)
        write_string(out, self.protocol_data)
        write_count(out, len(self.members))
        for described_group_member in self.members:
            described_group_member.write(out, version, cuts)
        if version >= 3:
            out += pack_i(self.authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class DescribeGroupsResponse(Response):
    """Versions 0 to 6."""

    API_KEY = 15
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 5

    throttle_time_ms: int = 0
    groups: list[DescribedGroup] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeGroupsResponse, int]:
        groups: list[DescribedGroup]
        if version >= 5:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 13 if version >= 6 else 12)
            groups = []
            for _ in range(count):
                described_group, position = DescribedGroup.read(buffer, position, limit, version)
                groups.append(described_group)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeGroupsResponse(throttle_time_ms, groups), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        count, position = read_count(buffer, position, limit, 18 if version >= 3 else 14)
        groups = []
        for _ in range(count):
            described_group, position = DescribedGroup.read(buffer, position, limit, version)
            groups.append(described_group)
        return DescribeGroupsResponse(throttle_time_ms, groups), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.groups))
            for described_group in self.groups:
                described_group.write(out, version, cuts)
            out.append(0)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.groups))
        for described_group in self.groups:
            described_group.write(out, version, cuts)
