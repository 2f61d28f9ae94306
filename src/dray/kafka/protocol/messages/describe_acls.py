"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeAclsRequest: versions 1 to 3
DescribeAclsResponse: versions 1 to 3
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
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class DescribeAclsRequest(Request["DescribeAclsResponse"]):
    """Versions 1 to 3."""

    API_KEY = 29
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribeAclsRequest, int]:
        resource_name_filter: str | None
        principal_filter: str | None
        host_filter: str | None
        if version >= 2:
            (resource_type_filter,) = unpack_b(buffer, position)
            position += 1
            resource_name_filter, position = read_compact_nullable_string(buffer, position, limit)
            (pattern_type_filter,) = unpack_b(buffer, position)
            position += 1
            principal_filter, position = read_compact_nullable_string(buffer, position, limit)
            host_filter, position = read_compact_nullable_string(buffer, position, limit)
            operation, permission_type, tags = unpack_bbB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeAclsRequest(
                resource_type_filter,
                resource_name_filter,
                pattern_type_filter,
                principal_filter,
                host_filter,
                operation,
                permission_type,
            ), position
        (resource_type_filter,) = unpack_b(buffer, position)
        position += 1
        resource_name_filter, position = read_nullable_string(buffer, position, limit)
        (pattern_type_filter,) = unpack_b(buffer, position)
        position += 1
        principal_filter, position = read_nullable_string(buffer, position, limit)
        host_filter, position = read_nullable_string(buffer, position, limit)
        operation, permission_type = unpack_bb(buffer, position)
        position += 2
        return DescribeAclsRequest(
            resource_type_filter,
            resource_name_filter,
            pattern_type_filter,
            principal_filter,
            host_filter,
            operation,
            permission_type,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_b(self.resource_type_filter)
            write_compact_nullable_string(out, self.resource_name_filter)
            out += pack_b(self.pattern_type_filter)
            write_compact_nullable_string(out, self.principal_filter)
            write_compact_nullable_string(out, self.host_filter)
            out += pack_bbx(self.operation, self.permission_type)
            return
        out += pack_b(self.resource_type_filter)
        write_nullable_string(out, self.resource_name_filter)
        out += pack_b(self.pattern_type_filter)
        write_nullable_string(out, self.principal_filter)
        write_nullable_string(out, self.host_filter)
        out += pack_bb(self.operation, self.permission_type)


@dataclass(slots=True, eq=False, repr=False)
class AclDescription(Struct):
    """Versions 1 to 3. Part of DescribeAclsResponse."""

    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AclDescription, int]:
        if version >= 2:
            principal, position = read_compact_string(buffer, position, limit)
            host, position = read_compact_string(buffer, position, limit)
            operation, permission_type, tags = unpack_bbB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AclDescription(principal, host, operation, permission_type), position
        principal, position = read_string(buffer, position, limit)
        host, position = read_string(buffer, position, limit)
        operation, permission_type = unpack_bb(buffer, position)
        position += 2
        return AclDescription(principal, host, operation, permission_type), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_string(out, self.principal)
            write_compact_string(out, self.host)
            out += pack_bbx(self.operation, self.permission_type)
            return
        write_string(out, self.principal)
        write_string(out, self.host)
        out += pack_bb(self.operation, self.permission_type)


@dataclass(slots=True, eq=False, repr=False)
class DescribeAclsResource(Struct):
    """Versions 1 to 3. Part of DescribeAclsResponse."""

    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    acls: list[AclDescription] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribeAclsResource, int]:
        acls: list[AclDescription]
        if version >= 2:
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            (pattern_type,) = unpack_b(buffer, position)
            position += 1
            count, position = read_compact_count(buffer, position, limit, 5)
            acls = []
            for _ in range(count):
                acl_description, position = AclDescription.read(buffer, position, limit, version)
                acls.append(acl_description)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeAclsResource(resource_type, resource_name, pattern_type, acls), position
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        (pattern_type,) = unpack_b(buffer, position)
        position += 1
        count, position = read_count(buffer, position, limit, 6)
        acls = []
        for _ in range(count):
            acl_description, position = AclDescription.read(buffer, position, limit, version)
            acls.append(acl_description)
        return DescribeAclsResource(resource_type, resource_name, pattern_type, acls), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            out += pack_b(self.pattern_type)
            write_compact_count(out, len(self.acls))
            for acl_description in self.acls:
                acl_description.write(out, version, cuts)
            out.append(0)
            return
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        out += pack_b(self.pattern_type)
        write_count(out, len(self.acls))
        for acl_description in self.acls:
            acl_description.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeAclsResponse(Response):
    """Versions 1 to 3."""

    API_KEY = 29
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResource] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DescribeAclsResponse, int]:
        error_message: str | None
        resources: list[DescribeAclsResource]
        if version >= 2:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 5)
            resources = []
            for _ in range(count):
                describe_acls_resource, position = DescribeAclsResource.read(buffer, position, limit, version)
                resources.append(describe_acls_resource)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeAclsResponse(throttle_time_ms, error_code, error_message, resources), position
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_nullable_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 8)
        resources = []
        for _ in range(count):
            describe_acls_resource, position = DescribeAclsResource.read(buffer, position, limit, version)
            resources.append(describe_acls_resource)
        return DescribeAclsResponse(throttle_time_ms, error_code, error_message, resources), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            write_compact_nullable_string(out, self.error_message)
            write_compact_count(out, len(self.resources))
            for describe_acls_resource in self.resources:
                describe_acls_resource.write(out, version, cuts)
            out.append(0)
            return
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message)
        write_count(out, len(self.resources))
        for describe_acls_resource in self.resources:
            describe_acls_resource.write(out, version, cuts)
