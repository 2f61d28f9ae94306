"""Generated from Kafka's schema (kio 0.6.5) by tools/generate_messages.py. Do not edit.

InitProducerIdRequest: versions 0 to 6
InitProducerIdResponse: versions 0 to 6
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout

from dray.kafka.protocol.message import Request, Response
from dray.kafka.protocol.wire import (
    Cuts,
    read_compact_nullable_string,
    read_nullable_string,
    skip_tags,
    write_compact_nullable_string,
    write_nullable_string,
)

pack_i = Layout(">i").pack
unpack_i = Layout(">i").unpack_from
pack_ihqh = Layout(">ihqh").pack
unpack_ihqh = Layout(">ihqh").unpack_from
pack_oo = Layout(">??").pack
unpack_oo = Layout(">??").unpack_from
pack_qh = Layout(">qh").pack
unpack_qh = Layout(">qh").unpack_from


@dataclass(slots=True, eq=False, repr=False)
class InitProducerIdRequest(Request["InitProducerIdResponse"]):
    """Versions 0 to 6."""

    API_KEY = 22
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 2

    transactional_id: str | None = ""
    transaction_timeout_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    enable2_pc: bool = False
    keep_prepared_txn: bool = False

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[InitProducerIdRequest, int]:
        transactional_id: str | None
        if version >= 2:
            transactional_id, position = read_compact_nullable_string(buffer, position, limit)
            (transaction_timeout_ms,) = unpack_i(buffer, position)
            position += 4
            if version >= 3:
                producer_id, producer_epoch = unpack_qh(buffer, position)
                position += 10
            else:
                producer_id = -1
                producer_epoch = -1
            if version >= 6:
                enable2_pc, keep_prepared_txn = unpack_oo(buffer, position)
                position += 2
            else:
                enable2_pc = False
                keep_prepared_txn = False
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return InitProducerIdRequest(
                transactional_id,
                transaction_timeout_ms,
                producer_id,
                producer_epoch,
                enable2_pc,
                keep_prepared_txn,
            ), position
        transactional_id, position = read_nullable_string(buffer, position, limit)
        (transaction_timeout_ms,) = unpack_i(buffer, position)
        position += 4
        return InitProducerIdRequest(transactional_id, transaction_timeout_ms, -1, -1, False, False), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            write_compact_nullable_string(out, self.transactional_id)
            out += pack_i(self.transaction_timeout_ms)
            if version >= 3:
                out += pack_qh(self.producer_id, self.producer_epoch)
            if version >= 6:
                out += pack_oo(self.enable2_pc, self.keep_prepared_txn)
            out.append(0)
            return
        write_nullable_string(out, self.transactional_id)
        out += pack_i(self.transaction_timeout_ms)


@dataclass(slots=True, eq=False, repr=False)
class InitProducerIdResponse(Response):
    """Versions 0 to 6."""

    API_KEY = 22
    VERSIONS = (0, 6)
    FLEXIBLE_FROM = 2

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1
    ongoing_txn_producer_epoch: int = -1

    @staticmethod
    def read(
        buffer: memoryview, position: int, limit: int, version: int
    ) -> tuple[InitProducerIdResponse, int]:
        if version >= 2:
            throttle_time_ms, error_code, producer_id, producer_epoch = unpack_ihqh(buffer, position)
            position += 16
            if version >= 6:
                ongoing_txn_producer_id, ongoing_txn_producer_epoch = unpack_qh(buffer, position)
                position += 10
            else:
                ongoing_txn_producer_id = -1
                ongoing_txn_producer_epoch = -1
            tags = buffer[position]
            position += 1
            if tags:
                position = skip_tags(buffer, position - 1, limit)
            return InitProducerIdResponse(
                throttle_time_ms,
                error_code,
                producer_id,
                producer_epoch,
                ongoing_txn_producer_id,
                ongoing_txn_producer_epoch,
            ), position
        throttle_time_ms, error_code, producer_id, producer_epoch = unpack_ihqh(buffer, position)
        position += 16
        return InitProducerIdResponse(
            throttle_time_ms, error_code, producer_id, producer_epoch, -1, -1
        ), position

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        if version >= 2:
            out += pack_ihqh(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch)
            if version >= 6:
                out += pack_qh(self.ongoing_txn_producer_id, self.ongoing_txn_producer_epoch)
            out.append(0)
            return
        out += pack_ihqh(self.throttle_time_ms, self.error_code, self.producer_id, self.producer_epoch)
