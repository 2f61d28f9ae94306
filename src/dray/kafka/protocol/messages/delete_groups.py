"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DeleteGroupsRequest: versions 0 to 2
DeleteGroupsResponse: versions 0 to 2
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
unpack_hB = Layout(">hB").unpack_from
pack_hx = Layout(">hx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class DeleteGroupsRequest(Request["DeleteGroupsResponse"]):
    """Versions 0 to 2."""

    API_KEY = 42
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    groups_names: list[str] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteGroupsRequest, int]:
        groups_names: list[str]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 1)
            groups_names = []
            for _ in range(count):
                string_value, position = read_compact_string(buffer, position, limit)
                groups_names.append(string_value)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteGroupsRequest(groups_names), position
        count, position = read_count(buffer, position, limit, 2)
        groups_names = []
        for _ in range(count):
            string_value, position = read_string(buffer, position, limit)
            groups_names.append(string_value)
        return DeleteGroupsRequest(groups_names), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.groups_names))
            for string_value in self.groups_names:
                write_compact_string(out, string_value)
            out.append(0)
            return
        write_count(out, len(self.groups_names))
        for string_value in self.groups_names:
            write_string(out, string_value)


@dataclass(slots=True, eq=False, repr=False)
class DeletableGroupResult(Struct):
    """Versions 0 to 2. Part of DeleteGroupsResponse."""

    group_id: str = ""
    error_code: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeletableGroupResult, int]:
        if version >= 2:
            group_id, position = read_compact_string(buffer, position, limit)
            error_code, tags = unpack_hB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeletableGroupResult(group_id, error_code), position
        group_id, position = read_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        return DeletableGroupResult(group_id, error_code), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.group_id)
            out += pack_hx(self.error_code)
            return
        write_string(out, self.group_id)
        out += pack_h(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class DeleteGroupsResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 42
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    results: list[DeletableGroupResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteGroupsResponse, int]:
        results: list[DeletableGroupResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 4)
            results = []
            for _ in range(count):
                deletable_group_result, position = DeletableGroupResult.read(buffer, position, limit, version)
                results.append(deletable_group_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteGroupsResponse(throttle_time_ms, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 4)
        results = []
        for _ in range(count):
            deletable_group_result, position = DeletableGroupResult.read(buffer, position, limit, version)
            results.append(deletable_group_result)
        return DeleteGroupsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.results))
            for deletable_group_result in self.results:
                deletable_group_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for deletable_group_result in self.results:
            deletable_group_result.write(out, version, cuts)
