"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

DescribeClusterRequest: versions 0 to 2
DescribeClusterResponse: versions 0 to 2
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
    skip_tags,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

pack_b = Layout(">b").pack
unpack_b = Layout(">b").unpack_from
pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
unpack_iB = Layout(">iB").unpack_from
pack_ih = Layout(">ih").pack
unpack_ih = Layout(">ih").unpack_from
pack_ix = Layout(">ix").pack
pack_o = Layout(">?").pack
unpack_o = Layout(">?").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class DescribeClusterRequest(Request["DescribeClusterResponse"]):
    """Versions 0 to 2."""

    API_KEY = 60
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1
    include_fenced_brokers: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeClusterRequest, int]:
        (include_cluster_authorized_operations,) = unpack_o(buffer, position)
        position += 1
        if version >= 1:
            (endpoint_type,) = unpack_b(buffer, position)
            position += 1
        else:
            endpoint_type = 1
        if version >= 2:
            (include_fenced_brokers,) = unpack_o(buffer, position)
            position += 1
        else:
            include_fenced_brokers = False
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeClusterRequest(
            include_cluster_authorized_operations, endpoint_type, include_fenced_brokers
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_o(self.include_cluster_authorized_operations)
        if version >= 1:
            out += pack_b(self.endpoint_type)
        if version >= 2:
            out += pack_o(self.include_fenced_brokers)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeClusterBroker(Struct):
    """Versions 0 to 2. Part of DescribeClusterResponse."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeClusterBroker, int]:
        rack: str | None
        (broker_id,) = unpack_i(buffer, position)
        position += 4
        host, position = read_compact_string(buffer, position, limit)
        (port,) = unpack_i(buffer, position)
        position += 4
        rack, position = read_compact_nullable_string(buffer, position, limit)
        if version >= 2:
            (is_fenced,) = unpack_o(buffer, position)
            position += 1
        else:
            is_fenced = False
        tags = buffer[position]
        position += 1
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeClusterBroker(broker_id, host, port, rack, is_fenced), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_i(self.broker_id)
        write_compact_string(out, self.host)
        out += pack_i(self.port)
        write_compact_nullable_string(out, self.rack)
        if version >= 2:
            out += pack_o(self.is_fenced)
        out.append(0)


@dataclass(slots=True, eq=False, repr=False)
class DescribeClusterResponse(Response):
    """Versions 0 to 2."""

    API_KEY = 60
    VERSIONS = (0, 2)
    FLEXIBLE_FROM = 0

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[DescribeClusterResponse, int]:
        error_message: str | None
        brokers: list[DescribeClusterBroker]
        throttle_time_ms, error_code = unpack_ih(buffer, position)
        position += 6
        error_message, position = read_compact_nullable_string(buffer, position, limit)
        if version >= 1:
            (endpoint_type,) = unpack_b(buffer, position)
            position += 1
        else:
            endpoint_type = 1
        cluster_id, position = read_compact_string(buffer, position, limit)
        (controller_id,) = unpack_i(buffer, position)
        position += 4
        count, position = read_compact_count(buffer, position, limit, 12 if version >= 2 else 11)
        brokers = []
        for _ in range(count):
            describe_cluster_broker, position = DescribeClusterBroker.read(buffer, position, limit, version)
            brokers.append(describe_cluster_broker)
        cluster_authorized_operations, tags = unpack_iB(buffer, position)
        position += 5
        if tags:
            position = skip_tags(buffer, position - 1, limit)
        return DescribeClusterResponse(
            throttle_time_ms,
            error_code,
            error_message,
            endpoint_type,
            cluster_id,
            controller_id,
            brokers,
            cluster_authorized_operations,
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        out += pack_ih(self.throttle_time_ms, self.error_code)
        write_compact_nullable_string(out, self.error_message)
        if version >= 1:
            out += pack_b(self.endpoint_type)
        write_compact_string(out, self.cluster_id)
        out += pack_i(self.controller_id)
        write_compact_count(out, len(self.brokers))
        for describe_cluster_broker in self.brokers:
            describe_cluster_broker.write(out, version, cuts)
        out += pack_ix(self.cluster_authorized_operations)
