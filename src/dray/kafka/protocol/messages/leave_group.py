"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

LeaveGroupRequest: versions 0 to 5
LeaveGroupResponse: versions 0 to 5
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
unpack_hB = Layout(">hB").unpack_from
pack_hx = Layout(">hx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class MemberIdentity(Struct):
    """Versions 3 to 5. Part of LeaveGroupRequest."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[MemberIdentity, int]:
        group_instance_id: str | None
        reason: str | None
        if version >= 4:
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            if version >= 5:
                reason, position = read_compact_nullable_string(buffer, position, limit)
            else:
                reason = None
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MemberIdentity(member_id, group_instance_id, reason), position
        member_id, position = read_string(buffer, position, limit)
        group_instance_id, position = read_nullable_string(buffer, position, limit)
        return MemberIdentity(member_id, group_instance_id, None), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            if version >= 5:
                write_compact_nullable_string(out, self.reason)
            out.append(0)
            return
        write_string(out, self.member_id)
        write_nullable_string(out, self.group_instance_id)


@dataclass(slots=True, eq=False, repr=False)
class LeaveGroupRequest(Request["LeaveGroupResponse"]):
    """Versions 0 to 5."""

    API_KEY = 13
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 4

    group_id: str = ""
    members: list[MemberIdentity] = field(default_factory=list)
    member_id: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[LeaveGroupRequest, int]:
        members: list[MemberIdentity]
        if version >= 4:
            group_id, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4 if version >= 5 else 3)
            members = []
            for _ in range(count):
                member_identity, position = MemberIdentity.read(buffer, position, limit, version)
                members.append(member_identity)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return LeaveGroupRequest(group_id, members, ""), position
        group_id, position = read_string(buffer, position, limit)
        if version >= 3:
            count, position = read_count(buffer, position, limit, 4)
            members = []
            for _ in range(count):
                member_identity, position = MemberIdentity.read(buffer, position, limit, version)
                members.append(member_identity)
        else:
            members = []
        if version <= 2:
            member_id, position = read_string(buffer, position, limit)
        else:
            member_id = ""
        return LeaveGroupRequest(group_id, members, member_id), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.group_id)
            write_compact_count(out, len(self.members))
            for member_identity in self.members:
                member_identity.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.group_id)
        if version >= 3:
            write_count(out, len(self.members))
            for member_identity in self.members:
                member_identity.write(out, version, cuts)
        if version <= 2:
            write_string(out, self.member_id)


@dataclass(slots=True, eq=False, repr=False)
class MemberResponse(Struct):
    """Versions 3 to 5. Part of LeaveGroupResponse."""

    member_id: str = ""
    group_instance_id: str | None = ""
    error_code: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[MemberResponse, int]:
        group_instance_id: str | None
        if version >= 4:
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            error_code, tags = unpack_hB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MemberResponse(member_id, group_instance_id, error_code), position
        member_id, position = read_string(buffer, position, limit)
        group_instance_id, position = read_nullable_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        return MemberResponse(member_id, group_instance_id, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            out += pack_hx(self.error_code)
            return
        write_string(out, self.member_id)
        write_nullable_string(out, self.group_instance_id)
        out += pack_h(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class LeaveGroupResponse(Response):
    """Versions 0 to 5."""

    API_KEY = 13
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    error_code: int = 0
    members: list[MemberResponse] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[LeaveGroupResponse, int]:
        members: list[MemberResponse]
        if version >= 4:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            count, position = read_compact_count(buffer, position, limit, 5)
            members = []
            for _ in range(count):
                member_response, position = MemberResponse.read(buffer, position, limit, version)
                members.append(member_response)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return LeaveGroupResponse(throttle_time_ms, error_code, members), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        (error_code,) = unpack_h(buffer, position)
        position += 2
        if version >= 3:
            count, position = read_count(buffer, position, limit, 6)
            members = []
            for _ in range(count):
                member_response, position = MemberResponse.read(buffer, position, limit, version)
                members.append(member_response)
        else:
            members = []
        return LeaveGroupResponse(throttle_time_ms, error_code, members), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            write_compact_count(out, len(self.members))
            for member_response in self.members:
                member_response.write(out, version, cuts)
            out.append(0)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        out += pack_h(self.error_code)
        if version >= 3:
            write_count(out, len(self.members))
            for member_response in self.members:
                member_response.write(out, version, cuts)
