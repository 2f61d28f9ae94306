"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

SyncGroupRequest: versions 0 to 5
SyncGroupResponse: versions 0 to 5
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
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class SyncGroupRequestAssignment(Struct):
    """Versions 0 to 5. Part of SyncGroupRequest."""

    member_id: str = ""
    assignment: bytes = b""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[SyncGroupRequestAssignment, int]:
        if version >= 4:
            member_id, position = read_compact_string(buffer, position, limit)
            assignment, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return SyncGroupRequestAssignment(member_id, assignment), position
        member_id, position = read_string(buffer, position, limit)
        assignment, position = read_bytes(buffer, position, limit)
        return SyncGroupRequestAssignment(member_id, assignment), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.member_id)
            write_compact_bytes(out, self.assignment)
            out.append(0)
            return
        write_string(out, self.member_id)
        write_bytes(out, self.assignment)


@dataclass(slots=True, eq=False, repr=False)
class SyncGroupRequest(Request["SyncGroupResponse"]):
    """Versions 0 to 5."""

    API_KEY = 14
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 4

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[SyncGroupRequest, int]:
        group_instance_id: str | None
        protocol_type: str | None
        protocol_name: str | None
        assignments: list[SyncGroupRequestAssignment]
        if version >= 4:
            group_id, position = read_compact_string(buffer, position, limit)
            (generation_id,) = unpack_i(buffer, position)
            position += 4
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            if version >= 5:
                protocol_type, position = read_compact_nullable_string(buffer, position, limit)
                protocol_name, position = read_compact_nullable_string(buffer, position, limit)
            else:
                protocol_type = None
                protocol_name = None
            count, position = read_compact_count(buffer, position, limit, 3)
            assignments = []
            for _ in range(count):
                sync_group_request_assignment, position = SyncGroupRequestAssignment.read(
                    buffer, position, limit, version
                )
                assignments.append(sync_group_request_assignment)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return SyncGroupRequest(
                group_id,
                generation_id,
                member_id,
                group_instance_id,
                protocol_type,
                protocol_name,
                assignments,
            ), position
        group_id, position = read_string(buffer, position, limit)
        (generation_id,) = unpack_i(buffer, position)
        position += 4
        member_id, position = read_string(buffer, position, limit)
        if version >= 3:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        count, position = read_count(buffer, position, limit, 6)
        assignments = []
        for _ in range(count):
            sync_group_request_assignment, position = SyncGroupRequestAssignment.read(
                buffer, position, limit, version
            )
            assignments.append(sync_group_request_assignment)
        return SyncGroupRequest(
            group_id, generation_id, member_id, group_instance_id, None, None, assignments
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.group_id)
            out += pack_i(self.generation_id)
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            if version >= 5:
                write_compact_nullable_string(out, self.protocol_type)
                write_compact_nullable_string(out, self.protocol_name)
            write_compact_count(out, len(self.assignments))
            for sync_group_request_assignment in self.assignments:
                sync_group_request_assignment.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.group_id)
        out += pack_i(self.generation_id)
        write_string(out, self.member_id)
        if version >= 3:
            write_nullable_string(out, self.group_instance_id)
        write_count(out, len(self.assignments))
        for sync_group_request_assignment in self.assignments:
            sync_group_request_assignment.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class SyncGroupResponse(Response):
    """Versions 0 to 5."""

    API_KEY = 14
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[SyncGroupResponse, int]:
        protocol_type: str | None
        protocol_name: str | None
        if version >= 4:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            if version >= 5:
                protocol_type, position = read_compact_nullable_string(buffer, position, limit)
                protocol_name, position = read_compact_nullable_string(buffer, position, limit)
            else:
                protocol_type = None
                protocol_name = None
            assignment, position = read_compact_bytes(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return SyncGroupResponse(
                throttle_time_ms, error_code, protocol_type, protocol_name, assignment
            ), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        (error_code,) = unpack_h(buffer, position)
        position += 2
        assignment, position = read_bytes(buffer, position, limit)
        return SyncGroupResponse(throttle_time_ms, error_code, None, None, assignment), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            if version >= 5:
                write_compact_nullable_string(out, self.protocol_type)
                write_compact_nullable_string(out, self.protocol_name)
            write_compact_bytes(out, self.assignment)
            out.append(0)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        out += pack_h(self.error_code)
        write_bytes(out, self.assignment)
