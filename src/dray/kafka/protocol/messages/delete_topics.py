"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DeleteTopicsRequest: versions 1 to 6
DeleteTopicsResponse: versions 1 to 6
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ix = Layout(">ix").pack
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from
unpack_uB = Layout(">16sB").unpack_from
pack_ux = Layout(">16sx").pack


@dataclass(slots=True, eq=False, repr=False)
class DeleteTopicState(Struct):
    """Version 6. Part of DeleteTopicsRequest."""

    name: str | None = None
    topic_id: UUID = ZERO_UUID

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteTopicState, int]:
        name: str | None
        topic_id: UUID
        name, position = read_compact_nullable_string(buffer, position, limit)
        topic_id, tags = unpack_uB(buffer, position)
        position += 17
        topic_id = make_uuid(topic_id)
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DeleteTopicState(name, topic_id), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_nullable_string(out, self.name)
        out += pack_ux(self.topic_id.bytes)


@dataclass(slots=True, eq=False, repr=False)
class DeleteTopicsRequest(Request["DeleteTopicsResponse"]):
    """Versions 1 to 6."""

    API_KEY = 20
    VERSIONS = (1, 6)
    FLEXIBLE_FROM = 4

    topics: list[DeleteTopicState] = field(default_factory=list)
    topic_names: list[str] = field(default_factory=list)
    timeout_ms: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteTopicsRequest, int]:
        topics: list[DeleteTopicState]
        topic_names: list[str]
        if version >= 4:
            if version >= 6:
                count, position = read_compact_count(buffer, position, limit, 18)
                topics = []
                for _ in range(count):
                    delete_topic_state, position = DeleteTopicState.read(buffer, position, limit, version)
                    topics.append(delete_topic_state)
            else:
                topics = []
            if version <= 5:
                count, position = read_compact_count(buffer, position, limit, 1)
                topic_names = []
                for _ in range(count):
                    string_value, position = read_compact_string(buffer, position, limit)
                    topic_names.append(string_value)
            else:
                topic_names = []
            timeout_ms, tags = unpack_iB(buffer, position)
            position += 5
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteTopicsRequest(topics, topic_names, timeout_ms), position
        count, position = read_count(buffer, position, limit, 2)
        topic_names = []
        for _ in range(count):
            string_value, position = read_string(buffer, position, limit)
            topic_names.append(string_value)
        (timeout_ms,) = unpack_i(buffer, position)
        position += 4
        return DeleteTopicsRequest([], topic_names, timeout_ms), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            if version >= 6:
                write_compact_count(out, len(self.topics))
                for delete_topic_state in self.topics:
                    delete_topic_state.write(out, version, cuts)
            if version <= 5:
                write_compact_count(out, len(self.topic_names))
                for string_value in self.topic_names:
                    write_compact_string(out, string_value)
            out += pack_ix(self.timeout_ms)
            return
        write_count(out, len(self.topic_names))
        for string_value in self.topic_names:
            write_string(out, string_value)
        out += pack_i(self.timeout_ms)


@dataclass(slots=True, eq=False, repr=False)
class DeletableTopicResult(Struct):
    """Versions 1 to 6. Part of DeleteTopicsResponse."""

    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    error_code: int = 0
    error_message: str | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeletableTopicResult, int]:
        name: str | None
        topic_id: UUID
        error_message: str | None
        if version >= 4:
            name, position = (read_compact_nullable_string if version >= 6 else read_compact_string)(
                buffer, position, limit
            )
            if version >= 6:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            (error_code,) = unpack_h(buffer, position)
            position += 2
            if version >= 5:
                error_message, position = read_compact_nullable_string(buffer, position, limit)
            else:
                error_message = None
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeletableTopicResult(name, topic_id, error_code, error_message), position
        name, position = read_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        return DeletableTopicResult(name, ZERO_UUID, error_code, None), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            (write_compact_nullable_string if version >= 6 else write_compact_string)(out, self.name)
            if version >= 6:
                out += pack_u(self.topic_id.bytes)
            out += pack_h(self.error_code)
            if version >= 5:
                write_compact_nullable_string(out, self.error_message)
            out.append(0)
            return
        write_string(out, self.name)
        out += pack_h(self.error_code)


@dataclass(slots=True, eq=False, repr=False)
class DeleteTopicsResponse(Response):
    """Versions 1 to 6."""

    API_KEY = 20
    VERSIONS = (1, 6)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[DeleteTopicsResponse, int]:
        responses: list[DeletableTopicResult]
        if version >= 4:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(
                buffer, position, limit, 21 if version >= 6 else 5 if version >= 5 else 4
            )
            responses = []
            for _ in range(count):
                deletable_topic_result, position = DeletableTopicResult.read(buffer, position, limit, version)
                responses.append(deletable_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return DeleteTopicsResponse(throttle_time_ms, responses), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 4)
        responses = []
        for _ in range(count):
            deletable_topic_result, position = DeletableTopicResult.read(buffer, position, limit, version)
            responses.append(deletable_topic_result)
        return DeleteTopicsResponse(throttle_time_ms, responses), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.responses))
            for deletable_topic_result in self.responses:
                deletable_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.responses))
        for deletable_topic_result in self.responses:
            deletable_topic_result.write(out, version, cuts)
