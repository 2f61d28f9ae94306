"""Generated from Kafka's schema (tools/schemas) by tools/generate_messages.py. Do not edit.

OffsetCommitKey: versions 0 to 1
OffsetCommitValue: versions 0 to 4
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from dray.kafka.protocol.message import Message, NEVER_FLEXIBLE
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_string,
    read_string,
    skip_tags,
    write_compact_string,
    write_string,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
unpack_qB = Layout(">qB").unpack_from
pack_qi = Layout(">qi").pack
unpack_qi = Layout(">qi").unpack_from
pack_qx = Layout(">qx").pack


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitKey(Message):
    """Versions 0 to 1."""

    API_KEY = 1
    VERSIONS = (0, 1)
    FLEXIBLE_FROM = NEVER_FLEXIBLE

    group: str = ""
    topic: str = ""
    partition: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetCommitKey, int]:
        group, position = read_string(buffer, position, limit)
        topic, position = read_string(buffer, position, limit)
        (partition,) = unpack_i(buffer, position)
        position += 4
        return OffsetCommitKey(group, topic, partition), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        write_string(out, self.group)
        write_string(out, self.topic)
        out += pack_i(self.partition)


@dataclass(slots=True, eq=False, repr=False)
class OffsetCommitValue(Message):
    """Versions 0 to 4."""

    API_KEY = 1
    VERSIONS = (0, 4)
    FLEXIBLE_FROM = 4

    offset: int = 0
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[OffsetCommitValue, int]:
        if version >= 4:
            offset, leader_epoch = unpack_qi(buffer, position)
            position += 12
            metadata, position = read_compact_string(buffer, position, limit)
            commit_timestamp, tags = unpack_qB(buffer, position)
            position += 9
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, -1), position
        (offset,) = unpack_q(buffer, position)
        position += 8
        if version >= 3:
            (leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            leader_epoch = -1
        metadata, position = read_string(buffer, position, limit)
        (commit_timestamp,) = unpack_q(buffer, position)
        position += 8
        if 1 <= version <= 1:
            (expire_timestamp,) = unpack_q(buffer, position)
            position += 8
        else:
            expire_timestamp = -1
        return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 4:
            out += pack_qi(self.offset, self.leader_epoch)
            write_compact_string(out, self.metadata)
            out += pack_qx(self.commit_timestamp)
            return
        out += pack_q(self.offset)
        if version >= 3:
            out += pack_i(self.leader_epoch)
        write_string(out, self.metadata)
        out += pack_q(self.commit_timestamp)
        if 1 <= version <= 1:
            out += pack_q(self.expire_timestamp)
