"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeClientQuotasRequest: versions 0 to 1
DescribeClientQuotasResponse: versions 0 to 1
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
pack_d = Layout(">d").pack
unpack_d = Layout(">d").unpack_from
unpack_dB = Layout(">dB").unpack_from
pack_dx = Layout(">dx").pack
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
unpack_oB = Layout(">?B").unpack_from
pack_ox = Layout(">?x").pack


@dataclass(slots=True, eq=False, repr=False)
class ComponentData(Struct):
    """Versions 0 to 1. Part of DescribeClientQuotasRequest."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ComponentData, int]:
        match: str | None
        if version >= 1:
            entity_type, position = read_compact_string(buffer, position, limit)
            (match_type,) = unpack_b(buffer, position)
            position += 1
            match, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ComponentData(entity_type, match_type, match), position
        entity_type, position = read_string(buffer, position, limit)
        (match_type,) = unpack_b(buffer, position)
        position += 1
        match, position = read_nullable_string(buffer, position, limit)
        return ComponentData(entity_type, match_type, match), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_string(out, self.entity_type)
            out += pack_b(self.match_type)
            write_compact_nullable_string(out, self.match)
            out.append(0)
            return
        write_string(out, self.entity_type)
        out += pack_b(self.match_type)
        write_nullable_string(out, self.match)


@dataclass(slots=True, eq=False, repr=False)
class DescribeClientQuotasRequest(Request["DescribeClientQuotasResponse"]):
    """Versions 0 to 1."""

    API_KEY = 48
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeClientQuotasRequest, int]:
        components: list[ComponentData]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 4)
            components = []
            for _ in range(count):
                component_data, position = ComponentData.read(buffer, position, limit, version)
                components.append(component_data)
            strict, tags = unpack_oB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeClientQuotasRequest(components, strict), position
        count, position = read_count(buffer, position, limit, 5)
        components = []
        for _ in range(count):
            component_data, position = ComponentData.read(buffer, position, limit, version)
            components.append(component_data)
        (strict,) = unpack_o(buffer, position)
        position += 1
        return DescribeClientQuotasRequest(components, strict), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.components))
            for component_data in self.components:
                component_data.write(out, version, cuts)
            out += pack_ox(self.strict)
            return
        write_count(out, len(self.components))
        for component_data in self.components:
            component_data.write(out, version, cuts)
        out += pack_o(self.strict)


@dataclass(slots=True, eq=False, repr=False)
class EntityData(Struct):
    """Versions 0 to 1. Part of DescribeClientQuotasResponse."""

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
class ValueData(Struct):
    """Versions 0 to 1. Part of DescribeClientQuotasResponse."""

    key: str = ""
    value: float = 0.0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ValueData, int]:
        if version >= 1:
            key, position = read_compact_string(buffer, position, limit)
            value_, tags = unpack_dB(buffer, position)
            position += 9
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ValueData(key, value_), position
        key, position = read_string(buffer, position, limit)
        (value_,) = unpack_d(buffer, position)
        position += 8
        return ValueData(key, value_), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_string(out, self.key)
            out += pack_dx(self.value)
            return
        write_string(out, self.key)
        out += pack_d(self.value)


@dataclass(slots=True, eq=False, repr=False)
class EntryData(Struct):
    """Versions 0 to 1. Part of DescribeClientQuotasResponse."""

    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[EntryData, int]:
        entity: list[EntityData]
        values: list[ValueData]
        if version >= 1:
            count, position = read_compact_count(buffer, position, limit, 3)
            entity = []
            for _ in range(count):
                entity_data, position = EntityData.read(buffer, position, limit, version)
                entity.append(entity_data)
            count, position = read_compact_count(buffer, position, limit, 10)
            values = []
            for _ in range(count):
                value_data, position = ValueData.read(buffer, position, limit, version)
                values.append(value_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return EntryData(entity, values), position
        count, position = read_count(buffer, position, limit, 4)
        entity = []
        for _ in range(count):
            entity_data, position = EntityData.read(buffer, position, limit, version)
            entity.append(entity_data)
        count, position = read_count(buffer, position, limit, 10)
        values = []
        for _ in range(count):
            value_data, position = ValueData.read(buffer, position, limit, version)
            values.append(value_data)
        return EntryData(entity, values), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            write_compact_count(out, len(self.entity))
            for entity_data in self.entity:
                entity_data.write(out, version, cuts)
            write_compact_count(out, len(self.values))
            for value_data in self.values:
                value_data.write(out, version, cuts)
            out.append(0)
            return
        write_count(out, len(self.entity))
        for entity_data in self.entity:
            entity_data.write(out, version, cuts)
        write_count(out, len(self.values))
        for value_data in self.values:
            value_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class DescribeClientQuotasResponse(Response):
    """Versions 0 to 1."""

    API_KEY = 48
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = 1

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    entries: list[EntryData] | None = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeClientQuotasResponse, int]:
        error_message: str | None
        entries: list[EntryData] | None
        if version >= 1:
            throttle_time_ms, error_code = unpack_ih(buffer, position)
            position += 6
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            count, position = read_compact_nullable_count(buffer, position, limit, 3)
            if count < 0:
                entries = None
            else:
                entries = []
                for _ in range(count):
                    entry_data, position = EntryData.read(buffer, position, limit, version)
                    entries.append(entry_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DescribeClientQuotasResponse(
                throttle_time_ms, error_code, error_message, entries
            ), position
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_nullable_string(buffer, position, limit)
        count, position = read_nullable_count(buffer, position, limit, 8)
        if count < 0:
            entries = None
        else:
            entries = []
            for _ in range(count):
                entry_data, position = EntryData.read(buffer, position, limit, version)
                entries.append(entry_data)
        return DescribeClientQuotasResponse(throttle_time_ms, error_code, error_message, entries), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 1:
            out += pack_ih(self.throttle_time_ms, self.error_code)
            write_compact_nullable_string(out, self.error_message)
            if self.entries is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.entries))
                for entry_data in self.entries:
                    entry_data.write(out, version, cuts)
            out.append(0)
            return
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_nullable_string(out, self.error_message)
        if self.entries is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.entries))
            for entry_data in self.entries:
                entry_data.write(out, version, cuts)
