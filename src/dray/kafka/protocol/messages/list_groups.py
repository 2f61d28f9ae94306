"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ListGroupsRequest: versions 0 to 5
ListGroupsResponse: versions 0 to 5
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
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ListGroupsRequest(Request["ListGroupsResponse"]):
    """Versions 0 to 5."""

    API_KEY = 16
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 3

    states_filter: list[str] = field(default_factory=list)
    types_filter: list[str] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListGroupsRequest, int]:
        states_filter: list[str]
        types_filter: list[str]
        if version >= 3:
            if version >= 4:
                count, position = read_compact_count(buffer, position, limit, 1)
                states_filter = []
                for _ in range(count):
                    string_value, position = read_compact_string(buffer, position, limit)
                    states_filter.append(string_value)
            else:
                states_filter = []
            if version >= 5:
                count, position = read_compact_count(buffer, position, limit, 1)
                types_filter = []
                for _ in range(count):
                    string_value, position = read_compact_string(buffer, position, limit)
                    types_filter.append(string_value)
            else:
                types_filter = []
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListGroupsRequest(states_filter, types_filter), position
        return ListGroupsRequest([], []), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            if version >= 4:
                write_compact_count(out, len(self.states_filter))
                for string_value in self.states_filter:
                    write_compact_string(out, string_value)
            if version >= 5:
                write_compact_count(out, len(self.types_filter))
                for string_value in self.types_filter:
                    write_compact_string(out, string_value)
            out.append(0)
            return
        pass


@dataclass(slots=True, eq=False, repr=False)
class ListedGroup(Struct):
    """Versions 0 to 5. Part of ListGroupsResponse."""

    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListedGroup, int]:
        if version >= 3:
            group_id, position = read_compact_string(buffer, position, limit)
            protocol_type, position = read_compact_string(buffer, position, limit)
            if version >= 4:
                group_state, position = read_compact_string(buffer, position, limit)
            else:
                group_state = ""
            if version >= 5:
                group_type, position = read_compact_string(buffer, position, limit)
            else:
                group_type = ""
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListedGroup(group_id, protocol_type, group_state, group_type), position
        group_id, position = read_string(buffer, position, limit)
        protocol_type, position = read_string(buffer, position, limit)
        return ListedGroup(group_id, protocol_type, "", ""), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            write_compact_string(out, self.group_id)
            write_compact_string(out, self.protocol_type)
            if version >= 4:
                write_compact_string(out, self.group_state)
            if version >= 5:
                write_compact_string(out, self.group_type)
            out.append(0)
            return
        write_string(out, self.group_id)
        write_string(out, self.protocol_type)


@dataclass(slots=True, eq=False, repr=False)
class ListGroupsResponse(Response):
    """Versions 0 to 5."""

    API_KEY = 16
    VERSIONS = (0, 5)
    FLEXIBLE_FROM = 3

    throttle_time_ms: int = 0
    error_code: int = 0
    groups: list[ListedGroup] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ListGroupsResponse, int]:
        groups: list[ListedGroup]
        if version >= 3:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            count, position = read_compact_count(
                buffer, position, limit, 5 if version >= 5 else 4 if version >= 4 else 3
            )
            groups = []
            for _ in range(count):
                listed_group, position = ListedGroup.read(buffer, position, limit, version)
                groups.append(listed_group)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ListGroupsResponse(throttle_time_ms, error_code, groups), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        (error_code,) = unpack_h(buffer, position)
        position += 2
        count, position = read_count(buffer, position, limit, 4)
        groups = []
        for _ in range(count):
            listed_group, position = ListedGroup.read(buffer, position, limit, version)
            groups.append(listed_group)
        return ListGroupsResponse(throttle_time_ms, error_code, groups), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            write_compact_count(out, len(self.groups))
            for listed_group in self.groups:
                listed_group.write(out, version, cuts)
            out.append(0)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        out += pack_h(self.error_code)
        write_count(out, len(self.groups))
        for listed_group in self.groups:
            listed_group.write(out, version, cuts)
