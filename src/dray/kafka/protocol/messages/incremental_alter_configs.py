"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

IncrementalAlterConfigsRequest: versions 0 to 1
IncrementalAlterConfigsResponse: versions 0 to 1
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

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
unpack_oB = Layout(">?B").unpack_from
pack_ox = Layout(">?x").pack


@dataclass(slots=True, eq=False, repr=False)
class AlterableConfig(Struct):
    """Versions 0 to 1. Part of IncrementalAlterConfigsRequest."""

    name: str = ""
    config_operation: int = 0
    value: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AlterableConfig, int]:
        value_: str | None
        if version >= 1:
            name, position = read_compact_string(buffer, position, limit)
            (config_operation,) = unpack_b(buffer, position)
            position += 1
            value_, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterableConfig(name, config_operation, value_), position
        name, position = read_string(buffer, position, limit)
        (config_operation,) = unpack_b(buffer, position)
        position += 1
        value_, position = read_nullable_string(buffer, position, limit)
        return AlterableConfig(name, config_operation, value_), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_string(out, self.name)
            out += pack_b(self.config_operation)
            write_compact_nullable_string(out, self.value)
            out.append(0)
            return
        write_string(out, self.name)
        out += pack_b(self.config_operation)
        write_nullable_string(out, self.value)


@dataclass(slots=True, eq=False, repr=False)
class AlterConfigsResource(Struct):
    """Versions 0 to 1. Part of IncrementalAlterConfigsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    configs: list[AlterableConfig] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AlterConfigsResource, int]:
        configs: list[AlterableConfig]
        if version >= 1:
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 4)
            configs = []
            for _ in range(count):
                alterable_config, position = AlterableConfig.read(buffer, position, limit, version)
                configs.append(alterable_config)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterConfigsResource(resource_type, resource_name, configs), position
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 5)
        configs = []
        for _ in range(count):
            alterable_config, position = AlterableConfig.read(buffer, position, limit, version)
            configs.append(alterable_config)
        return AlterConfigsResource(resource_type, resource_name, configs), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            write_compact_count(out, len(self.configs))
            for alterable_config in self.configs:
                alterable_config.write(out, version, cuts)
            out.append(0)
            return
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        write_count(out, len(self.configs))
        for alterable_config in self.configs:
            alterable_config.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class IncrementalAlterConfigsRequest(Request["IncrementalAlterConfigsResponse"]):
    """Versions 0 to 1."""

    API_KEY = 44
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    resources: list[AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[IncrementalAlterConfigsRequest, int]:
        resources: list[AlterConfigsResource]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 4)
            resources = []
            for _ in range(count):
                alter_configs_resource, position = AlterConfigsResource.read(buffer, position, limit, version)
                resources.append(alter_configs_resource)
            validate_only, tags = unpack_oB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return IncrementalAlterConfigsRequest(resources, validate_only), position
        count, position = read_count(buffer, position, limit, 7)
        resources = []
        for _ in range(count):
            alter_configs_resource, position = AlterConfigsResource.read(buffer, position, limit, version)
            resources.append(alter_configs_resource)
        (validate_only,) = unpack_o(buffer, position)
        position += 1
        return IncrementalAlterConfigsRequest(resources, validate_only), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.resources))
            for alter_configs_resource in self.resources:
                alter_configs_resource.write(out, version, cuts)
            out += pack_ox(self.validate_only)
            return
        write_count(out, len(self.resources))
        for alter_configs_resource in self.resources:
            alter_configs_resource.write(out, version, cuts)
        out += pack_o(self.validate_only)


@dataclass(slots=True, eq=False, repr=False)
class AlterConfigsResourceResponse(Struct):
    """Versions 0 to 1. Part of IncrementalAlterConfigsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterConfigsResourceResponse, int]:
        error_message: str | None
        if version >= 1:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterConfigsResourceResponse(
                error_code, error_message, resource_type, resource_name
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        return AlterConfigsResourceResponse(error_code, error_message, resource_type, resource_name), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)


@dataclass(slots=True, eq=False, repr=False)
class IncrementalAlterConfigsResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 44
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResourceResponse] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[IncrementalAlterConfigsResponse, int]:
        responses: list[AlterConfigsResourceResponse]
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 6)
            responses = []
            for _ in range(count):
                alter_configs_resource_response, position = AlterConfigsResourceResponse.read(
                    buffer, position, limit, version
                )
                responses.append(alter_configs_resource_response)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return IncrementalAlterConfigsResponse(throttle_time_ms, responses), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 7)
        responses = []
        for _ in range(count):
            alter_configs_resource_response, position = AlterConfigsResourceResponse.read(
                buffer, position, limit, version
            )
            responses.append(alter_configs_resource_response)
        return IncrementalAlterConfigsResponse(throttle_time_ms, responses), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.responses))
            for alter_configs_resource_response in self.responses:
                alter_configs_resource_response.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.responses))
        for alter_configs_resource_response in self.responses:
            alter_configs_resource_response.write(out, version, cuts)
