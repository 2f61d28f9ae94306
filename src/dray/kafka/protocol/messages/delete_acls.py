"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DeleteAclsRequest: versions 1 to 3
DeleteAclsResponse: versions 1 to 3
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
class DeleteAclsFilter(Struct):
    """Versions 1 to 3. Part of DeleteAclsRequest."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteAclsFilter, int]:
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
            return DeleteAclsFilter(
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
        return DeleteAclsFilter(
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
class DeleteAclsRequest(Request["DeleteAclsResponse"]):
    """Versions 1 to 3."""

    API_KEY = 31
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    filters: list[DeleteAclsFilter] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteAclsRequest, int]:
        filters: list[DeleteAclsFilter]
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 8)
            filters = []
            for _ in range(count):
                delete_acls_filter, position = DeleteAclsFilter.read(buffer, position, limit, version)
                filters.append(delete_acls_filter)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteAclsRequest(filters), position
        count, position = read_count(buffer, position, limit, 10)
        filters = []
        for _ in range(count):
            delete_acls_filter, position = DeleteAclsFilter.read(buffer, position, limit, version)
            filters.append(delete_acls_filter)
        return DeleteAclsRequest(filters), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_count(out, len(self.filters))
            for delete_acls_filter in self.filters:
                delete_acls_filter.write(out, version, cuts)
            out.append(0)
            return
        write_count(out, len(self.filters))
        for delete_acls_filter in self.filters:
            delete_acls_filter.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DeleteAclsMatchingAcl(Struct):
    """Versions 1 to 3. Part of DeleteAclsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    resource_type: int = 0
    resource_name: str = ""
    pattern_type: int = 3
    principal: str = ""
    host: str = ""
    operation: int = 0
    permission_type: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteAclsMatchingAcl, int]:
        error_message: str | None
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            (resource_type,) = unpack_b(buffer, position)
            position += 1
            resource_name, position = read_compact_string(buffer, position, limit)
            (pattern_type,) = unpack_b(buffer, position)
            position += 1
            principal, position = read_compact_string(buffer, position, limit)
            host, position = read_compact_string(buffer, position, limit)
            operation, permission_type, tags = unpack_bbB(buffer, position)
            position += 3
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteAclsMatchingAcl(
                error_code,
                error_message,
                resource_type,
                resource_name,
                pattern_type,
                principal,
                host,
                operation,
                permission_type,
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        (resource_type,) = unpack_b(buffer, position)
        position += 1
        resource_name, position = read_string(buffer, position, limit)
        (pattern_type,) = unpack_b(buffer, position)
        position += 1
        principal, position = read_string(buffer, position, limit)
        host, position = read_string(buffer, position, limit)
        operation, permission_type = unpack_bb(buffer, position)
        position += 2
        return DeleteAclsMatchingAcl(
            error_code,
            error_message,
            resource_type,
            resource_name,
            pattern_type,
            principal,
            host,
            operation,
            permission_type,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out += pack_b(self.resource_type)
            write_compact_string(out, self.resource_name)
            out += pack_b(self.pattern_type)
            write_compact_string(out, self.principal)
            write_compact_string(out, self.host)
            out += pack_bbx(self.operation, self.permission_type)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        out += pack_b(self.resource_type)
        write_string(out, self.resource_name)
        out += pack_b(self.pattern_type)
        write_string(out, self.principal)
        write_string(out, self.host)
        out += pack_bb(self.operation, self.permission_type)


@dataclass(slots=True, eq=False, repr=False)
class DeleteAclsFilterResult(Struct):
    """Versions 1 to 3. Part of DeleteAclsResponse."""

    error_code: int = 0
    error_message: str | None = ""
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DeleteAclsFilterResult, int]:
        error_message: str | None
        matching_acls: list[DeleteAclsMatchingAcl]
        if version >= 2:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 11)
            matching_acls = []
            for _ in range(count):
                delete_acls_matching_acl, position = DeleteAclsMatchingAcl.read(
                    buffer, position, limit, version
                )
                matching_acls.append(delete_acls_matching_acl)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteAclsFilterResult(error_code, error_message, matching_acls), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 14)
        matching_acls = []
        for _ in range(count):
            delete_acls_matching_acl, position = DeleteAclsMatchingAcl.read(buffer, position, limit, version)
            matching_acls.append(delete_acls_matching_acl)
        return DeleteAclsFilterResult(error_code, error_message, matching_acls), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            write_compact_count(out, len(self.matching_acls))
            for delete_acls_matching_acl in self.matching_acls:
                delete_acls_matching_acl.write(out, version, cuts)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        write_count(out, len(self.matching_acls))
        for delete_acls_matching_acl in self.matching_acls:
            delete_acls_matching_acl.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DeleteAclsResponse(Response):
    """Versions 1 to 3."""

    API_KEY = 31
    VERSIONS = (1, 3)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteAclsResponse, int]:
        filter_results: list[DeleteAclsFilterResult]
        if version >= 2:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 5)
            filter_results = []
            for _ in range(count):
                delete_acls_filter_result, position = DeleteAclsFilterResult.read(
                    buffer, position, limit, version
                )
                filter_results.append(delete_acls_filter_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteAclsResponse(throttle_time_ms, filter_results), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 8)
        filter_results = []
        for _ in range(count):
            delete_acls_filter_result, position = DeleteAclsFilterResult.read(
                buffer, position, limit, version
            )
            filter_results.append(delete_acls_filter_result)
        return DeleteAclsResponse(throttle_time_ms, filter_results), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.filter_results))
            for delete_acls_filter_result in self.filter_results:
                delete_acls_filter_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.filter_results))
        for delete_acls_filter_result in self.filter_results:
            delete_acls_filter_result.write(out, version, cuts)
