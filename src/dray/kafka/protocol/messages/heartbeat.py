"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

HeartbeatRequest: versions 0 to 4
HeartbeatResponse: versions 0 to 4
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    skip_tags,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_ihB = Layout(">ihB").unpack_from
pack_ihx = Layout(">ihx").pack


@dataclass(slots=True, eq=False, repr=False)
class HeartbeatRequest(Request["HeartbeatResponse"]):
    """Versions 0 to 4."""

    API_KEY = 12
    VERSIONS = (0, 4)
    FLEXIBLE_FROM = 4

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[HeartbeatRequest, int]:
        group_instance_id: str | None
        if version >= 4:
            group_id, position = read_compact_string(buffer, position, limit)
            (generation_id,) = unpack_i(buffer, position)
            position += 4
            member_id, position = read_compact_string(buffer, position, limit)
            group_instance_id, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id), position
        group_id, position = read_string(buffer, position, limit)
        (generation_id,) = unpack_i(buffer, position)
        position += 4
        member_id, position = read_string(buffer, position, limit)
        if version >= 3:
            group_instance_id, position = read_nullable_string(buffer, position, limit)
        else:
            group_instance_id = None
        return HeartbeatRequest(group_id, generation_id, member_id, group_instance_id), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.group_id)
            out += pack_i(self.generation_id)
            write_compact_string(out, self.member_id)
            write_compact_nullable_string(out, self.group_instance_id)
            out.append(0)
            return
        write_string(out, self.group_id)
        out += pack_i(self.generation_id)
        write_string(out, self.member_id)
        if version >= 3:
            write_nullable_string(out, self.group_instance_id)


@dataclass(slots=True, eq=False, repr=False)
class HeartbeatResponse(Response):
    """Versions 0 to 4."""

    API_KEY = 12
    VERSIONS = (0, 4)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    error_code: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[HeartbeatResponse, int]:
        if version >= 4:
            throttle_time_ms, error_code, tags = unpack_ihB(buffer, position)
            position += 7
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return HeartbeatResponse(throttle_time_ms, error_code), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        (error_code,) = unpack_h(buffer, position)
        position += 2
        return HeartbeatResponse(throttle_time_ms, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_ihx(self.throttle_time_ms, self.error_code)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        out += pack_h(self.error_code)
