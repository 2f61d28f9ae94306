"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

MetadataRequest: versions 0 to 13
MetadataResponse: versions 0 to 13
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    EncodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_nullable_string,
    read_numbers,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_string,
    write_numbers,
    write_string,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_hii = Layout(">hii").pack
unpack_hii = Layout(">hii").unpack_from
pack_hiii = Layout(">hiii").pack
unpack_hiii = Layout(">hiii").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ix = Layout(">ix").pack
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from
unpack_oB = Layout(">?B").unpack_from
pack_oo = Layout(">??").pack
unpack_oo = Layout(">??").unpack_from
pack_ox = Layout(">?x").pack
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class MetadataRequestTopic(Struct):
    """Versions 0 to 13. Part of MetadataRequest."""

    topic_id: UUID = ZERO_UUID
    name: str | None = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[MetadataRequestTopic, int]:
        topic_id: UUID
        name: str | None
        if version >= 9:
            if version >= 10:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            name, position = (read_compact_nullable_string if version >= 10 else read_compact_string)(
                buffer, position, limit
            )
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataRequestTopic(topic_id, name), position
        name, position = read_string(buffer, position, limit)
        return MetadataRequestTopic(ZERO_UUID, name), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            if version >= 10:
                out += pack_u(self.topic_id.bytes)
            (write_compact_nullable_string if version >= 10 else write_compact_string)(out, self.name)
            out.append(0)
            return
        write_string(out, self.name)


@dataclass(slots=True, eq=False, repr=False)
class MetadataRequest(Request["MetadataResponse"]):
    """Versions 0 to 13."""

    API_KEY = 3
    VERSIONS = (0, 13)
    FLEXIBLE_FROM = 9

    topics: list[MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[MetadataRequest, int]:
        topics: list[MetadataRequestTopic] | None
        if version >= 9:
            count, position = read_compact_nullable_count(buffer, position, limit, 18 if version >= 10 else 2)
            if count < 0:
                topics = None
            else:
                topics = []
                for _ in range(count):
                    metadata_request_topic, position = MetadataRequestTopic.read(
                        buffer, position, limit, version
                    )
                    topics.append(metadata_request_topic)
            (allow_auto_topic_creation,) = unpack_o(buffer, position)
            position += 1
            if version <= 10:
                (include_cluster_authorized_operations,) = unpack_o(buffer, position)
                position += 1
            else:
                include_cluster_authorized_operations = False
            include_topic_authorized_operations, tags = unpack_oB(buffer, position)
            position += 2
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataRequest(
                topics,
                allow_auto_topic_creation,
                include_cluster_authorized_operations,
                include_topic_authorized_operations,
            ), position
        count, position = (read_nullable_count if version >= 1 else read_count)(buffer, position, limit, 2)
        if count < 0:
            topics = None
        else:
            topics = []
            for _ in range(count):
                metadata_request_topic, position = MetadataRequestTopic.read(buffer, position, limit, version)
                topics.append(metadata_request_topic)
        if version >= 4:
            (allow_auto_topic_creation,) = unpack_o(buffer, position)
            position += 1
        else:
            allow_auto_topic_creation = True
        if version >= 8:
            include_cluster_authorized_operations, include_topic_authorized_operations = unpack_oo(
                buffer, position
            )
            position += 2
        else:
            include_cluster_authorized_operations = False
            include_topic_authorized_operations = False
        return MetadataRequest(
            topics,
            allow_auto_topic_creation,
            include_cluster_authorized_operations,
            include_topic_authorized_operations,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            if self.topics is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.topics))
                for metadata_request_topic in self.topics:
                    metadata_request_topic.write(out, version, cuts)
            out += pack_o(self.allow_auto_topic_creation)
            if version <= 10:
                out += pack_o(self.include_cluster_authorized_operations)
            out += pack_ox(self.include_topic_authorized_operations)
            return
        if self.topics is None:
            if version <= 0:
                raise EncodeError("topics is null, which this version does not allow")
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.topics))
            for metadata_request_topic in self.topics:
                metadata_request_topic.write(out, version, cuts)
        if version >= 4:
            out += pack_o(self.allow_auto_topic_creation)
        if version >= 8:
            out += pack_oo(
                self.include_cluster_authorized_operations, self.include_topic_authorized_operations
            )


@dataclass(slots=True, eq=False, repr=False)
class MetadataResponseBroker(Struct):
    """Versions 0 to 13. Part of MetadataResponse."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[MetadataResponseBroker, int]:
        rack: str | None
        if version >= 9:
            (node_id,) = unpack_i(buffer, position)
            position += 4
            host, position = read_compact_string(buffer, position, limit)
            (port,) = unpack_i(buffer, position)
            position += 4
            rack, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataResponseBroker(node_id, host, port, rack), position
        (node_id,) = unpack_i(buffer, position)
        position += 4
        host, position = read_string(buffer, position, limit)
        (port,) = unpack_i(buffer, position)
        position += 4
        if version >= 1:
            rack, position = read_nullable_string(buffer, position, limit)
        else:
            rack = None
        return MetadataResponseBroker(node_id, host, port, rack), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_i(self.node_id)
            write_compact_string(out, self.host)
            out += pack_i(self.port)
            write_compact_nullable_string(out, self.rack)
            out.append(0)
            return
        out += pack_i(self.node_id)
        write_string(out, self.host)
        out += pack_i(self.port)
        if version >= 1:
            write_nullable_string(out, self.rack)


@dataclass(slots=True, eq=False, repr=False)
class MetadataResponsePartition(Struct):
    """Versions 0 to 13. Part of MetadataResponse."""

    error_code: int = 0
    partition_index: int = 0
    leader_id: int = 0
    leader_epoch: int = -1
    replica_nodes: list[int] = field(default_factory=list)
    isr_nodes: list[int] = field(default_factory=list)
    offline_replicas: list[int] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[MetadataResponsePartition, int]:
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        if version >= 9:
            error_code, partition_index, leader_id, leader_epoch = unpack_hiii(buffer, position)
            position += 14
            count, position = read_compact_count(buffer, position, limit, 4)
            replica_nodes, position = read_numbers(buffer, position, "i", 4, count)
            count, position = read_compact_count(buffer, position, limit, 4)
            isr_nodes, position = read_numbers(buffer, position, "i", 4, count)
            count, position = read_compact_count(buffer, position, limit, 4)
            offline_replicas, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataResponsePartition(
                error_code,
                partition_index,
                leader_id,
                leader_epoch,
                replica_nodes,
                isr_nodes,
                offline_replicas,
            ), position
        error_code, partition_index, leader_id = unpack_hii(buffer, position)
        position += 10
        if version >= 7:
            (leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            leader_epoch = -1
        count, position = read_count(buffer, position, limit, 4)
        replica_nodes, position = read_numbers(buffer, position, "i", 4, count)
        count, position = read_count(buffer, position, limit, 4)
        isr_nodes, position = read_numbers(buffer, position, "i", 4, count)
        if version >= 5:
            count, position = read_count(buffer, position, limit, 4)
            offline_replicas, position = read_numbers(buffer, position, "i", 4, count)
        else:
            offline_replicas = []
        return MetadataResponsePartition(
            error_code, partition_index, leader_id, leader_epoch, replica_nodes, isr_nodes, offline_replicas
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_hiii(self.error_code, self.partition_index, self.leader_id, self.leader_epoch)
            write_compact_count(out, len(self.replica_nodes))
            write_numbers(out, "i", self.replica_nodes)
            write_compact_count(out, len(self.isr_nodes))
            write_numbers(out, "i", self.isr_nodes)
            write_compact_count(out, len(self.offline_replicas))
            write_numbers(out, "i", self.offline_replicas)
            out.append(0)
            return
        out += pack_hii(self.error_code, self.partition_index, self.leader_id)
        if version >= 7:
            out += pack_i(self.leader_epoch)
        write_count(out, len(self.replica_nodes))
        write_numbers(out, "i", self.replica_nodes)
        write_count(out, len(self.isr_nodes))
        write_numbers(out, "i", self.isr_nodes)
        if version >= 5:
            write_count(out, len(self.offline_replicas))
            write_numbers(out, "i", self.offline_replicas)


@dataclass(slots=True, eq=False, repr=False)
class MetadataResponseTopic(Struct):
    """Versions 0 to 13. Part of MetadataResponse."""

    error_code: int = 0
    name: str | None = ""
    topic_id: UUID = ZERO_UUID
    is_internal: bool = False
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: int = -2147483648

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[MetadataResponseTopic, int]:
        name: str | None
        topic_id: UUID
        partitions: list[MetadataResponsePartition]
        if version >= 9:
            (error_code,) = unpack_h(buffer, position)
            position += 2
            name, position = (read_compact_nullable_string if version >= 12 else read_compact_string)(
                buffer, position, limit
            )
            if version >= 10:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            (is_internal,) = unpack_o(buffer, position)
            position += 1
            count, position = read_compact_count(buffer, position, limit, 18)
            partitions = []
            for _ in range(count):
                metadata_response_partition, position = MetadataResponsePartition.read(
                    buffer, position, limit, version
                )
                partitions.append(metadata_response_partition)
            topic_authorized_operations, tags = unpack_iB(buffer, position)
            position += 5
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataResponseTopic(
                error_code, name, topic_id, is_internal, partitions, topic_authorized_operations
            ), position
        (error_code,) = unpack_h(buffer, position)
        position += 2
        name, position = read_string(buffer, position, limit)
        if version >= 1:
            (is_internal,) = unpack_o(buffer, position)
            position += 1
        else:
            is_internal = False
        count, position = read_count(
            buffer, position, limit, 26 if version >= 7 else 22 if version >= 5 else 18
        )
        partitions = []
        for _ in range(count):
            metadata_response_partition, position = MetadataResponsePartition.read(
                buffer, position, limit, version
            )
            partitions.append(metadata_response_partition)
        if version >= 8:
            (topic_authorized_operations,) = unpack_i(buffer, position)
            position += 4
        else:
            topic_authorized_operations = -2147483648
        return MetadataResponseTopic(
            error_code, name, ZERO_UUID, is_internal, partitions, topic_authorized_operations
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_h(self.error_code)
            (write_compact_nullable_string if version >= 12 else write_compact_string)(out, self.name)
            if version >= 10:
                out += pack_u(self.topic_id.bytes)
            out += pack_o(self.is_internal)
            write_compact_count(out, len(self.partitions))
            for metadata_response_partition in self.partitions:
                metadata_response_partition.write(out, version, cuts)
            out += pack_ix(self.topic_authorized_operations)
            return
        out += pack_h(self.error_code)
        write_string(out, self.name)
        if version >= 1:
            out += pack_o(self.is_internal)
        write_count(out, len(self.partitions))
        for metadata_response_partition in self.partitions:
            metadata_response_partition.write(out, version, cuts)
        if version >= 8:
            out += pack_i(self.topic_authorized_operations)


@dataclass(slots=True, eq=False, repr=False)
class MetadataResponse(Response):
    """Versions 0 to 13."""

    API_KEY = 3
    VERSIONS = (0, 13)
    FLEXIBLE_FROM = 9

    throttle_time_ms: int = 0
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None
    controller_id: int = -1
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    error_code: int = 0
    cluster_authorized_operations: int = -2147483648

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[MetadataResponse, int]:
        brokers: list[MetadataResponseBroker]
        cluster_id: str | None
        topics: list[MetadataResponseTopic]
        if version >= 9:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 11)
            brokers = []
            for _ in range(count):
                metadata_response_broker, position = MetadataResponseBroker.read(
                    buffer, position, limit, version
                )
                brokers.append(metadata_response_broker)
            cluster_id, position = read_compact_nullable_string(buffer, position, limit)
            (controller_id,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 26 if version >= 10 else 10)
            topics = []
            for _ in range(count):
                metadata_response_topic, position = MetadataResponseTopic.read(
                    buffer, position, limit, version
                )
                topics.append(metadata_response_topic)
            if version >= 13:
                (error_code,) = unpack_h(buffer, position)
                position += 2
            else:
                error_code = 0
            if version <= 10:
                (cluster_authorized_operations,) = unpack_i(buffer, position)
                position += 4
            else:
                cluster_authorized_operations = -2147483648
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return MetadataResponse(
                throttle_time_ms,
                brokers,
                cluster_id,
                controller_id,
                topics,
                error_code,
                cluster_authorized_operations,
            ), position
        if version >= 3:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
        else:
            throttle_time_ms = 0
        count, position = read_count(buffer, position, limit, 12 if version >= 1 else 10)
        brokers = []
        for _ in range(count):
            metadata_response_broker, position = MetadataResponseBroker.read(buffer, position, limit, version)
            brokers.append(metadata_response_broker)
        if version >= 2:
            cluster_id, position = read_nullable_string(buffer, position, limit)
        else:
            cluster_id = None
        if version >= 1:
            (controller_id,) = unpack_i(buffer, position)
            position += 4
        else:
            controller_id = -1
        count, position = read_count(
            buffer, position, limit, 13 if version >= 8 else 9 if version >= 1 else 8
        )
        topics = []
        for _ in range(count):
            metadata_response_topic, position = MetadataResponseTopic.read(buffer, position, limit, version)
            topics.append(metadata_response_topic)
        if version >= 8:
            (cluster_authorized_operations,) = unpack_i(buffer, position)
            position += 4
        else:
            cluster_authorized_operations = -2147483648
        return MetadataResponse(
            throttle_time_ms, brokers, cluster_id, controller_id, topics, 0, cluster_authorized_operations
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.brokers))
            for metadata_response_broker in self.brokers:
                metadata_response_broker.write(out, version, cuts)
            write_compact_nullable_string(out, self.cluster_id)
            out += pack_i(self.controller_id)
            write_compact_count(out, len(self.topics))
            for metadata_response_topic in self.topics:
                metadata_response_topic.write(out, version, cuts)
            if version >= 13:
                out += pack_h(self.error_code)
            if version <= 10:
                out += pack_i(self.cluster_authorized_operations)
            out.append(0)
            return
        if version >= 3:
            out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.brokers))
        for metadata_response_broker in self.brokers:
            metadata_response_broker.write(out, version, cuts)
        if version >= 2:
            write_nullable_string(out, self.cluster_id)
        if version >= 1:
            out += pack_i(self.controller_id)
        write_count(out, len(self.topics))
        for metadata_response_topic in self.topics:
            metadata_response_topic.write(out, version, cuts)
        if version >= 8:
            out += pack_i(self.cluster_authorized_operations)
