"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

AlterClientQuotasRequest: versions 0 to 1
AlterClientQuotasResponse: versions 0 to 1
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

pack_do = Layout(">d?").pack
unpack_do = Layout(">d?").unpack_from
unpack_doB = Layout(">d?B").unpack_from
pack_dox = Layout(">d?x").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
unpack_oB = Layout(">?B").unpack_from
pack_ox = Layout(">?x").pack


@dataclass(slots=True, eq=False, repr=False)
class EntityData(Struct):
    """Versions 0 to 1. Part of AlterClientQuotasRequest."""

    entity_type: str = ""
    entity_name: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[EntityData, int]:
        entity_name: str | None
        if version >= 1:
            entity_type, position = read_compact_string(buffer, position, limit)
            entity_name, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return EntityData(entity_type, entity_name), position
        entity_type, position = read_string(buffer, position, limit)
        entity_name, position = read_nullable_string(buffer, position, limit)
        return EntityData(entity_type, entity_name), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_string(out, self.entity_type)
            write_compact_nullable_string(out, self.entity_name)
            out.append(0)
            return
        write_string(out, self.entity_type)
        write_nullable_string(out, self.entity_name)


@dataclass(slots=True, eq=False, repr=False)
class OpData(Struct):
    """Versions 0 to 1. Part of AlterClientQuotasRequest."""

    key: str = ""
    value: float = 0.0
    remove: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OpData, int]:
        if version >= 1:
            key, position = read_compact_string(buffer, position, limit)
            value_, remove, tags = unpack_doB(buffer, position)
            position += 10
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OpData(key, value_, remove), position
        key, position = read_string(buffer, position, limit)
        value_, remove = unpack_do(buffer, position)
        position += 9
        return OpData(key, value_, remove), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_string(out, self.key)
            out += pack_dox(self.value, self.remove)
            return
        write_string(out, self.key)
        out += pack_do(self.value, self.remove)


@dataclass(slots=True, eq=False, repr=False)
class RequestedEntryData(Struct):
    """Versions 0 to 1. Part of AlterClientQuotasRequest."""

    entity: list[EntityData] = field(default_factory=list)
    ops: list[OpData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[RequestedEntryData, int]:
        entity: list[EntityData]
        ops: list[OpData]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 3)
            entity = []
            for _ in range(count):
                entity_data, position = EntityData.read(buffer, position, limit, version)
                entity.append(entity_data)
            count, position = read_compact_count(buffer, position, limit, 11)
            ops = []
            for _ in range(count):
                op_data, position = OpData.read(buffer, position, limit, version)
                ops.append(op_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return RequestedEntryData(entity, ops), position
        count, position = read_count(buffer, position, limit, 4)
        entity = []
        for _ in range(count):
            entity_data, position = EntityData.read(buffer, position, limit, version)
            entity.append(entity_data)
        count, position = read_count(buffer, position, limit, 11)
        ops = []
        for _ in range(count):
            op_data, position = OpData.read(buffer, position, limit, version)
            ops.append(op_data)
        return RequestedEntryData(entity, ops), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.entity))
            for entity_data in self.entity:
                entity_data.write(out, version, cuts)
            write_compact_count(out, len(self.ops))
            for op_data in self.ops:
                op_data.write(out, version, cuts)
            out.append(0)
            return
        write_count(out, len(self.entity))
        for entity_data in self.entity:
            entity_data.write(out, version, cuts)
        write_count(out, len(self.ops))
        for op_data in self.ops:
            op_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AlterClientQuotasRequest(Request["AlterClientQuotasResponse"]):
    """Versions 0 to 1."""

    API_KEY = 49
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    entries: list[RequestedEntryData] = field(default_factory=list)
    validate_only: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterClientQuotasRequest, int]:
        entries: list[RequestedEntryData]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 3)
            entries = []
            for _ in range(count):
                requested_entry_data, position = RequestedEntryData.read(buffer, position, limit, version)
                entries.append(requested_entry_data)
            validate_only, tags = unpack_oB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterClientQuotasRequest(entries, validate_only), position
        count, position = read_count(buffer, position, limit, 8)
        entries = []
        for _ in range(count):
            requested_entry_data, position = RequestedEntryData.read(buffer, position, limit, version)
            entries.append(requested_entry_data)
        (validate_only,) = unpack_o(buffer, position)
        position += 1
        return AlterClientQuotasRequest(entries, validate_only), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.entries))
            for requested_entry_data in self.entries:
                requested_entry_data.write(out, version, cuts)
            out += pack_ox(self.validate_only)
            return
        write_count(out, len(self.entries))
        for requested_entry_data in self.entries:
            requested_entry_data.write(out, version, cuts)
        out += pack_o(self.validate_only)


@dataclass(slots=True, eq=False, repr=False)
class EntryData(Struct):
    """Versions 0 to 1. Part of AlterClientQuotasResponse."""

    error_code: int = 0
    error_message: str | None = ""
    entity: list[EntityData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[EntryData, int]:
        error_message: str | None
        entity: list[EntityData]
        if version >= 1:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 3)
            entity = []
            for _ in range(count):
                entity_data, position = EntityData.read(buffer, position, limit, version)
                entity.append(entity_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return EntryData(error_code, error_message, entity), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        entity = []
        for _ in range(count):
            entity_data, position = EntityData.read(buffer, position, limit, version)
            entity.append(entity_data)
        return EntryData(error_code, error_message, entity), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            write_compact_count(out, len(self.entity))
            for entity_data in self.entity:
                entity_data.write(out, version, cuts)
            out.append(0)
            return
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)
        write_count(out, len(self.entity))
        for entity_data in self.entity:
            entity_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class AlterClientQuotasResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 49
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    throttle_time_ms: int = 0
    entries: list[EntryData] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[AlterClientQuotasResponse, int]:
        entries: list[EntryData]
        if version >= 1:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 5)
            entries = []
            for _ in range(count):
                entry_data, position = EntryData.read(buffer, position, limit, version)
                entries.append(entry_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AlterClientQuotasResponse(throttle_time_ms, entries), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 8)
        entries = []
        for _ in range(count):
            entry_data, position = EntryData.read(buffer, position, limit, version)
            entries.append(entry_data)
        return AlterClientQuotasResponse(throttle_time_ms, entries), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.entries))
            for entry_data in self.entries:
                entry_data.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.entries))
        for entry_data in self.entries:
            entry_data.write(out, version, cuts)
