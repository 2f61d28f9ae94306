"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

ProduceRequest: versions 3 to 13
ProduceResponse: versions 3 to 13
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct as Layout
from uuid import UUID

from dray.kafka.protocol.message import Request, Response, Struct
from dray.kafka.protocol.wire import (
    Buffer,
    Cuts,
    DecodeError,
    ZERO_UUID,
    make_uuid,
    read_compact_count,
    read_compact_nullable_records,
    read_compact_nullable_string,
    read_compact_string,
    read_count,
    read_nullable_records,
    read_nullable_string,
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
    write_nullable_string,
    write_string,
    write_tags,
)

pack_hi = Layout(">hi").pack
unpack_hi = Layout(">hi").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ihqq = Layout(">ihqq").pack
unpack_ihqq = Layout(">ihqq").unpack_from
pack_ihqqq = Layout(">ihqqq").pack
unpack_ihqqq = Layout(">ihqqq").unpack_from
unpack_iiB = Layout(">iiB").unpack_from
pack_iix = Layout(">iix").pack
pack_q = Layout(">q").pack
unpack_q = Layout(">q").unpack_from
pack_u = Layout(">16s").pack
unpack_u = Layout(">16s").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class PartitionProduceData(Struct):
    """Versions 3 to 13. Part of ProduceRequest."""

    index: int = 0
    records: Buffer | None = None

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[PartitionProduceData, int]:
        records: Buffer | None
        if version >= 9:
            (index,) = unpack_i(buffer, position)
            position += 4
            records, position = read_compact_nullable_records(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return PartitionProduceData(index, records), position
        (index,) = unpack_i(buffer, position)
        position += 4
        records, position = read_nullable_records(buffer, position, limit)
        return PartitionProduceData(index, records), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_i(self.index)
            write_compact_nullable_records(out, self.records, cuts)
            out.append(0)
            return
        out += pack_i(self.index)
        write_nullable_records(out, self.records, cuts)


@dataclass(slots=True, eq=False, repr=False)
class TopicProduceData(Struct):
    """Versions 3 to 13. Part of ProduceRequest."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partition_data: list[PartitionProduceData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicProduceData, int]:
        topic_id: UUID
        partition_data: list[PartitionProduceData]
        if version >= 9:
            if version >= 13:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 12:
                name, position = read_compact_string(buffer, position, limit)
            else:
                name = ""
            count, position = read_compact_count(buffer, position, limit, 6)
            partition_data = []
            for _ in range(count):
                partition_produce_data, position = PartitionProduceData.read(buffer, position, limit, version)
                partition_data.append(partition_produce_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return TopicProduceData(topic_id, name, partition_data), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(buffer, position, limit, 8)
        partition_data = []
        for _ in range(count):
            partition_produce_data, position = PartitionProduceData.read(buffer, position, limit, version)
            partition_data.append(partition_produce_data)
        return TopicProduceData(ZERO_UUID, name, partition_data), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            if version >= 13:
                out += pack_u(self.topic_id.bytes)
            if version <= 12:
                write_compact_string(out, self.name)
            write_compact_count(out, len(self.partition_data))
            for partition_produce_data in self.partition_data:
                partition_produce_data.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partition_data))
        for partition_produce_data in self.partition_data:
            partition_produce_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class ProduceRequest(Request["ProduceResponse"]):
    """Versions 3 to 13."""

    API_KEY = 0
    VERSIONS = (3, 13)
    FLEXIBLE_FROM = 9

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[TopicProduceData] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ProduceRequest, int]:
        transactional_id: str | None
        topic_data: list[TopicProduceData]
        if version >= 9:
            transactional_id, position = read_compact_nullable_string(buffer, position, limit)
            acks, timeout_ms = unpack_hi(buffer, position)
            position += 6
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 13 else 3)
            topic_data = []
            for _ in range(count):
                topic_produce_data, position = TopicProduceData.read(buffer, position, limit, version)
                topic_data.append(topic_produce_data)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return ProduceRequest(transactional_id, acks, timeout_ms, topic_data), position
        transactional_id, position = read_nullable_string(buffer, position, limit)
        acks, timeout_ms = unpack_hi(buffer, position)
        position += 6
        count, position = read_count(buffer, position, limit, 6)
        topic_data = []
        for _ in range(count):
            topic_produce_data, position = TopicProduceData.read(buffer, position, limit, version)
            topic_data.append(topic_produce_data)
        return ProduceRequest(transactional_id, acks, timeout_ms, topic_data), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            write_compact_nullable_string(out, self.transactional_id)
            out += pack_hi(self.acks, self.timeout_ms)
            write_compact_count(out, len(self.topic_data))
            for topic_produce_data in self.topic_data:
                topic_produce_data.write(out, version, cuts)
            out.append(0)
            return
        write_nullable_string(out, self.transactional_id)
        out += pack_hi(self.acks, self.timeout_ms)
        write_count(out, len(self.topic_data))
        for topic_produce_data in self.topic_data:
            topic_produce_data.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class BatchIndexAndErrorMessage(Struct):
    """Versions 8 to 13. Part of ProduceResponse."""

    batch_index: int = 0
    batch_index_error_message: str | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[BatchIndexAndErrorMessage, int]:
        batch_index_error_message: str | None
        if version >= 9:
            (batch_index,) = unpack_i(buffer, position)
            position += 4
            batch_index_error_message, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return BatchIndexAndErrorMessage(batch_index, batch_index_error_message), position
        (batch_index,) = unpack_i(buffer, position)
        position += 4
        batch_index_error_message, position = read_nullable_string(buffer, position, limit)
        return BatchIndexAndErrorMessage(batch_index, batch_index_error_message), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_i(self.batch_index)
            write_compact_nullable_string(out, self.batch_index_error_message)
            out.append(0)
            return
        out += pack_i(self.batch_index)
        write_nullable_string(out, self.batch_index_error_message)


@dataclass(slots=True, eq=False, repr=False)
class LeaderIdAndEpoch(Struct):
    """Versions 10 to 13. Part of ProduceResponse."""

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
class PartitionProduceResponse(Struct):
    """Versions 3 to 13. Part of ProduceResponse."""

    index: int = 0
    error_code: int = 0
    base_offset: int = 0
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: list[BatchIndexAndErrorMessage] = field(default_factory=list)
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[PartitionProduceResponse, int]:
        record_errors: list[BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: LeaderIdAndEpoch | None
        if version >= 9:
            index, error_code, base_offset, log_append_time_ms, log_start_offset = unpack_ihqqq(
                buffer, position
            )
            position += 30
            count, position = read_compact_count(buffer, position, limit, 6)
            record_errors = []
            for _ in range(count):
                batch_index_and_error_message, position = BatchIndexAndErrorMessage.read(
                    buffer, position, limit, version
                )
                record_errors.append(batch_index_and_error_message)
            error_message, position = read_compact_nullable_string(buffer, position, limit)
            tags = buffer[position]
            position += 1
            current_leader = None
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0 and version >= 10:
                        current_leader, start = LeaderIdAndEpoch.read(buffer, start, end, version)
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of PartitionProduceResponse has the wrong size")
                    position = end
            return PartitionProduceResponse(
                index,
                error_code,
                base_offset,
                log_append_time_ms,
                log_start_offset,
                record_errors,
                error_message,
                current_leader,
            ), position
        index, error_code, base_offset, log_append_time_ms = unpack_ihqq(buffer, position)
        position += 22
        if version >= 5:
            (log_start_offset,) = unpack_q(buffer, position)
            position += 8
        else:
            log_start_offset = -1
        if version >= 8:
            count, position = read_count(buffer, position, limit, 6)
            record_errors = []
            for _ in range(count):
                batch_index_and_error_message, position = BatchIndexAndErrorMessage.read(
                    buffer, position, limit, version
                )
                record_errors.append(batch_index_and_error_message)
            error_message, position = read_nullable_string(buffer, position, limit)
        else:
            record_errors = []
            error_message = None
        return PartitionProduceResponse(
            index,
            error_code,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            record_errors,
            error_message,
            None,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            out += pack_ihqqq(
                self.index, self.error_code, self.base_offset, self.log_append_time_ms, self.log_start_offset
            )
            write_compact_count(out, len(self.record_errors))
            for batch_index_and_error_message in self.record_errors:
                batch_index_and_error_message.write(out, version, cuts)
            write_compact_nullable_string(out, self.error_message)
            if self.current_leader is None:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if (
                self.current_leader is not None
                and self.current_leader != LeaderIdAndEpoch()
                and version >= 10
            ):
                value = bytearray()
                self.current_leader.write(value, version, cuts)
                tagged.append((0, value))
            write_tags(out, tagged)
            return
        out += pack_ihqq(self.index, self.error_code, self.base_offset, self.log_append_time_ms)
        if version >= 5:
            out += pack_q(self.log_start_offset)
        if version >= 8:
            write_count(out, len(self.record_errors))
            for batch_index_and_error_message in self.record_errors:
                batch_index_and_error_message.write(out, version, cuts)
            write_nullable_string(out, self.error_message)


@dataclass(slots=True, eq=False, repr=False)
class TopicProduceResponse(Struct):
    """Versions 3 to 13. Part of ProduceResponse."""

    topic_id: UUID = ZERO_UUID
    name: str = ""
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[TopicProduceResponse, int]:
        topic_id: UUID
        partition_responses: list[PartitionProduceResponse]
        if version >= 9:
            if version >= 13:
                (topic_id,) = unpack_u(buffer, position)
                position += 16
                topic_id = make_uuid(topic_id)
            else:
                topic_id = ZERO_UUID
            if version <= 12:
                name, position = read_compact_string(buffer, position, limit)
            else:
                name = ""
            count, position = read_compact_count(buffer, position, limit, 33)
            partition_responses = []
            for _ in range(count):
                partition_produce_response, position = PartitionProduceResponse.read(
                    buffer, position, limit, version
                )
                partition_responses.append(partition_produce_response)
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return TopicProduceResponse(topic_id, name, partition_responses), position
        name, position = read_string(buffer, position, limit)
        count, position = read_count(
            buffer, position, limit, 36 if version >= 8 else 30 if version >= 5 else 22
        )
        partition_responses = []
        for _ in range(count):
            partition_produce_response, position = PartitionProduceResponse.read(
                buffer, position, limit, version
            )
            partition_responses.append(partition_produce_response)
        return TopicProduceResponse(ZERO_UUID, name, partition_responses), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            if version >= 13:
                out += pack_u(self.topic_id.bytes)
            if version <= 12:
                write_compact_string(out, self.name)
            write_compact_count(out, len(self.partition_responses))
            for partition_produce_response in self.partition_responses:
                partition_produce_response.write(out, version, cuts)
            out.append(0)
            return
        write_string(out, self.name)
        write_count(out, len(self.partition_responses))
        for partition_produce_response in self.partition_responses:
            partition_produce_response.write(out, version, cuts)


@dataclass(slots=True, eq=False, repr=False)
class NodeEndpoint(Struct):
    """Versions 10 to 13. Part of ProduceResponse."""

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
class ProduceResponse(Response):
    """Versions 3 to 13."""

    API_KEY = 0
    VERSIONS = (3, 13)
    FLEXIBLE_FROM = 9

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[ProduceResponse, int]:
        responses: list[TopicProduceResponse]
        node_endpoints: list[NodeEndpoint]
        if version >= 9:
            count, position = read_compact_count(buffer, position, limit, 18 if version >= 13 else 3)
            responses = []
            for _ in range(count):
                topic_produce_response, position = TopicProduceResponse.read(buffer, position, limit, version)
                responses.append(topic_produce_response)
            throttle_time_ms, tags = unpack_iB(buffer, position)
            position += 5
            node_endpoints = []
            if tags:
                tags, position = read_tag_count(buffer, position - 1, limit)
                tag = -1
                for _ in range(tags):
                    tag, start, end = read_tag(buffer, position, limit, tag)
                    if tag == 0 and version >= 10:
                        count, start = read_compact_count(buffer, start, end, 11)
                        node_endpoints = []
                        for _ in range(count):
                            node_endpoint, start = NodeEndpoint.read(buffer, start, end, version)
                            node_endpoints.append(node_endpoint)
                    else:
                        start = end
                    if start != end:
                        raise DecodeError("a tagged field of ProduceResponse has the wrong size")
                    position = end
            return ProduceResponse(responses, throttle_time_ms, node_endpoints), position
        count, position = read_count(buffer, position, limit, 6)
        responses = []
        for _ in range(count):
            topic_produce_response, position = TopicProduceResponse.read(buffer, position, limit, version)
            responses.append(topic_produce_response)
        (throttle_time_ms,) = unpack_i(buffer, position)
        position += 4
        return ProduceResponse(responses, throttle_time_ms, []), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 9:
            write_compact_count(out, len(self.responses))
            for topic_produce_response in self.responses:
                topic_produce_response.write(out, version, cuts)
            out += pack_i(self.throttle_time_ms)
            if not self.node_endpoints:
                out.append(0)
                return
            tagged: list[tuple[int, bytearray]] = []
            if self.node_endpoints and version >= 10:
                value = bytearray()
                write_compact_count(value, len(self.node_endpoints))
                for node_endpoint in self.node_endpoints:
                    node_endpoint.write(value, version, cuts)
                tagged.append((0, value))
            write_tags(out, tagged)
            return
        write_count(out, len(self.responses))
        for topic_produce_response in self.responses:
            topic_produce_response.write(out, version, cuts)
        out += pack_i(self.throttle_time_ms)
