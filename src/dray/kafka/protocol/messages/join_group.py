"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

JoinGroupRequest: versions 0 to 9
JoinGroupResponse: versions 0 to 9
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

pack_hi = Layout(">hi").pack
unpack_hi = Layout(">hi").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ihi = Layout(">ihi").pack
unpack_ihi = Layout(">ihi").unpack_from
pack_ii = Layout(">ii").pack
unpack_ii = Layout(">ii").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupRequestProtocol(Struct):
    """Versions 0 to 9. Part of JoinGroupRequest."""

    name: str = ""
    metadata: bytes = b""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[JoinGroupRequestProtocol, int]:
        if version >= 6:
            name, position = read_compact_string(buffer, position, limit)
            metadata, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return JoinGroupRequestProtocol(name, metadata), position
        name, position = read_string(buffer, position, limit)
        metadata, position = read_bytes(buffer, position, limit)
        return JoinGroupRequestProtocol(name, metadata), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.name)
            write_compact_bytes(out, self.metadata)
            out.append(0)
            return
        write_string(out, self.name)
        write_bytes(out, self.metadata)


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupRequest(Request["JoinGroupResponse"]):
    """Versions 0 to 9."""

    API_KEY = 11
    VERSIONS = (0, 9)
    FLEXIBLE_FROM = 6

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[JoinGroupRequest, int]:
        group_instance_id: str | None
        protocols: list[JoinGroupRequestProtocol]
        reason: str | None
        if version >= 6:
            group_id, position = read_compact_string(buffer, position, limit)
            session_timeout_ms, rebalance_timeout_ms = unpack_ii(buffer, position)
            position += 8
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            protocol_type, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 3)
            protocols = []
            for _ in range(count):
                join_group_request_protocol, position = JoinGroupRequestProtocol.read(
                    buffer, position, limit, version
                )
                protocols.append(join_group_request_protocol)
            if version >= 8:
                reason, position = read_compact_nullable_string(buffer, position, limit)
            else:
                reason = None
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return JoinGroupRequest(
                group_id,
                session_timeout_ms,
                rebalance_timeout_ms,
                member_id,
                group_instance_id,
                protocol_type,
                protocols,
                reason,
            ), position
        group_id, position = read_string(buffer, position, limit)
        (session_timeout_ms,) = unpack_i(buffer, position)
        position += 4
        if version >= 1:
            (rebalance_timeout_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            rebalance_timeout_ms = -1
        member_id, position = read_string(buffer, position, limit)
        if version >= 5:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        protocol_type, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 6)
        protocols = []
        for _ in range(count):
            join_group_request_protocol, position = JoinGroupRequestProtocol.read(
                buffer, position, limit, version
            )
            protocols.append(join_group_request_protocol)
        return JoinGroupRequest(
            group_id,
            session_timeout_ms,
            rebalance_timeout_ms,
            member_id,
            group_instance_id,
            protocol_type,
            protocols,
            None,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.group_id)
            out += pack_ii(self.session_timeout_ms, self.rebalance_timeout_ms)
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            write_compact_string(out, self.protocol_type)
            write_compact_count(out, len(self.protocols))
            for join_group_request_protocol in self.protocols:
                join_group_request_protocol.write(out, version, cuts)
            if version >= 8:
                write_compact_nullable_string(out, self.reason)
            out.append(0)
            return
        write_string(out, self.group_id)
        out += pack_i(self.session_timeout_ms)
        if version >= 1:
            out += pack_i(self.rebalance_timeout_ms)
        write_string(out, self.member_id)
        if version >= 5:
            write_nullable_string(out, self.group_instance_id)
        write_string(out, self.protocol_type)
        write_count(out, len(self.protocols))
        for join_group_request_protocol in self.protocols:
            join_group_request_protocol.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupResponseMember(Struct):
    """Versions 0 to 9. Part of JoinGroupResponse."""

    member_id: str = ""
    group_instance_id: str | None = None
    metadata: bytes = b""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[JoinGroupResponseMember, int]:
        group_instance_id: str | None
        if version >= 6:
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            metadata, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return JoinGroupResponseMember(member_id, group_instance_id, metadata), position
        member_id, position = read_string(buffer, position, limit)
        if version >= 5:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        metadata, position = read_bytes(buffer, position, limit)
        return JoinGroupResponseMember(member_id, group_instance_id, metadata), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            write_compact_bytes(out, self.metadata)
            out.append(0)
            return
        write_string(out, self.member_id)
        if version >= 5:
            write_nullable_string(out, self.group_instance_id)
        write_bytes(out, self.metadata)


@dataclass(slots=True, eq=False, repr=False)
class JoinGroupResponse(Response):
    """Versions 0 to 9."""

    API_KEY = 11
    VERSIONS = (0, 9)
    FLEXIBLE_FROM = 6

    throttle_time_ms: int = 0
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = ""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: list[JoinGroupResponseMember] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[JoinGroupResponse, int]:
        protocol_type: str | None
        protocol_name: str | None
        members: list[JoinGroupResponseMember]
        if version >= 6:
            throttle_time_ms, error_code, generation_id = unpack_ihi(buffer, position)
            position += 10
            if version >= 7:
                protocol_type, position = read_compact_nullable_string(buffer, position, limit)
            else:
                protocol_type = None
            protocol_name, position = (read_compact_nullable_string if version >= 7 else read_compact_string)(
                buffer, position, limit
            )
            leader, position = read_compact_string(buffer, position, limit)
            if version >= 9:
                (skip_assignment,) = unpack_o(buffer, position)
                position += 1
            else:
                skip_assignment = False
            member_id, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            members = []
            for _ in range(count):
                join_group_response_member, position = JoinGroupResponseMember.read(
                    buffer, position, limit, version
                )
                members.append(join_group_response_member)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return JoinGroupResponse(
                throttle_time_ms,
                error_code,
                generation_id,
                protocol_type,
                protocol_name,
                leader,
                skip_assignment,
                member_id,
                members,
            ), position
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        error_code, generation_id = unpack_hi(buffer, position)
        position += 6
        protocol_name, position = read_string(buffer, position, limit)
        leader, position = read_string(buffer, position, limit)
        member_id, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 8 if version >= 5 else 6)
        members = []
        for _ in range(count):
            join_group_response_member, position = JoinGroupResponseMember.read(
                buffer, position, limit, version
            )
            members.append(join_group_response_member)
        return JoinGroupResponse(
            throttle_time_ms,
            error_code,
            generation_id,
            None,
            protocol_name,
            leader,
            False,
            member_id,
            members,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 6:
            out += pack_ihi(self.throttle_time_ms, self.error_code, self.generation_id)
            if version >= 7:
                write_compact_nullable_string(out, self.protocol_type)
            (write_compact_nullable_string if version >= 7 else write_compact_string)(out, self.protocol_name)
            write_compact_string(out, self.leader)
            if version >= 9:
                out += pack_o(self.skip_assignment)
            write_compact_string(out, self.member_id)
            write_compact_count(out, len(self.members))
            for join_group_response_member in self.members:
                join_group_response_member.write(out, version, cuts)
            out.append(0)
            return
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
        out += pack_hi(self.error_code, self.generation_id)
        write_string(out, self.protocol_name)
        write_string(out, self.leader)
        write_string(out, self.member_id)
        write_count(out, len(self.members))
        for join_group_response_member in self.members:
            join_group_response_member.write(out, version, cuts)
