"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeQuorumRequest: versions 0 to 2
DescribeQuorumResponse: versions 0 to 2
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
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

unpack_HB = Layout(">HB").unpack_from
pack_Hx = Layout(">Hx").pack
pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_iiq = Layout(">iiq").pack
unpack_iiq = Layout(">iiq").unpack_from
pack_ix = Layout(">ix").pack
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
pack_qq = Layout(">qq").pack
unpack_qq = Layout(">qq").unpack_from
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class RequestedPartitionData(Struct):
    """Versions 0 to 2. Part of DescribeQuorumRequest."""

    partition_index: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[RequestedPartitionData, int]:
        partition_index, tags = unpack_iB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return RequestedPartitionData(partition_index), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ix(self.partition_index)


@dataclass(slots=True, eq=False, repr=False)
class RequestedTopicData(Struct):
    """Versions 0 to 2. Part of DescribeQuorumRequest."""

    topic_name: str = ""
    partitions: list[RequestedPartitionData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[RequestedTopicData, int]:
        partitions: list[RequestedPartitionData]
        topic_name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 5)
        partitions = []
        for _ in range(count):
            requested_partition_data, position = RequestedPartitionData.read(buffer, position, limit, version)
            partitions.append(requested_partition_data)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return RequestedTopicData(topic_name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.topic_name)
        write_compact_count(out, len(self.partitions))
        for requested_partition_data in self.partitions:
            requested_partition_data.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeQuorumRequest(Request["DescribeQuorumResponse"]):
    """Versions 0 to 2."""

    API_KEY = 55
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    topics: list[RequestedTopicData] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeQuorumRequest, int]:
        topics: list[RequestedTopicData]
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            requested_topic_data, position = RequestedTopicData.read(buffer, position, limit, version)
            topics.append(requested_topic_data)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeQuorumRequest(topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.topics))
        for requested_topic_data in self.topics:
            requested_topic_data.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ReplicaState(Struct):
    """Versions 0 to 2. Part of DescribeQuorumResponse."""

    replica_id: int = 0
    replica_directory_id: UUID = ZERO_UUID
    log_end_offset: int = 0
    last_fetch_timestamp: int = -1
    last_caught_up_timestamp: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ReplicaState, int]:
        replica_directory_id: UUID
        (replica_id,) = unpack_i(buffer, position)
        position += 4
        if version >= 2:
            (replica_directory_id,) = unpack_u(buffer, position)
            position += 16
            replica_directory_id = make_uuid(replica_directory_id)
        else:
            replica_directory_id = ZERO_UUID
        (log_end_offset,) = unpack_q(buffer, position)
        position += 8
        if version >= 1:
            last_fetch_timestamp, last_caught_up_timestamp = unpack_qq(buffer, position)
            position += 16
        else:
            last_fetch_timestamp = -1
            last_caught_up_timestamp = -1
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReplicaState(
            replica_id, replica_directory_id, log_end_offset, last_fetch_timestamp, last_caught_up_timestamp
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.replica_id)
        if version >= 2:
            out += pack_u(self.replica_directory_id.bytes)
        out += pack_q(self.log_end_offset)
        if version >= 1:
            out += pack_qq(self.last_fetch_timestamp, self.last_caught_up_timestamp)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class PartitionData(Struct):
    """Versions 0 to 2. Part of DescribeQuorumResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = ""
    leader_id: int = 0
    leader_epoch: int = 0
    high_watermark: int = 0
    current_voters: list[ReplicaState] = field(default_factory=list)
    observers: list[ReplicaState] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[PartitionData, int]:
        error_message: str | None
        current_voters: list[ReplicaState]
        observers: list[ReplicaState]
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        if version >= 2:
            error_message, position = read_compact_nullable_string(buffer, position, limit)
        else:
            error_message = ""
        leader_id, leader_epoch, high_watermark = unpack_iiq(buffer, position)
        position += 16
        count, position = read_compact_count(
            buffer, position, limit, 45 if version >= 2 else 29 if version >= 1 else 13
        )
        current_voters = []
        for _ in range(count):
            replica_state, position = ReplicaState.read(buffer, position, limit, version)
            current_voters.append(replica_state)
        count, position = read_compact_count(
            buffer, position, limit, 45 if version >= 2 else 29 if version >= 1 else 13
        )
        observers = []
        for _ in range(count):
            replica_state, position = ReplicaState.read(buffer, position, limit, version)
            observers.append(replica_state)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return PartitionData(
            partition_index,
            error_code,
            error_message,
            leader_id,
            leader_epoch,
            high_watermark,
            current_voters,
            observers,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.partition_index, self.error_code)
        if version >= 2:
            write_compact_nullable_string(out, self.error_message)
        out += pack_iiq(self.leader_id, self.leader_epoch, self.high_watermark)
        write_compact_count(out, len(self.current_voters))
        for replica_state in self.current_voters:
            replica_state.write(out, version, cuts)
        write_compact_count(out, len(self.observers))
        for replica_state in self.observers:
            replica_state.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class TopicData(Struct):
    """Versions 0 to 2. Part of DescribeQuorumResponse."""

    topic_name: str = ""
    partitions: list[PartitionData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicData, int]:
        partitions: list[PartitionData]
        topic_name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 26 if version >= 2 else 25)
        partitions = []
        for _ in range(count):
            partition_data, position = PartitionData.read(buffer, position, limit, version)
            partitions.append(partition_data)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicData(topic_name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.topic_name)
        write_compact_count(out, len(self.partitions))
        for partition_data in self.partitions:
            partition_data.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class Listener(Struct):
    """Version 2. Part of DescribeQuorumResponse."""

    name: str = ""
    host: str = ""
    port: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Listener, int]:
        name, position = read_compact_string(buffer, position, limit)
        host, position = read_compact_string(buffer, position, limit)
        port, tags = unpack_HB(buffer, position)
        position += 3
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Listener(name, host, port), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_string(out, self.host)
        out += pack_Hx(self.port)


@dataclass(slots=True, eq=False, repr=False)
class Node(Struct):
    """Version 2. Part of DescribeQuorumResponse."""

    node_id: int = 0
    listeners: list[Listener] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Node, int]:
        listeners: list[Listener]
        (node_id,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 5)
        listeners = []
        for _ in range(count):
            listener, position = Listener.read(buffer, position, limit, version)
            listeners.append(listener)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return Node(node_id, listeners), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.node_id)
        write_compact_count(out, len(self.listeners))
        for listener in self.listeners:
            listener.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeQuorumResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 55
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    error_code: int = 0
    error_message: str | None = ""
    topics: list[TopicData] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeQuorumResponse, int]:
        error_message: str | None
        topics: list[TopicData]
        nodes: list[Node]
        (error_code,) = unpack_h(buffer, position)
        position += 2
        if version >= 2:
            error_message, position = read_compact_nullable_string(buffer, position, limit)
        else:
            error_message = ""
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            topic_data, position = TopicData.read(buffer, position, limit, version)
            topics.append(topic_data)
        if version >= 2:
            count, position = read_compact_count(buffer, position, limit, 6)
            nodes = []
            for _ in range(count):
                node, position = Node.read(buffer, position, limit, version)
                nodes.append(node)
        else:
            nodes = []
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeQuorumResponse(error_code, error_message, topics, nodes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_h(self.error_code)
        if version >= 2:
            write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.topics))
        for topic_data in self.topics:
            topic_data.write(out, version, cuts)
        if version >= 2:
            write_compact_count(out, len(self.nodes))
            for node in self.nodes:
                node.write(out, version, cuts)
        out.append(0)
