"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeConfigsRequest: versions 1 to 4
DescribeConfigsResponse: versions 1 to 4
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_count,
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
unpack_bB = Layout(">bB").unpack_from
pack_bx = Layout(">bx").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
pack_obo = Layout(">?b?").pack
unpack_obo = Layout(">?b?").unpack_from
unpack_ooB = Layout(">??B").unpack_from
pack_oox = Layout(">??x").pack


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsResource(Struct):
    """Versions 1 to 4. Part of DescribeConfigsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    configuration_keys: list[str] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsResource, int]:
        configuration_keys: list[str] | None
        if version >= 4:
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_nullable_count(buffer, position, limit, 1)
            if count < 0:
                configuration_keys = None
            else:
                configuration_keys = []
                for _ in range(count):
                    string_value, position = read_compact_string(buffer, position, limit)
                    configuration_keys.append(string_value)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsResource(resource_type, resource_name, configuration_keys), position
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        count, position = read_nullable_count(buffer, position, limit, 2)
        if count < 0:
            configuration_keys = None
        else:
            configuration_keys = []
            for _ in range(count):
                string_value, position = read_string(buffer, position, limit)
                configuration_keys.append(string_value)
        return DescribeConfigsResource(resource_type, resource_name, configuration_keys), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            if self.configuration_keys is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.configuration_keys))
                for string_value in self.configuration_keys:
                    write_compact_string(out, string_value)
            out.append(0)
            return
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        if self.configuration_keys is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.configuration_keys))
            for string_value in self.configuration_keys:
                write_string(out, string_value)


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsRequest(Request["DescribeConfigsResponse"]):
    """Versions 1 to 4."""

    API_KEY = 32
    VERSIONS = (1, 4)
    FLEXIBLE_FROM = 4

    resources: list[DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsRequest, int]:
        resources: list[DescribeConfigsResource]
        if version >= 4:
            count, position = read_compact_count(buffer, position, limit, 4)
            resources = []
            for _ in range(count):
                describe_configs_resource, position = DescribeConfigsResource.read(
                    buffer, position, limit, version
                )
                resources.append(describe_configs_resource)
            include_synonyms, include_documentation, tags = unpack_ooB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsRequest(resources, include_synonyms, include_documentation), position
        count, position = read_count(buffer, position, limit, 7)
        resources = []
        for _ in range(count):
            describe_configs_resource, position = DescribeConfigsResource.read(
                buffer, position, limit, version
            )
            resources.append(describe_configs_resource)
        (include_synonyms,) = unpack_o(buffer, position)
        position += 1
        if version >= 3:
            (include_documentation,) = unpack_o(buffer, position)
            position += 1
        else:
            include_documentation = False
        return DescribeConfigsRequest(resources, include_synonyms, include_documentation), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_count(out, len(self.resources))
            for describe_configs_resource in self.resources:
                describe_configs_resource.write(out, version, cuts)
            out += pack_oox(self.include_synonyms, self.include_documentation)
            return
        write_count(out, len(self.resources))
        for describe_configs_resource in self.resources:
            describe_configs_resource.write(out, version, cuts)
        out += pack_o(self.include_synonyms)
        if version >= 3:
            out += pack_o(self.include_documentation)


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsSynonym(Struct):
    """Versions 1 to 4. Part of DescribeConfigsResponse."""

    name: str = ""
    value: str | None = ""
    source: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsSynonym, int]:
        value_: str | None
        if version >= 4:
            name, position = read_compact_string(buffer, position, limit)
            value_, position = read_compact_nullable_string(buffer, position, limit)
            source, tags = unpack_bB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsSynonym(name, value_, source), position
        name, position = read_string(buffer, position, limit)
        value_, position = read_nullable_string(buffer, position, limit)
        (source,) = unpack_b(buffer, position)
        position += 1
        return DescribeConfigsSynonym(name, value_, source), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.name)
            write_compact_nullable_string(out, self.value)
            out += pack_bx(self.source)
            return
        write_string(out, self.name)
        write_nullable_string(out, self.value)
        out += pack_b(self.source)


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsResourceResult(Struct):
    """Versions 1 to 4. Part of DescribeConfigsResponse."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False
    synonyms: list[DescribeConfigsSynonym] = field(default_factory=list)
    config_type: int = 0
    documentation: str | None = ""

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsResourceResult, int]:
        value_: str | None
        synonyms: list[DescribeConfigsSynonym]
        documentation: str | None
        if version >= 4:
            name, position = read_compact_string(buffer, position, limit)
            value_, position = read_compact_nullable_string(buffer, position, limit)
            read_only, config_source, is_sensitive = unpack_obo(buffer, position)
            position += 3
            count, position = read_compact_count(buffer, position, limit, 4)
            synonyms = []
            for _ in range(count):
                describe_configs_synonym, position = DescribeConfigsSynonym.read(
                    buffer, position, limit, version
                )
                synonyms.append(describe_configs_synonym)
            (config_type,) = unpack_b(buffer, position)
            position += 1
            documentation, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsResourceResult(
                name, value_, read_only, config_source, is_sensitive, synonyms, config_type, documentation
            ), position
        name, position = read_string(buffer, position, limit)
        value_, position = read_nullable_string(buffer, position, limit)
        read_only, config_source, is_sensitive = unpack_obo(buffer, position)
        position += 3
        count, position = read_count(buffer, position, limit, 5)
        synonyms = []
        for _ in range(count):
            describe_configs_synonym, position = DescribeConfigsSynonym.read(buffer, position, limit, version)
            synonyms.append(describe_configs_synonym)
        if version >= 3:
            (config_type,) = unpack_b(buffer, position)
            position += 1
            documentation, position = read_nullable_string(buffer, position, limit)
        else:
            config_type = 0
            documentation = ""
        return DescribeConfigsResourceResult(
            name, value_, read_only, config_source, is_sensitive, synonyms, config_type, documentation
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.name)
            write_compact_nullable_string(out, self.value)
            out += pack_obo(self.read_only, self.config_source, self.is_sensitive)
            write_compact_count(out, len(self.synonyms))
            for describe_configs_synonym in self.synonyms:
                describe_configs_synonym.write(out, version, cuts)
            out += pack_b(self.config_type)
            write_compact_nullable_string(out, self.documentation)
            out.append(0)
            return
        write_string(out, self.name)
        write_nullable_string(out, self.value)
        out += pack_obo(self.read_only, self.config_source, self.is_sensitive)
        write_count(out, len(self.synonyms))
        for describe_configs_synonym in self.synonyms:
            describe_configs_synonym.write(out, version, cuts)
        if version >= 3:
            out += pack_b(self.config_type)
            write_nullable_string(out, self.documentation)


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsResult(Struct):
    """Versions 1 to 4. Part of DescribeConfigsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    configs: list[DescribeConfigsResourceResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsResult, int]:
        error_message: str | None
        configs: list[DescribeConfigsResourceResult]
        if version >= 4:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 9)
            configs = []
            for _ in range(count):
                describe_configs_resource_result, position = DescribeConfigsResourceResult.read(
                    buffer, position, limit, version
                )
                configs.append(describe_configs_resource_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsResult(
                error_code, error_message, resource_type, resource_name, configs
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 14 if version >= 3 else 11)
        configs = []
        for _ in range(count):
            describe_configs_resource_result, position = DescribeConfigsResourceResult.read(
                buffer, position, limit, version
            )
            configs.append(describe_configs_resource_result)
        return DescribeConfigsResult(
            error_code, error_message, resource_type, resource_name, configs
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            write_compact_count(out, len(self.configs))
            for describe_configs_resource_result in self.configs:
                describe_configs_resource_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        write_count(out, len(self.configs))
        for describe_configs_resource_result in self.configs:
            describe_configs_resource_result.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeConfigsResponse(Response):
    """Versions 1 to 4."""

    API_KEY = 32
    VERSIONS = (1, 4)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeConfigsResponse, int]:
        results: list[DescribeConfigsResult]
        if version >= 4:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 7)
            results = []
            for _ in range(count):
                describe_configs_result, position = DescribeConfigsResult.read(
                    buffer, position, limit, version
                )
                results.append(describe_configs_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeConfigsResponse(throttle_time_ms, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 11)
        results = []
        for _ in range(count):
            describe_configs_result, position = DescribeConfigsResult.read(buffer, position, limit, version)
            results.append(describe_configs_result)
        return DescribeConfigsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.results))
            for describe_configs_result in self.results:
                describe_configs_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for describe_configs_result in self.results:
            describe_configs_result.write(out, version, cuts)
