"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeProducersRequest: version 0
DescribeProducersResponse: version 0
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
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
unpack_qiiqiqB = Layout(">qiiqiqB").unpack_from
pack_qiiqiqx = Layout(">qiiqiqx").pack


@dataclass(slots=True, eq=False, repr=False)
class TopicRequest(Struct):
    """Version 0. Part of DescribeProducersRequest."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicRequest, int]:
        partition_indexes: list[int]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 4)
        partition_indexes, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicRequest(name, partition_indexes), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partition_indexes))
        write_numbers(out, "i", self.partition_indexes)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeProducersRequest(Request["DescribeProducersResponse"]):
    """Version 0."""

    API_KEY = 61
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    topics: list[TopicRequest] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeProducersRequest, int]:
        topics: list[TopicRequest]
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            topic_request, position = TopicRequest.read(buffer, position, limit, version)
            topics.append(topic_request)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeProducersRequest(topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.topics))
        for topic_request in self.topics:
            topic_request.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class ProducerState(Struct):
    """Version 0. Part of DescribeProducersResponse."""

    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ProducerState, int]:
        (
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
            tags,
        ) = unpack_qiiqiqB(buffer, position)
        position += 37
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ProducerState(
            producer_id,
            producer_epoch,
            last_sequence,
            last_timestamp,
            coordinator_epoch,
            current_txn_start_offset,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_qiiqiqx(
            self.producer_id,
            self.producer_epoch,
            self.last_sequence,
            self.last_timestamp,
            self.coordinator_epoch,
            self.current_txn_start_offset,
        )


@dataclass(slots=True, eq=False, repr=False)
class PartitionResponse(Struct):
    """Version 0. Part of DescribeProducersResponse."""

    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: list[ProducerState] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[PartitionResponse, int]:
        error_message: str | None
        active_producers: list[ProducerState]
        partition_index, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 37)
        active_producers = []
        for _ in range(count):
            producer_state, position = ProducerState.read(buffer, position, limit, version)
            active_producers.append(producer_state)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return PartitionResponse(partition_index, error_code, error_message, active_producers), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.partition_index, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        write_compact_count(out, len(self.active_producers))
        for producer_state in self.active_producers:
            producer_state.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class TopicResponse(Struct):
    """Version 0. Part of DescribeProducersResponse."""

    name: str = ""
    partitions: list[PartitionResponse] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicResponse, int]:
        partitions: list[PartitionResponse]
        name, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 9)
        partitions = []
        for _ in range(count):
            partition_response, position = PartitionResponse.read(buffer, position, limit, version)
            partitions.append(partition_response)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicResponse(name, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.name)
        write_compact_count(out, len(self.partitions))
        for partition_response in self.partitions:
            partition_response.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeProducersResponse(Response):
    """Version 0."""

    API_KEY = 61
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    topics: list[TopicResponse] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeProducersResponse, int]:
        topics: list[TopicResponse]
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            topic_response, position = TopicResponse.read(buffer, position, limit, version)
            topics.append(topic_response)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeProducersResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        write_compact_count(out, len(self.topics))
        for topic_response in self.topics:
            topic_response.write(out, version, cuts)
        out.append(0)
