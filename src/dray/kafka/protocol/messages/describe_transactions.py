"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeTransactionsRequest: version 0
DescribeTransactionsResponse: version 0
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_string,
    read_numbers,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_numbers,
)

pack_h = Layout(">h").pack
unpack_h = Layout(">h").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_iqqh = Layout(">iqqh").pack
unpack_iqqh = Layout(">iqqh").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class DescribeTransactionsRequest(Request["DescribeTransactionsResponse"]):
    """Version 0."""

    API_KEY = 65
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    transactional_ids: list[str] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTransactionsRequest, int]:
        transactional_ids: list[str]
        count, position = read_compact_count(buffer, position, limit, 1)
        transactional_ids = []
        for _ in range(count):
            string_value, position = read_compact_string(buffer, position, limit)
            transactional_ids.append(string_value)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTransactionsRequest(transactional_ids), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_count(out, len(self.transactional_ids))
        for string_value in self.transactional_ids:
            write_compact_string(out, string_value)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class TopicData(Struct):
    """Version 0. Part of DescribeTransactionsResponse."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicData, int]:
        partitions: list[int]
        topic, position = read_compact_string(buffer, position, limit)
        count, position = read_compact_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TopicData(topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_compact_string(out, self.topic)
        write_compact_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class TransactionState(Struct):
    """Version 0. Part of DescribeTransactionsResponse."""

    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TopicData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TransactionState, int]:
        topics: list[TopicData]
        (error_code,) = unpack_h(buffer, position)
        position += 2
        transactional_id, position = read_compact_string(buffer, position, limit)
        transaction_state, position = read_compact_string(buffer, position, limit)
        transaction_timeout_ms, transaction_start_time_ms, producer_id, producer_epoch = unpack_iqqh(
            buffer, position
        )
        position += 22
        count, position = read_compact_count(buffer, position, limit, 3)
        topics = []
        for _ in range(count):
            topic_data, position = TopicData.read(buffer, position, limit, version)
            topics.append(topic_data)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return TransactionState(
            error_code,
            transactional_id,
            transaction_state,
            transaction_timeout_ms,
            transaction_start_time_ms,
            producer_id,
            producer_epoch,
            topics,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_h(self.error_code)
        write_compact_string(out, self.transactional_id)
        write_compact_string(out, self.transaction_state)
        out += pack_iqqh(
            self.transaction_timeout_ms, self.transaction_start_time_ms, self.producer_id, self.producer_epoch
        )
        write_compact_count(out, len(self.topics))
        for topic_data in self.topics:
            topic_data.write(out, version, cuts)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeTransactionsResponse(Response):
    """Version 0."""

    API_KEY = 65
    VERSIONS = (0, 0)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeTransactionsResponse, int]:
        transaction_states: list[TransactionState]
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 28)
        transaction_states = []
        for _ in range(count):
            transaction_state, position = TransactionState.read(buffer, position, limit, version)
            transaction_states.append(transaction_state)
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeTransactionsResponse(throttle_time_ms, transaction_states), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.throttle_time_ms)
        write_compact_count(out, len(self.transaction_states))
        for transaction_state in self.transaction_states:
            transaction_state.write(out, version, cuts)
        out.append(0)
