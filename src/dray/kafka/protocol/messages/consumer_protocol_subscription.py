"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ConsumerProtocolSubscription: versions 0 to 3
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Message, NEVER_FLEXIBLE, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_count,
    read_nullable_bytes,
    read_nullable_string,
    read_numbers,
    read_string,
    write_count,
    write_nullable_bytes,
    write_nullable_string,
    write_numbers,
    write_string,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class TopicPartition(Struct):
    """Versions 1 to 3. Part of ConsumerProtocolSubscription."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicPartition, int]:
        partitions: list[int]
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        return TopicPartition(topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)


@dataclass(slots=True, eq=False, repr=False)
class ConsumerProtocolSubscription(Message):
    """Versions 0 to 3."""

    VERSIONS = (0, 3)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    topics: list[str] = field(default_factory=list)
    user_data: bytes | None = None
    owned_partitions: list[TopicPartition] = field(default_factory=list)
    generation_id: int = -1
    rack_id: str | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerProtocolSubscription, int]:
        topics: list[str]
        user_data: bytes | None
        owned_partitions: list[TopicPartition]
        rack_id: str | None
        count, position = read_count(buffer, position, limit, 2)
        topics = []
        for _ in range(count):
            string_value, position = read_string(buffer, position, limit)
            topics.append(string_value)
        user_data, position = read_nullable_bytes(buffer, position, limit)
        if version >= 1:
            count, position = read_count(buffer, position, limit, 6)
            owned_partitions = []
            for _ in range(count):
                topic_partition, position = TopicPartition.read(buffer, position, limit, version)
                owned_partitions.append(topic_partition)
        else:
            owned_partitions = []
        if version >= 2:
            (generation_id,) = unpack_i(buffer, position)
            position += 4
        else:
            generation_id = -1
        if version >= 3:
            rack_id, position = read_nullable_string(buffer, position, limit)
        else:
            rack_id = None
        return ConsumerProtocolSubscription(
            topics, user_data, owned_partitions, generation_id, rack_id
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_count(out, len(self.topics))
        for string_value in self.topics:
            write_string(out, string_value)
        write_nullable_bytes(out, self.user_data)
        if version >= 1:
            write_count(out, len(self.owned_partitions))
            for topic_partition in self.owned_partitions:
                topic_partition.write(out, version, cuts)
        if version >= 2:
            out += pack_i(self.generation_id)
        if version >= 3:
            write_nullable_string(out, self.rack_id)
