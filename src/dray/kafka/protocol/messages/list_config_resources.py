"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ListConfigResourcesRequest: versions 0 to 1
ListConfigResourcesResponse: versions 0 to 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_string,
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_numbers,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ListConfigResourcesRequest(Request["ListConfigResourcesResponse"]):
    """Versions 0 to 1."""

    API_KEY = 74
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    resource_types: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListConfigResourcesRequest, int]:
        resource_types: list[int]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 1)
            resource_types, position = read_numbers(buffer, position, "b", 1, count)
        else:
            resource_types = []
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListConfigResourcesRequest(resource_types), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.resource_types))
            write_numbers(out, "b", self.resource_types)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ConfigResource(Struct):
    """Versions 0 to 1. Part of ListConfigResourcesResponse."""

    resource_name: str = ""
    resource_type: int = 16

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ConfigResource, int]:
        resource_name, position = read_compact_string(buffer, position, limit)
        if version >= 1:
            (resource_type,) = unpack_b(buffer, position)
            position += 1
        else:
            resource_type = 16
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ConfigResource(resource_name, resource_type), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.resource_name)
        if version >= 1:
            out += pack_b(self.resource_type)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ListConfigResourcesResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 74
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    config_resources: list[ConfigResource] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ListConfigResourcesResponse, int]:
        config_resources: list[ConfigResource]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        count, position = read_compact_count(buffer, position, limit, 3 if version >= 1 else 2)
        config_resources = []
        for _ in range(count):
            config_resource, position = ConfigResource.read(buffer, position, limit, version)
            config_resources.append(config_resource)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ListConfigResourcesResponse(throttle_time_ms, error_code, config_resources), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_count(out, len(self.config_resources))
        for config_resource in self.config_resources:
            config_resource.write(out, version, cuts)
        out.append(0)
