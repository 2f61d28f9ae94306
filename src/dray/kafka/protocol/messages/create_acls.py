"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

CreateAclsRequest: versions 1 to 3
CreateAclsResponse: versions 1 to 3
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
pack_bb = Layout(">bb").pack
unpack_bb = Layout(">bb").unpack_from
unpack_bbB = Layout(">bbB").unpack_from
pack_bbx = Layout(">bbx").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class AclCreation(Struct):
    """Versions 1 to 3. Part of CreateAclsRequest."""

    resource_type: int = 0
    resource_name: str = ""
    resource_pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AclCreation, int]:
        if version >= 2:
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            (resource_pattern_type,) = unpack_b(buffer, position)
            position += 1
            principal, position = read_compact_string(buffer, position, limit)
            host, position = read_compact_string(buffer, position, limit)
            operation, permission_type, tags = unpack_bbB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AclCreation(
                resource_type,
                resource_name,
                resource_pattern_type,
                principal,
                host,
                operation,
                permission_type,
            ), position
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        (resource_pattern_type,) = unpack_b(buffer, position)
        position += 1
        principal, position = read_string(buffer, position, limit)
        host, position = read_string(buffer, position, limit)
        operation, permission_type = unpack_bb(buffer, position)
        position += 2
        return AclCreation(
            resource_type, resource_name, resource_pattern_type, principal, host, operation, permission_type
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            out += pack_b(self.resource_pattern_type)
            write_compact_string(out, self.principal)
            write_compact_string(out, self.host)
            out += pack_bbx(self.operation, self.permission_type)
            return
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        out += pack_b(self.resource_pattern_type)
        write_string(out, self.principal)
        write_string(out, self.host)
        out += pack_bb(self.operation, self.permission_type)


@dataclass(slots=True, eq=False, repr=False)
class CreateAclsRequest(Request["CreateAclsResponse"]):
    """Versions 1 to 3."""

    API_KEY = 30
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    creations: list[AclCreation] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreateAclsRequest, int]:
        creations: list[AclCreation]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 8)
            creations = []
            for _ in range(count):
                acl_creation, position = AclCreation.read(buffer, position, limit, version)
                creations.append(acl_creation)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreateAclsRequest(creations), position
        count, position = read_count(buffer, position, limit, 10)
        creations = []
        for _ in range(count):
            acl_creation, position = AclCreation.read(buffer, position, limit, version)
            creations.append(acl_creation)
        return CreateAclsRequest(creations), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.creations))
            for acl_creation in self.creations:
                acl_creation.write(out, version, cuts)
            out.append(0)
            return
        write_count(out, len(self.creations))
        for acl_creation in self.creations:
            acl_creation.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AclCreationResult(Struct):
    """Versions 1 to 3. Part of CreateAclsResponse."""

    error_code: int = 0
    error_message: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AclCreationResult, int]:
        error_message: str | None
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AclCreationResult(error_code, error_message), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        return AclCreationResult(error_code, error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)


@dataclass(slots=True, eq=False, repr=False)
class CreateAclsResponse(Response):
    """Versions 1 to 3."""

    API_KEY = 30
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    results: list[AclCreationResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreateAclsResponse, int]:
        results: list[AclCreationResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 4)
            results = []
            for _ in range(count):
                acl_creation_result, position = AclCreationResult.read(buffer, position, limit, version)
                results.append(acl_creation_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreateAclsResponse(throttle_time_ms, results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 4)
        results = []
        for _ in range(count):
            acl_creation_result, position = AclCreationResult.read(buffer, position, limit, version)
            results.append(acl_creation_result)
        return CreateAclsResponse(throttle_time_ms, results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.results))
            for acl_creation_result in self.results:
                acl_creation_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.results))
        for acl_creation_result in self.results:
            acl_creation_result.write(out, version, cuts)
