"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

OffsetForLeaderEpochRequest: versions 2 to 4
OffsetForLeaderEpochResponse: versions 2 to 4
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    skip_tags,
    write_compact_count,
    write_compact_string,
    write_count,
    write_string,
)

pack_hiiq = Layout(">hiiq").pack
unpack_hiiq = Layout(">hiiq").unpack_from
unpack_hiiqB = Layout(">hiiqB").unpack_from
pack_hiiqx = Layout(">hiiqx").pack
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_iii = Layout(">iii").pack
unpack_iii = Layout(">iii").unpack_from
unpack_iiiB = Layout(">iiiB").unpack_from
pack_iiix = Layout(">iiix").pack


@dataclass(slots=True, eq=False, repr=False)
class OffsetForLeaderPartition(Struct):
    """Versions 2 to 4. Part of OffsetForLeaderEpochRequest."""

    partition: int = 0
    current_leader_epoch: int = -1
    leader_epoch: int = 0

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetForLeaderPartition, int]:
        if version >= 4:
            partition, current_leader_epoch, leader_epoch, tags = unpack_iiiB(buffer, position)
            position += 13
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetForLeaderPartition(partition, current_leader_epoch, leader_epoch), position
        partition, current_leader_epoch, leader_epoch = unpack_iii(buffer, position)
        position += 12
        return OffsetForLeaderPartition(partition, current_leader_epoch, leader_epoch), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_iiix(self.partition, self.current_leader_epoch, self.leader_epoch)
            return
        out += pack_iii(self.partition, self.current_leader_epoch, self.leader_epoch)


@dataclass(slots=True, eq=False, repr=False)
class OffsetForLeaderTopic(Struct):
    """Versions 2 to 4. Part of OffsetForLeaderEpochRequest."""

    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetForLeaderTopic, int]:
        partitions: list[OffsetForLeaderPartition]
        if version >= 4:
            topic, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 13)
            partitions = []
            for _ in range(count):
                offset_for_leader_partition, position = OffsetForLeaderPartition.read(
                    buffer, position, limit, version
                )
                partitions.append(offset_for_leader_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetForLeaderTopic(topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 12)
        partitions = []
        for _ in range(count):
            offset_for_leader_partition, position = OffsetForLeaderPartition.read(
                buffer, position, limit, version
            )
            partitions.append(offset_for_leader_partition)
        return OffsetForLeaderTopic(topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            for offset_for_leader_partition in self.partitions:
                offset_for_leader_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        for offset_for_leader_partition in self.partitions:
            offset_for_leader_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetForLeaderEpochRequest(Request["OffsetForLeaderEpochResponse"]):
    """Versions 2 to 4."""

    API_KEY = 23
    VERSIONS = (2, 4)
    FLEXIBLE_FROM = 4

    replica_id: int = -2
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetForLeaderEpochRequest, int]:
        topics: list[OffsetForLeaderTopic]
        if version >= 4:
            (replica_id,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                offset_for_leader_topic, position = OffsetForLeaderTopic.read(
                    buffer, position, limit, version
                )
                topics.append(offset_for_leader_topic)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetForLeaderEpochRequest(replica_id, topics), position
        if version >= 3:
            (replica_id,) = unpack_i(buffer, position)
            position += 4
        else:
            replica_id = -2
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_for_leader_topic, position = OffsetForLeaderTopic.read(buffer, position, limit, version)
            topics.append(offset_for_leader_topic)
        return OffsetForLeaderEpochRequest(replica_id, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_i(self.replica_id)
            write_compact_count(out, len(self.topics))
            for offset_for_leader_topic in self.topics:
                offset_for_leader_topic.write(out, version, cuts)
            out.append(0)
            return
        if version >= 3:
            out += pack_i(self.replica_id)
        write_count(out, len(self.topics))
        for offset_for_leader_topic in self.topics:
            offset_for_leader_topic.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class EpochEndOffset(Struct):
    """Versions 2 to 4. Part of OffsetForLeaderEpochResponse."""

    error_code: int = 0
    partition: int = 0
    leader_epoch: int = -1
    end_offset: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[EpochEndOffset, int]:
        if version >= 4:
            error_code, partition, leader_epoch, end_offset, tags = unpack_hiiqB(buffer, position)
            position += 19
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return EpochEndOffset(error_code, partition, leader_epoch, end_offset), position
        error_code, partition, leader_epoch, end_offset = unpack_hiiq(buffer, position)
        position += 18
        return EpochEndOffset(error_code, partition, leader_epoch, end_offset), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_hiiqx(self.error_code, self.partition, self.leader_epoch, self.end_offset)
            return
        out += pack_hiiq(self.error_code, self.partition, self.leader_epoch, self.end_offset)


@dataclass(slots=True, eq=False, repr=False)
class OffsetForLeaderTopicResult(Struct):
    """Versions 2 to 4. Part of OffsetForLeaderEpochResponse."""

    topic: str = ""
    partitions: list[EpochEndOffset] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetForLeaderTopicResult, int]:
        partitions: list[EpochEndOffset]
        if version >= 4:
            topic, position = read_compact_string(buffer, position, limit)
            count, position = read_compact_count(buffer, position, limit, 19)
            partitions = []
            for _ in range(count):
                epoch_end_offset, position = EpochEndOffset.read(buffer, position, limit, version)
                partitions.append(epoch_end_offset)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetForLeaderTopicResult(topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 18)
        partitions = []
        for _ in range(count):
            epoch_end_offset, position = EpochEndOffset.read(buffer, position, limit, version)
            partitions.append(epoch_end_offset)
        return OffsetForLeaderTopicResult(topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            for epoch_end_offset in self.partitions:
                epoch_end_offset.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        for epoch_end_offset in self.partitions:
            epoch_end_offset.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class OffsetForLeaderEpochResponse(Response):
    """Versions 2 to 4."""

    API_KEY = 23
    VERSIONS = (2, 4)
    FLEXIBLE_FROM = 4

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[OffsetForLeaderEpochResponse, int]:
        topics: list[OffsetForLeaderTopicResult]
        if version >= 4:
            (throttle_time_ms,) = unpack_i(buffer, position)
            position += 4
            count, position = read_compact_count(buffer, position, limit, 3)
            topics = []
            for _ in range(count):
                offset_for_leader_topic_result, position = OffsetForLeaderTopicResult.read(
                    buffer, position, limit, version
                )
                topics.append(offset_for_leader_topic_result)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetForLeaderEpochResponse(throttle_time_ms, topics), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            offset_for_leader_topic_result, position = OffsetForLeaderTopicResult.read(
                buffer, position, limit, version
            )
            topics.append(offset_for_leader_topic_result)
        return OffsetForLeaderEpochResponse(throttle_time_ms, topics), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_i(self.throttle_time_ms)
            write_compact_count(out, len(self.topics))
            for offset_for_leader_topic_result in self.topics:
                offset_for_leader_topic_result.write(out, version, cuts)
            out.append(0)
            return
        out += pack_i(self.throttle_time_ms)
        write_count(out, len(self.topics))
        for offset_for_leader_topic_result in self.topics:
            offset_for_leader_topic_result.write(out, version, cuts)
