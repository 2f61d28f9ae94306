"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

CreateTopicsRequest: versions 2 to 7
CreateTopicsResponse: versions 2 to 7
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    DecodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_string,
    read_numbers,
    read_string,
    read_tag,
    read_tag_count,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_numbers,
    write_string,
    write_tags,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_io = Layout(">i?").pack
unpack_io = Layout(">i?").unpack_from
unpack_ioB = Layout(">i?B").unpack_from
pack_iox = Layout(">i?x").pack
unpack_oboB = Layout(">?b?B").unpack_from
pack_obox = Layout(">?b?x").pack
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class CreatableReplicaAssignment(Struct):
    """Versions 2 to 7. Part of CreateTopicsRequest."""

    partition_index: int = 0
    broker_ids: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatableReplicaAssignment, int]:
        broker_ids: list[int]
        if version >= 5:
            (partition_index,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 4)
            broker_ids, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatableReplicaAssignment(partition_index, broker_ids), position
        (partition_index,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 4)
        broker_ids, position = read_numbers(buffer, position, "i", 4, count)
        return CreatableReplicaAssignment(partition_index, broker_ids), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            out += pack_i(self.partition_index)
            write_compact_count(out, len(self.broker_ids))
            write_numbers(out, "i", self.broker_ids)
            out.append(0)
            return
        out += pack_i(self.partition_index)
        write_count(out, len(self.broker_ids))
        write_numbers(out, "i", self.broker_ids)


@dataclass(slots=True, eq=False, repr=False)
class CreatableTopicConfig(Struct):
    """Versions 2 to 7. Part of CreateTopicsRequest."""

    name: str = ""
    value: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreatableTopicConfig, int]:
        value_: str | None
        if version >= 5:
            name, position = read_compact_string(buffer, position, limit)
            value_, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatableTopicConfig(name, value_), position
        name, position = read_string(buffer, position, limit)
        value_, position = read_nullable_string(buffer, position, limit)
        return CreatableTopicConfig(name, value_), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_string(out, self.name)
            write_compact_nullable_string(out, self.value)
            out.append(0)
            return
        write_string(out, self.name)
        write_nullable_string(out, self.value)


@dataclass(slots=True, eq=False, repr=False)
class CreatableTopic(Struct):
    """Versions 2 to 7. Part of CreateTopicsRequest."""

    name: str = ""
    num_partitions: int = 0
    replication_factor: int = 0
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreatableTopic, int]:
        assignments: list[CreatableReplicaAssignment]
        configs: list[CreatableTopicConfig]
        if version >= 5:
            name, position = read_compact_string(buffer, position, limit)
            num_partitions, replication_factor = unpack_ih(buffer, position)
            position += 6
            count, position = read_compact_count(buffer, position, limit, 6)
            assignments = []
            for _ in range(count):
                creatable_replica_assignment, position = CreatableReplicaAssignment.read(
                    buffer, position, limit, version
                )
                assignments.append(creatable_replica_assignment)
            count, position = read_compact_count(buffer, position, limit, 3)
            configs = []
            for _ in range(count):
                creatable_topic_config, position = CreatableTopicConfig.read(buffer, position, limit, version)
                configs.append(creatable_topic_config)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreatableTopic(name, num_partitions, replication_factor, assignments, configs), position
        name, position = read_string(buffer, position, limit)
        num_partitions, replication_factor = unpack_ih(buffer, position)
        position += 6
        count, position = read_count(buffer, position, limit, 8)
        assignments = []
        for _ in range(count):
            creatable_replica_assignment, position = CreatableReplicaAssignment.read(
                buffer, position, limit, version
            )
            assignments.append(creatable_replica_assignment)
        count, position = read_count(buffer, position, limit, 4)
        configs = []
        for _ in range(count):
            creatable_topic_config, position = CreatableTopicConfig.read(buffer, position, limit, version)
            configs.append(creatable_topic_config)
        return CreatableTopic(name, num_partitions, replication_factor, assignments, configs), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_string(out, self.name)
            out += pack_ih(self.num_partitions, self.replication_factor)
            write_compact_count(out, len(self.assignments))
            for creatable_replica_assignment in self.assignments:
                creatable_replica_assignment.write(out, version, cuts)
            write_compact_count(out, len(self.configs))
            for creatable_topic_config in self.configs:
                creatable_topic_config.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        out += pack_ih(self.num_partitions, self.replication_factor)
        write_count(out, len(self.assignments))
        for creatable_replica_assignment in self.assignments:
            creatable_replica_assignment.write(out, version, cuts)
        write_count(out, len(self.configs))
        for creatable_topic_config in self.configs:
            creatable_topic_config.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class CreateTopicsRequest(Request["CreateTopicsResponse"]):
    """Versions 2 to 7."""

    API_KEY = 19
    VERSIONS = (2, 7)
    FLEXIBLE_FROM = 5

    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreateTopicsRequest, int]:
        topics: list[CreatableTopic]
        if version >= 5:
            count, position = read_compact_count(buffer, position, limit, 10)
            topics = []
            for _ in range(count):
                creatable_topic, position = CreatableTopic.read(buffer, position, limit, version)
                topics.append(creatable_topic)
            timeout_ms, validate_only, tags = unpack_ioB(buffer, position)
            position += 6
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreateTopicsRequest(topics, timeout_ms, validate_only), position
        count, position = read_count(buffer, position, limit, 16)
        topics = []
        for _ in range(count):
            creatable_topic, position = CreatableTopic.read(buffer, position, limit, version)
            topics.append(creatable_topic)
        timeout_ms, validate_only = unpack_io(buffer, position)
        position += 5
        return CreateTopicsRequest(topics, timeout_ms, validate_only), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_count(out, len(self.topics))
            for creatable_topic in self.topics:
                creatable_topic.write(out, version, cuts)
            out += pack_iox(self.timeout_ms, self.validate_only)
            return
        write_count(out, len(self.topics))
        for creatable_topic in self.topics:
            creatable_topic.write(out, version, cuts)
        out += pack_io(self.timeout_ms, self.validate_only)


@dataclass(slots=True, eq=False, repr=False)
class CreatableTopicConfigs(Struct):
    """Versions 5 to 7. Part of CreateTopicsResponse."""

    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: int = -1
    is_sensitive: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[CreatableTopicConfigs, int]:
        value_: str | None
        name, position = read_compact_string(buffer, position, limit)
        value_, position = read_compact_nullable_string(buffer, position, limit)
        read_only, config_source, is_sensitive, tags = unpack_oboB(buffer, position)
        position += 4
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return CreatableTopicConfigs(name, value_, read_only, config_source, is_sensitive), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_nullable_string(out, self.value)
        out += pack_obox(self.read_only, self.config_source, self.is_sensitive)


@dataclass(slots=True, eq=False, repr=False)
class CreatableTopicResult(Struct):
    """Versions 2 to 7. Part of CreateTopicsResponse."""

    name: str = ""
    topic_id: UUID = ZERO_UUID
    error_code: int = 0
    error_message: str | None = ""
    topic_config_error_code: int = 0
    num_partitions: int = -1
    replication_factor: int = -1
    configs: list[CreatableTopicConfigs] | None = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreatableTopicResult, int]:
        topic_id: UUID
        error_message: str | None
        topic_config_error_code: int
        configs: list[CreatableTopicConfigs] | None
        if version >= 5:
            name, position = read_compact_string(buffer, position, limit)
            if version >= 7:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            (error_code,) = unpack_h(buffer, position)
            position += 2
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            num_partitions, replication_factor = unpack_ih(buffer, position)
            position += 6
            count, position = read_compact_nullable_count(buffer, position, limit, 6)
            if count < 0:
                configs = None
            else:
                configs = []
                for _ in range(count):
                    creatable_topic_configs, position = CreatableTopicConfigs.read(
                        buffer, position, limit, version
                    )
                    configs.append(creatable_topic_configs)
            tags = buffer[position]
            position += 1
            topic_config_error_code = 0
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0:
                        (topic_config_error_code,) = unpack_h(buffer, start)
                        start += 2
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of CreatableTopicResult has the wrong size")
                    position = end
            return CreatableTopicResult(
                name,
                topic_id,
                error_code,
                error_message,
                topic_config_error_code,
                num_partitions,
                replication_factor,
                configs,
            ), position
        name, position = read_string(buffer, position, limit)
        (error_code,) = unpack_h(buffer, position)
        position += 2
        error_message, position = read_nullable_string(buffer, position, limit)
        return CreatableTopicResult(name, ZERO_UUID, error_code, error_message, 0, -1, -1, []), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            write_compact_string(out, self.name)
            if version >= 7:
                out += pack_u(self.topic_id.bytes)
            out += pack_h(self.error_code)
            write_compact_nullable_string(out, self.error_message)
            out += pack_ih(self.num_partitions, self.replication_factor)
            if self.configs is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.configs))
                for creatable_topic_configs in self.configs:
                    creatable_topic_configs.write(out, version, cuts)
            if self.topic_config_error_code == 0:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.topic_config_error_code != 0:
                value = bytearray()
                value += pack_h(self.topic_config_error_code)
                tagged.append((0, value))
            write_tags(out, tagged)
            return
        write_string(out, self.name)
        out += pack_h(self.error_code)
        write_nullable_string(out, self.error_message)


@dataclass(slots=True, eq=False, repr=False)
class CreateTopicsResponse(Response):
    """Versions 2 to 7."""

    API_KEY = 19
    VERSIONS = (2, 7)
    FLEXIBLE_FROM = 5

    throttle_time_ms: int = 0
    topics: list[CreatableTopicResult] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[CreateTopicsResponse, int]:
        topics: list[CreatableTopicResult]
        if version >= 5:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 28 if version >= 7 else 12)
            topics = []
            for _ in range(count):
                creatable_topic_result, position = CreatableTopicResult.read(buffer, position, limit, version)
                topics.append(creatable_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return CreateTopicsResponse(throttle_time_ms, topics), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            creatable_topic_result, position = CreatableTopicResult.read(buffer, position, limit, version)
            topics.append(creatable_topic_result)
        return CreateTopicsResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 5:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.topics))
            for creatable_topic_result in self.topics:
                creatable_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for creatable_topic_result in self.topics:
            creatable_topic_result.write(out, version, cuts)
