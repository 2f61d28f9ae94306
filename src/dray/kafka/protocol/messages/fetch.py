"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

FetchRequest: versions 4 to 18
FetchResponse: versions 4 to 18
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Cuts,
    DecodeError,
    Records,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_count,
    read_nullable_records,
    read_numbers,
    read_string,
    read_tag,
    read_tag_count,
    skip_tags,
    write_compact_count,
    write_compact_nullable_records,
    write_compact_nullable_string,
    write_compact_string,
    write_count,
    write_nullable_records,
    write_numbers,
    write_string,
    write_tags,
)

pack_hi = Layout(">hi").pack
unpack_hi = Layout(">hi").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ihi = Layout(">ihi").pack
unpack_ihi = Layout(">ihi").unpack_from
pack_ihqq = Layout(">ihqq").pack
unpack_ihqq = Layout(">ihqq").unpack_from
pack_ihqqq = Layout(">ihqqq").pack
unpack_ihqqq = Layout(">ihqqq").unpack_from
pack_ii = Layout(">ii").pack
unpack_ii = Layout(">ii").unpack_from
unpack_iiB = Layout(">iiB").unpack_from
pack_iiibii = Layout(">iiibii").pack
unpack_iiibii = Layout(">iiibii").unpack_from
pack_iiiib = Layout(">iiiib").pack
unpack_iiiib = Layout(">iiiib").unpack_from
pack_iiqiqi = Layout(">iiqiqi").pack
unpack_iiqiqiB = Layout(">iiqiqiB").unpack_from
pack_iix = Layout(">iix").pack
unpack_iqB = Layout(">iqB").unpack_from
pack_iqx = Layout(">iqx").pack
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
unpack_qiB = Layout(">qiB").unpack_from
pack_qix = Layout(">qix").pack
pack_qq = Layout(">qq").pack
unpack_qq = Layout(">qq").unpack_from
unpack_qqB = Layout(">qqB").unpack_from
pack_qqx = Layout(">qqx").pack
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class ReplicaState(Struct):
    """Versions 15 to 18. Part of FetchRequest."""

    replica_id: int = -1
    replica_epoch: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ReplicaState, int]:
        replica_id, replica_epoch, tags = unpack_iqB(buffer, position)
        position += 13
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return ReplicaState(replica_id, replica_epoch), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_iqx(self.replica_id, self.replica_epoch)


@dataclass(slots=True, eq=False, repr=False)
class FetchPartition(Struct):
    """Versions 4 to 18. Part of FetchRequest."""

    partition: int = 0
    current_leader_epoch: int = -1
    fetch_offset: int = 0
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    partition_max_bytes: int = 0
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = 9223372036854775807

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FetchPartition, int]:
        replica_directory_id: UUID
        high_watermark: int
        if version >= 12:
            (
                partition,
                current_leader_epoch,
                fetch_offset,
                last_fetched_epoch,
                log_start_offset,
                partition_max_bytes,
                tags,
            ) = unpack_iiqiqiB(buffer, position)
            position += 33
            replica_directory_id = ZERO_UUID
            high_watermark = 9223372036854775807
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0 and version >= 17:
                        (replica_directory_id,) = unpack_u(buffer, start)
                        start += 16
                        replica_directory_id = make_uuid(replica_directory_id)
                    elif tag == 1 and version >= 18:
                        (high_watermark,) = unpack_q(buffer, start)
                        start += 8
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of FetchPartition has the wrong size")
                    position = end
            return FetchPartition(
                partition,
                current_leader_epoch,
                fetch_offset,
                last_fetched_epoch,
                log_start_offset,
                partition_max_bytes,
                replica_directory_id,
                high_watermark,
            ), position
        (partition,) = unpack_i(buffer, position)
        position += 4
        if version >= 9:
            (current_leader_epoch,) = unpack_i(buffer, position)
            position += 4
        else:
            current_leader_epoch = -1
        (fetch_offset,) = unpack_q(buffer, position)
        position += 8
        if version >= 5:
            (log_start_offset,) = unpack_q(buffer, position)
            position += 8
        else:
            log_start_offset = -1
        (partition_max_bytes,) = unpack_i(buffer, position)
        position += 4
        return FetchPartition(
            partition,
            current_leader_epoch,
            fetch_offset,
            -1,
            log_start_offset,
            partition_max_bytes,
            ZERO_UUID,
            9223372036854775807,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            out += pack_iiqiqi(
                self.partition,
                self.current_leader_epoch,
                self.fetch_offset,
                self.last_fetched_epoch,
                self.log_start_offset,
                self.partition_max_bytes,
            )
            if self.replica_directory_id == ZERO_UUID and self.high_watermark == 9223372036854775807:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.replica_directory_id != ZERO_UUID and version >= 17:
                value = bytearray()
                value += pack_u(self.replica_directory_id.bytes)
                tagged.append((0, value))
            if self.high_watermark != 9223372036854775807 and version >= 18:
                value = bytearray()
                value += pack_q(self.high_watermark)
                tagged.append((1, value))
            write_tags(out, tagged)
            return
        out += pack_i(self.partition)
        if version >= 9:
            out += pack_i(self.current_leader_epoch)
        out += pack_q(self.fetch_offset)
        if version >= 5:
            out += pack_q(self.log_start_offset)
        out += pack_i(self.partition_max_bytes)


@dataclass(slots=True, eq=False, repr=False)
class FetchTopic(Struct):
    """Versions 4 to 18. Part of FetchRequest."""

    topic_id: UUID = ZERO_UUID
    topic: str = ""
    partitions: list[FetchPartition] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FetchTopic, int]:
        topic_id: UUID
        partitions: list[FetchPartition]
        if version >= 12:
            if version >= 13:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 12:
                topic, position = read_compact_string(buffer, position, limit)
            else:
                topic = ""
            count, position = read_compact_count(buffer, position, limit, 33)
            partitions = []
            for _ in range(count):
                fetch_partition, position = FetchPartition.read(buffer, position, limit, version)
                partitions.append(fetch_partition)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return FetchTopic(topic_id, topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(
            buffer, position, limit, 28 if version >= 9 else 24 if version >= 5 else 16
        )
        partitions = []
        for _ in range(count):
            fetch_partition, position = FetchPartition.read(buffer, position, limit, version)
            partitions.append(fetch_partition)
        return FetchTopic(ZERO_UUID, topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            if version >= 13:
                out += pack_u(self.topic_id.bytes)
            if version <= 12:
                write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            for fetch_partition in self.partitions:
                fetch_partition.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        for fetch_partition in self.partitions:
            fetch_partition.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ForgottenTopic(Struct):
    """Versions 7 to 18. Part of FetchRequest."""

    topic_id: UUID = ZERO_UUID
    topic: str = ""
    partitions: list[int] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ForgottenTopic, int]:
        topic_id: UUID
        partitions: list[int]
        if version >= 12:
            if version >= 13:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 12:
                topic, position = read_compact_string(buffer, position, limit)
            else:
                topic = ""
            count, position = read_compact_count(buffer, position, limit, 4)
            partitions, position = read_numbers(buffer, position, "i", 4, count)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ForgottenTopic(topic_id, topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 4)
        partitions, position = read_numbers(buffer, position, "i", 4, count)
        return ForgottenTopic(ZERO_UUID, topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            if version >= 13:
                out += pack_u(self.topic_id.bytes)
            if version <= 12:
                write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            write_numbers(out, "i", self.partitions)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        write_numbers(out, "i", self.partitions)


@dataclass(slots=True, eq=False, repr=False)
class FetchRequest(Request["FetchResponse"]):
    """Versions 4 to 18."""

    API_KEY = 1
    VERSIONS = (4, 18)
    FLEXIBLE_FROM = 12

    cluster_id: str | None = None
    replica_state: ReplicaState | None = None
    replica_id: int = -1
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FetchRequest, int]:
        cluster_id: str | None
        replica_state: ReplicaState | None
        topics: list[FetchTopic]
        forgotten_topics_data: list[ForgottenTopic]
        if version >= 12:
            if version <= 14:
                (replica_id,) = unpack_i(buffer, position)
                position += 4
            else:
                replica_id = -1
            max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = unpack_iiibii(
                buffer, position
            )
            position += 21
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 13 else 3)
            topics = []
            for _ in range(count):
                fetch_topic, position = FetchTopic.read(buffer, position, limit, version)
                topics.append(fetch_topic)
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 13 else 3)
            forgotten_topics_data = []
            for _ in range(count):
                forgotten_topic, position = ForgottenTopic.read(buffer, position, limit, version)
                forgotten_topics_data.append(forgotten_topic)
            rack_id, position = read_compact_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            cluster_id = None
            replica_state = None
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0:
                        cluster_id, start = read_compact_nullable_string(buffer, start, end)
                    elif tag == 1 and version >= 15:
                        replica_state, start = ReplicaState.read(buffer, start, end, version)
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of FetchRequest has the wrong size")
                    position = end
            return FetchRequest(
                cluster_id,
                replica_state,
                replica_id,
                max_wait_ms,
                min_bytes,
                max_bytes,
                isolation_level,
                session_id,
                session_epoch,
                topics,
                forgotten_topics_data,
                rack_id,
            ), position
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = unpack_iiiib(buffer, position)
        position += 17
        if version >= 7:
            session_id, session_epoch = unpack_ii(buffer, position)
            position += 8
        else:
            session_id = 0
            session_epoch = -1
        count, position = read_count(buffer, position, limit, 6)
        topics = []
        for _ in range(count):
            fetch_topic, position = FetchTopic.read(buffer, position, limit, version)
            topics.append(fetch_topic)
        if version >= 7:
            count, position = read_count(buffer, position, limit, 6)
            forgotten_topics_data = []
            for _ in range(count):
                forgotten_topic, position = ForgottenTopic.read(buffer, position, limit, version)
                forgotten_topics_data.append(forgotten_topic)
        else:
            forgotten_topics_data = []
        if version >= 11:
            rack_id, position = read_string(buffer, position, limit)
        else:
            rack_id = ""
        return FetchRequest(
            None,
            None,
            replica_id,
            max_wait_ms,
            min_bytes,
            max_bytes,
            isolation_level,
            session_id,
            session_epoch,
            topics,
            forgotten_topics_data,
            rack_id,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            if version <= 14:
                out += pack_i(self.replica_id)
            out += pack_iiibii(
                self.max_wait_ms,
                self.min_bytes,
                self.max_bytes,
                self.isolation_level,
                self.session_id,
                self.session_epoch,
            )
            write_compact_count(out, len(self.topics))
            for fetch_topic in self.topics:
                fetch_topic.write(out, version, cuts)
            write_compact_count(out, len(self.forgotten_topics_data))
            for forgotten_topic in self.forgotten_topics_data:
                forgotten_topic.write(out, version, cuts)
            write_compact_string(out, self.rack_id)
            if self.cluster_id is None and self.replica_state is None:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.cluster_id is not None:
                value = bytearray()
                write_compact_nullable_string(value, self.cluster_id)
                tagged.append((0, value))
            if self.replica_state is not None and self.replica_state != ReplicaState() and version >= 15:
                value = bytearray()
                self.replica_state.write(value, version, cuts)
                tagged.append((1, value))
            write_tags(out, tagged)
            return
        out += pack_iiiib(
            self.replica_id, self.max_wait_ms, self.min_bytes, self.max_bytes, self.isolation_level
        )
        if version >= 7:
            out += pack_ii(self.session_id, self.session_epoch)
        write_count(out, len(self.topics))
        for fetch_topic in self.topics:
            fetch_topic.write(out, version, cuts)
        if version >= 7:
            write_count(out, len(self.forgotten_topics_data))
            for forgotten_topic in self.forgotten_topics_data:
                forgotten_topic.write(out, version, cuts)
        if version >= 11:
            write_string(out, self.rack_id)


@dataclass(slots=True, eq=False, repr=False)
class EpochEndOffset(Struct):
    """Versions 12 to 18. Part of FetchResponse."""

    epoch: int = -1
    end_offset: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[EpochEndOffset, int]:
        epoch, end_offset, tags = unpack_iqB(buffer, position)
        position += 13
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return EpochEndOffset(epoch, end_offset), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_iqx(self.epoch, self.end_offset)


@dataclass(slots=True, eq=False, repr=False)
class LeaderIdAndEpoch(Struct):
    """Versions 12 to 18. Part of FetchResponse."""

    leader_id: int = -1
    leader_epoch: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[LeaderIdAndEpoch, int]:
        leader_id, leader_epoch, tags = unpack_iiB(buffer, position)
        position += 9
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return LeaderIdAndEpoch(leader_id, leader_epoch), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_iix(self.leader_id, self.leader_epoch)


@dataclass(slots=True, eq=False, repr=False)
class SnapshotId(Struct):
    """Versions 12 to 18. Part of FetchResponse."""

    end_offset: int = -1
    epoch: int = -1

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[SnapshotId, int]:
        end_offset, epoch, tags = unpack_qiB(buffer, position)
        position += 13
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return SnapshotId(end_offset, epoch), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_qix(self.end_offset, self.epoch)


@dataclass(slots=True, eq=False, repr=False)
class AbortedTransaction(Struct):
    """Versions 4 to 18. Part of FetchResponse."""

    producer_id: int = 0
    first_offset: int = 0

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[AbortedTransaction, int]:
        if version >= 12:
            producer_id, first_offset, tags = unpack_qqB(buffer, position)
            position += 17
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return AbortedTransaction(producer_id, first_offset), position
        producer_id, first_offset = unpack_qq(buffer, position)
        position += 16
        return AbortedTransaction(producer_id, first_offset), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            out += pack_qqx(self.producer_id, self.first_offset)
            return
        out += pack_qq(self.producer_id, self.first_offset)


@dataclass(slots=True, eq=False, repr=False)
class PartitionData(Struct):
    """Versions 4 to 18. Part of FetchResponse."""

    partition_index: int = 0
    error_code: int = 0
    high_watermark: int = 0
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None
    aborted_transactions: list[AbortedTransaction] | None = field(default_factory=list)
    preferred_read_replica: int = -1
    records: Records | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[PartitionData, int]:
        diverging_epoch: EpochEndOffset | None
        current_leader: LeaderIdAndEpoch | None
        snapshot_id: SnapshotId | None
        aborted_transactions: list[AbortedTransaction] | None
        records: Records | None
        if version >= 12:
            partition_index, error_code, high_watermark, last_stable_offset, log_start_offset = unpack_ihqqq(
                buffer, position
            )
            position += 30
            count, position = read_compact_nullable_count(buffer, position, limit, 17)
            if count < 0:
                aborted_transactions = None
            else:
                aborted_transactions = []
                for _ in range(count):
                    aborted_transaction, position = AbortedTransaction.read(buffer, position, limit, version)
                    aborted_transactions.append(aborted_transaction)
            (preferred_read_replica,) = unpack_i(buffer, position)
            position += 4
            records, position = read_compact_nullable_records(buffer, position, limit)
            tags = buffer[position]
            position += 1
            diverging_epoch = None
            current_leader = None
            snapshot_id = None
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0:
                        diverging_epoch, start = EpochEndOffset.read(buffer, start, end, version)
                    elif tag == 1:
                        current_leader, start = LeaderIdAndEpoch.read(buffer, start, end, version)
                    elif tag == 2:
                        snapshot_id, start = SnapshotId.read(buffer, start, end, version)
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of PartitionData has the wrong size")
                    position = end
            return PartitionData(
                partition_index,
                error_code,
                high_watermark,
                last_stable_offset,
                log_start_offset,
                diverging_epoch,
                current_leader,
                snapshot_id,
                aborted_transactions,
                preferred_read_replica,
                records,
            ), position
        partition_index, error_code, high_watermark, last_stable_offset = unpack_ihqq(buffer, position)
        position += 22
        if version >= 5:
            (log_start_offset,) = unpack_q(buffer, position)
            position += 8
        else:
            log_start_offset = -1
        count, position = read_nullable_count(buffer, position, limit, 16)
        if count < 0:
            aborted_transactions = None
        else:
            aborted_transactions = []
            for _ in range(count):
                aborted_transaction, position = AbortedTransaction.read(buffer, position, limit, version)
                aborted_transactions.append(aborted_transaction)
        if version >= 11:
            (preferred_read_replica,) = unpack_i(buffer, position)
            position += 4
        else:
            preferred_read_replica = -1
        records, position = read_nullable_records(buffer, position, limit)
        return PartitionData(
            partition_index,
            error_code,
            high_watermark,
            last_stable_offset,
            log_start_offset,
            None,
            None,
            None,
            aborted_transactions,
            preferred_read_replica,
            records,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            out += pack_ihqqq(
                self.partition_index,
                self.error_code,
                self.high_watermark,
                self.last_stable_offset,
                self.log_start_offset,
            )
            if self.aborted_transactions is None:
                out += bytes(1)
            else:
                write_compact_count(out, len(self.aborted_transactions))
                for aborted_transaction in self.aborted_transactions:
                    aborted_transaction.write(out, version, cuts)
            out += pack_i(self.preferred_read_replica)
            write_compact_nullable_records(out, self.records, cuts)
            if self.diverging_epoch is None and self.current_leader is None and self.snapshot_id is None:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.diverging_epoch is not None and self.diverging_epoch != EpochEndOffset():
                value = bytearray()
                self.diverging_epoch.write(value, version, cuts)
                tagged.append((0, value))
            if self.current_leader is not None and self.current_leader != LeaderIdAndEpoch():
                value = bytearray()
                self.current_leader.write(value, version, cuts)
                tagged.append((1, value))
            if self.snapshot_id is not None and self.snapshot_id != SnapshotId():
                value = bytearray()
                self.snapshot_id.write(value, version, cuts)
                tagged.append((2, value))
            write_tags(out, tagged)
            return
        out += pack_ihqq(self.partition_index, self.error_code, self.high_watermark, self.last_stable_offset)
        if version >= 5:
            out += pack_q(self.log_start_offset)
        if self.aborted_transactions is None:
            out += b"\xff\xff\xff\xff"
        else:
            write_count(out, len(self.aborted_transactions))
            for aborted_transaction in self.aborted_transactions:
                aborted_transaction.write(out, version, cuts)
        if version >= 11:
            out += pack_i(self.preferred_read_replica)
        write_nullable_records(out, self.records, cuts)


@dataclass(slots=True, eq=False, repr=False)
class FetchableTopicResponse(Struct):
    """Versions 4 to 18. Part of FetchResponse."""

    topic_id: UUID = ZERO_UUID
    topic: str = ""
    partitions: list[PartitionData] = field(default_factory=list)

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[FetchableTopicResponse, int]:
        topic_id: UUID
        partitions: list[PartitionData]
        if version >= 12:
            if version >= 13:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 12:
                topic, position = read_compact_string(buffer, position, limit)
            else:
                topic = ""
            count, position = read_compact_count(buffer, position, limit, 37)
            partitions = []
            for _ in range(count):
                partition_data, position = PartitionData.read(buffer, position, limit, version)
                partitions.append(partition_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return FetchableTopicResponse(topic_id, topic, partitions), position
        topic, position = read_string(buffer, position, limit)
        count, position = read_count(
            buffer, position, limit, 42 if version >= 11 else 38 if version >= 5 else 30
        )
        partitions = []
        for _ in range(count):
            partition_data, position = PartitionData.read(buffer, position, limit, version)
            partitions.append(partition_data)
        return FetchableTopicResponse(ZERO_UUID, topic, partitions), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            if version >= 13:
                out += pack_u(self.topic_id.bytes)
            if version <= 12:
                write_compact_string(out, self.topic)
            write_compact_count(out, len(self.partitions))
            for partition_data in self.partitions:
                partition_data.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.topic)
        write_count(out, len(self.partitions))
        for partition_data in self.partitions:
            partition_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class NodeEndpoint(Struct):
    """Versions 16 to 18. Part of FetchResponse."""

    node_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[NodeEndpoint, int]:
        rack: str | None
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
        return NodeEndpoint(node_id, host, port, rack), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.node_id)
        write_compact_string(out, self.host)
        out += pack_i(self.port)
        write_compact_nullable_string(out, self.rack)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class FetchResponse(Response):
    """Versions 4 to 18."""

    API_KEY = 1
    VERSIONS = (4, 18)
    FLEXIBLE_FROM = 12

    throttle_time_ms: int = 0
    error_code: int = 0
    session_id: int = 0
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[FetchResponse, int]:
        responses: list[FetchableTopicResponse]
        node_endpoints: list[NodeEndpoint]
        if version >= 12:
            throttle_time_ms, error_code, session_id = unpack_ihi(buffer, position)
            position += 10
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 13 else 3)
            responses = []
            for _ in range(count):
                fetchable_topic_response, position = FetchableTopicResponse.read(
                    buffer, position, limit, version
                )
                responses.append(fetchable_topic_response)
            tags = buffer[position]
            position += 1
            node_endpoints = []
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0 and version >= 16:
                        count, start = read_compact_count(buffer, start, end, 11)
                        node_endpoints = []
                        for _ in range(count):
                            node_endpoint, start = NodeEndpoint.read(buffer, start, end, version)
                            node_endpoints.append(node_endpoint)
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of FetchResponse has the wrong size")
                    position = end
            return FetchResponse(
                throttle_time_ms, error_code, session_id, responses, node_endpoints
            ), position
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        if version >= 7:
            error_code, session_id = unpack_hi(buffer, position)
            position += 6
        else:
            error_code = 0
            session_id = 0
        count, position = read_count(buffer, position, limit, 6)
        responses = []
        for _ in range(count):
            fetchable_topic_response, position = FetchableTopicResponse.read(buffer, position, limit, version)
            responses.append(fetchable_topic_response)
        return FetchResponse(throttle_time_ms, error_code, session_id, responses, []), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 12:
            out += pack_ihi(self.throttle_time_ms, self.error_code, self.session_id)
            write_compact_count(out, len(self.responses))
            for fetchable_topic_response in self.responses:
                fetchable_topic_response.write(out, version, cuts)
            if not self.node_endpoints:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.node_endpoints and version >= 16:
                value = bytearray()
                write_compact_count(value, len(self.node_endpoints))
                for node_endpoint in self.node_endpoints:
                    node_endpoint.write(value, version, cuts)
                tagged.append((0, value))
            write_tags(out, tagged)
            return
        out += pack_i(self.throttle_time_ms)
        if version >= 7:
            out += pack_hi(self.error_code, self.session_id)
        write_count(out, len(self.responses))
        for fetchable_topic_response in self.responses:
            fetchable_topic_response.write(out, version, cuts)
