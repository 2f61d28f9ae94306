"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ConsumerProtocolAssignment: versions 0 to 3
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.kafka.protocol.message import Message, NEVER_FLEXIBLE, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_count,
    read_nullable_bytes,
    read_numbers,
    read_string,
    write_count,
    write_nullable_bytes,
    write_numbers,
    write_string,
)


@dataclass(slots=True, eq=False, repr=False)
class TopicPartition(Struct):
    """Versions 0 to 3. Part of ConsumerProtocolAssignment."""

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
class ConsumerProtocolAssignment(Message):
    """Versions 0 to 3."""

    VERSIONS = (0, 3)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    assigned_partitions: list[TopicPartition] = field(default_factory=list)
    user_data: bytes | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[ConsumerProtocolAssignment, int]:
        assigned_partitions: list[TopicPartition]
        user_data: bytes | None
        count, position = read_count(buffer, position, limit, 6)
        assigned_partitions = []
        for _ in range(count):
            topic_partition, position = TopicPartition.read(buffer, position, limit, version)
            assigned_partitions.append(topic_partition)
        user_data, position = read_nullable_bytes(buffer, position, limit)
        return ConsumerProtocolAssignment(assigned_partitions, user_data), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_count(out, len(self.assigned_partitions))
        for topic_partition in self.assigned_partitions:
            topic_partition.write(out, version, cuts)
        write_nullable_bytes(out, self.user_data)
