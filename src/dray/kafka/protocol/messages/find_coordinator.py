"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

FindCoordinatorRequest: versions 0 to 6
FindCoordinatorResponse: versions 0 to 6
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
    read_nullable_string,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_nullable_string,
    write_string,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class FindCoordinatorRequest(Request["FindCoordinatorResponse"]):
    """Versions 0 to 6."""

    API_KEY = 10
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 3

    key: str = ""
    key_type: int = 0
    coordinator_keys: list[str] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[FindCoordinatorRequest, int]:
        coordinator_keys: list[str]
        if version >= 3:
            if version <= 3:
                key, position = read_compact_string(buffer, position, limit)
            else:
                key = ""
            (key_type,) = unpack_b(buffer, position)
            position += 1
            if version >= 4:
                count, position = read_compact_count(buffer, position, limit, 1)
                coordinator_keys = []
                for _ in range(count):
                    string_value, position = read_compact_string(buffer, position, limit)
                    coordinator_keys.append(string_value)
            else:
                coordinator_keys = []
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return FindCoordinatorRequest(key, key_type, coordinator_keys), position
        key, position = read_string(buffer, position, limit)
        if version >= 1:
            (key_type,) = unpack_b(buffer, position)
            position += 1
        else:
            key_type = 0
        return FindCoordinatorRequest(key, key_type, []), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            if version <= 3:
                write_compact_string(out, self.key)
            out += pack_b(self.key_type)
            if version >= 4:
                write_compact_count(out, len(self.coordinator_keys))
                for string_value in self.coordinator_keys:
                    write_compact_string(out, string_value)
            out.append(0)
            return
        write_string(out, self.key)
        if version >= 1:
            out += pack_b(self.key_type)


@dataclass(slots=True, eq=False, repr=False)
class Coordinator(Struct):
    """Versions 4 to 6. Part of FindCoordinatorResponse."""

    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Coordinator, int]:
        error_message: str | None
        key, position = read_compact_string(buffer, position, limit)
        (node_id,) = unpack_i(buffer, position)
        position += 4
        host, position = read_compact_string(buffer, position, limit)
        port, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Coordinator(key, node_id, host, port, error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.key)
        out += pack_i(self.node_id)
        write_compact_string(out, self.host)
        out += pack_ih(self.port, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class FindCoordinatorResponse(Response):
    """Versions 0 to 6."""

    API_KEY = 10
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 3

    throttle_time_ms: int = 0
    coordinators: list[Coordinator] = field(default_factory=list)
    error_code: int = 0
    error_message: str | None = ""
    node_id: int = 0
    host: str = ""
    port: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[FindCoordinatorResponse, int]:
        coordinators: list[Coordinator]
        error_message: str | None
        if version >= 3:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            if version >= 4:
                count, position = read_compact_count(buffer, position, limit, 14)
                coordinators = []
                for _ in range(count):
                    coordinator, position = Coordinator.read(buffer, position, limit, version)
                    coordinators.append(coordinator)
            else:
                coordinators = []
            if version <= 3:
                (error_code,) = unpack_h(buffer, position)
                position += 2
                error_message, position = read_compact_nullable_string(buffer, position, limit)
                (node_id,) = unpack_i(buffer, position)
                position += 4
                host, position = read_compact_string(buffer, position, limit)
                (port,) = unpack_i(buffer, position)
                position += 4
            else:
                error_code = 0
                error_message = ""
                node_id = 0
                host = ""
                port = 0
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return FindCoordinatorResponse(
                throttle_time_ms, coordinators, error_code, error_message, node_id, host, port
            ), position
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        (error_code,) = unpack_h(buffer, position)
        position += 2
        if version >= 1:
            error_message, position = read_nullable_string(buffer, position, limit)
        else:
            error_message = ""
        (node_id,) = unpack_i(buffer, position)
        position += 4
        host, position = read_string(buffer, position, limit)
        (port,) = unpack_i(buffer, position)
        position += 4
        return FindCoordinatorResponse(
            throttle_time_ms, [], error_code, error_message, node_id, host, port
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 3:
            out += pack_i(self.throttle_time_ms)
            if version >= 4:
                write_compact_count(out, len(self.coordinators))
                for coordinator in self.coordinators:
                    coordinator.write(out, version, cuts)
            if version <= 3:
                out += pack_h(self.error_code)
                write_compact_nullable_string(out, self.error_message)
                out += pack_i(self.node_id)
                write_compact_string(out, self.host)
                out += pack_i(self.port)
            out.append(0)
            return
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
        out += pack_h(self.error_code)
        if version >= 1:
            write_nullable_string(out, self.error_message)
        out += pack_i(self.node_id)
        write_string(out, self.host)
        out += pack_i(self.port)
